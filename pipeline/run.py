"""`python -m pipeline.run +corpus=NAME`: the whole graph of a recipe, from corpus to report."""

import contextlib
import dataclasses
import os
import signal
import sys
import time
from pathlib import Path

from pipeline.config import RunConfig, check
from pipeline.console import formatting, terminal
from pipeline.errors import ConfigError, Exit, Restart, UserError
from pipeline.orchestration import compose_run, estimates, graph, run_plan, stage_commands, stage_keys
from pipeline.orchestration.follow import Executor, StageFailed, announce_done, width_of
from pipeline.orchestration.kinds import kind_of
from pipeline.orchestration.kubernetes import KubernetesExecutor
from pipeline.orchestration.local import LocalExecutor
from pipeline.orchestration.run_plan import Run, StageRecords
from pipeline.orchestration.slurm import SlurmExecutor
from pipeline.records import run_file
from pipeline.records.manifest import Manifest
from pipeline.records.metrics import Conversion
from pipeline.stages import fetch_inputs, stage
from pipeline.storage import places


def draw(nodes: StageRecords) -> str:
    """Return the graph as text: each stage, its dependencies, and whether it would run."""
    width = width_of(nodes)
    sources = [", ".join(node.needs) if len(node.needs) < 4 else f"{len(node.needs)} stages" for node in nodes]
    longest = max(map(len, sources))
    lines = []
    for node, source in zip(nodes, sources, strict=True):
        state = f"run    {node.reason}" if node.reason else "cached"
        lines.append(f"{node.name:<{width}}  {'<-' if node.needs else '  '} {source:<{longest}}  {state}")
    return "\n".join(lines)


def execute(config: RunConfig) -> None:
    """Plan the graph and run what has to run."""
    # Not a check of the schema: the pods of stages read the same overrides without an executor.
    problem = f"cannot be combined with executor={config.executor.name}; leave it out and check the nodes by "
    problem += "python -m model.preflight (docs/operations.md)"
    check(not config.executor.preflight or config.executor.pods, problem, "executor.preflight", True)
    if fetch_inputs.in_store(config.workdir):
        config.workdir = places.normal(config.workdir)
        problem = "must be a local path with executor=slurm, whose nodes share one"
        check(config.executor.name != "slurm", problem, "workdir", config.workdir)
    if config.dry_run:
        nodes, expected = plan_run(config)
        jobs = "" if config.executor.here else jobs_of(config, nodes)
        terminal.say("\n".join(filter(None, [draw(nodes), jobs, expected])))
        return
    with fetch_inputs.lock_run(config.workdir):
        nodes, expected = plan_run(config)
        # The driver of pods may not see the volume; elsewhere two would mix their logs.
        elsewhere = config.executor.pods or fetch_inputs.in_store(config.workdir)
        with contextlib.nullcontext() if elsewhere else stage.lock_run(Path(config.workdir)):
            run_nodes(config, nodes, expected)


def jobs_of(config: RunConfig, nodes: StageRecords) -> str:
    """Return what a run would have others start, if they answer: Kubernetes, Slurm, or a person."""
    settings = dataclasses.replace(config.executor, prometheus_port=None)
    try:
        chosen = make_executor(dataclasses.replace(config, executor=settings), run_plan.record_run(config, nodes))
        if chosen is None:
            return list_commands(config, nodes)
        chosen.longest_wait = 0.0
        return chosen.expected(nodes)
    except (UserError, Restart) as error:
        if isinstance(error, ConfigError) and error.key != "executor":  # a setting, not who would answer
            raise
        return f"the jobs are not shown: {error}"


def list_commands(config: RunConfig, nodes: StageRecords) -> str:
    """Return the commands of the stages that have to run, for another scheduler."""
    place, start = run_file.place_of(config.workdir), " ".join(stage_commands.ELSEWHERE)
    jobs = [f"  python {start} {place}#{job}" for job in run_plan.group_by_job(nodes)]
    return "\n".join(["run on each machine of a stage, in this order:", *jobs])


def plan_run(config: RunConfig) -> tuple[StageRecords, str]:
    """Return the checked graph, and what it will take; empty if no stage is long."""
    nodes = graph.plan_graph(config)
    if not config.executor.pods:
        graph.check_places(config, nodes)
    if config.executor.here:
        nodes = [kind_of(node.name).with_push(node) for node in nodes]
    return nodes, estimates.line(estimates.estimate_stages(config, nodes), config)


def run_nodes(config: RunConfig, nodes: StageRecords, expected: str) -> None:
    """Run what has to run of a checked graph; `expected` says what it will take."""
    if expected:
        terminal.say(expected)
    for node in nodes:
        if node.kind == "train" and "; " in (node.reason or ""):  # where it continues, or that it does not
            terminal.say(f"{node.name}: {node.reason}")
    # As Ctrl-C, which stops the children first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as `nohup` leaves it
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    run = run_plan.record_run(config, nodes)
    os.environ.update(run.environment | os.environ)
    began = time.monotonic()
    try:
        chosen = make_executor(config, run)
        run.write()
        if chosen is None:
            terminal.say(f"written: {run_file.place_of(config.workdir)}; {list_commands(config, nodes)}")
            return
        announce_done(nodes)
        chosen.run(nodes)
    except UserError as error:
        if error.where is None:
            raise
        outs = {node.name: node.config.out for node in nodes}
        raise stage_keys.explain_in_run(error, config.stages, outs, config.executor.pods) from error
    except StageFailed as error:
        terminal.say(f"error: {error}", sys.stderr)
        sys.exit(Exit.BUG)
    if config.executor.name == "slurm" and not config.executor.wait:
        terminal.say("submitted; the same command says which stages are done")
        return
    cached = sum(node.reason is None for node in nodes)
    note = f", {cached} of them up to date" if cached else ""
    print(f"all done in {formatting.duration(time.monotonic() - began)}: {len(nodes)} stages{note}")
    show_samples(nodes)
    for node in nodes:
        if node.kind == "report":
            print(f"report: {node.out}/report.html")


def show_samples(nodes: StageRecords) -> None:
    """Show what the last model filled into masked sentences; nothing where none did.

    A stage that converts checkpoints keeps no samples.
    """
    made = [Manifest.read(node.out) for node in nodes if node.kind == "convert"]
    conversions = [Conversion.of(one) for one in made if one is not None]
    samples = next((one.samples for one in reversed(conversions) if not one.checkpoints), [])
    if samples:
        of = "held-out sentences, those of which it is surest" if "answer" in samples[0] else "your examples"
        terminal.say(f"samples: what the model fills in for [MASK] in {of}")
    for sample in samples:
        terminal.say(f"  {sample['text']}" + (f"  ({sample['answer']})" if "answer" in sample else ""))
        for words in sample["masks"]:
            shown = [f"'{one['word']}' {one['probability']:.2f}" for one in words]
            terminal.say(f"    -> {', '.join(shown)}")


def make_executor(config: RunConfig, run: Run) -> Executor | None:
    """Return the configured executor; None: another scheduler runs the stages."""
    if config.executor.name == "none":
        return None
    if config.executor.pods:
        return KubernetesExecutor(config.executor, run)
    if config.executor.name == "slurm":
        return SlurmExecutor(config.executor, run)
    return LocalExecutor(
        fetch_inputs.local_place(config.workdir, config.mirror),
        run.cores,
        lambda node: stage_commands.stage_command(node, run.place, config.processes, run.cores),
        lambda: fetch_inputs.put_logs(config.workdir, config.mirror),
    )


def main() -> None:
    """Run the command."""
    compose_run.start(sys.argv[1:], execute)


if __name__ == "__main__":
    main()
