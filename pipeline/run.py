"""`python -m pipeline.run +corpus=NAME`: the whole graph of a recipe, from corpus to report."""

import shlex
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from pipeline.cli import entry_point
from pipeline.common import cores, formatting, redact, screen
from pipeline.common.atomic import write_text
from pipeline.common.errors import Exit, InputError
from pipeline.common.manifest import Manifest
from pipeline.config import RunConfig
from pipeline.orchestration import estimates, graph, run_arguments
from pipeline.orchestration.kubernetes import KubernetesExecutor
from pipeline.orchestration.local import Executor, LocalExecutor, StageFailed
from pipeline.orchestration.slurm import SlurmExecutor
from pipeline.reporting.commands import COMMAND


def draw(nodes: list[graph.Node]) -> str:
    """The graph as text: each stage, what it waits for, and whether it would run."""
    width = max(len(node.name) for node in nodes)
    sources = [
        ", ".join(node.needs) if len(node.needs) < 4 else f"{len(node.needs)} stages"
        for node in nodes
    ]
    longest = max(map(len, sources))
    lines = []
    for node, source in zip(nodes, sources, strict=True):
        state = f"run    {node.reason}" if node.reason else "cached"
        arrow = "<-" if node.needs else "  "
        lines.append(f"{node.name:<{width}}  {arrow} {source:<{longest}}  {state}")
    return "\n".join(lines)


def execute(config: RunConfig, chosen: list[str]) -> None:
    """Plan, then run what has to run; `chosen` are the overrides of the command line."""
    config.cores = config.cores or cores.available()
    nodes = graph.plan(config, chosen)
    if config.executor.name in ("local", "slurm"):
        graph.check_places(config, nodes)
    expected = estimates.line(estimates.of_stages(config, nodes, processes(config)))
    if config.dry_run:
        screen.say(redact.redact("\n".join(filter(None, [draw(nodes), expected]))))
        return
    if expected:
        screen.say(expected)
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as `nohup` leaves it
        signal.signal(signal.SIGHUP, interrupt)
    if config.executor.name != "kubernetes":  # whose driver may not see the volume
        keep_command(Path(config.workdir))
    began = time.monotonic()
    try:
        executor(config, chosen).run(nodes)
    except StageFailed as error:
        screen.say(redact.redact(f"error: {error}"), sys.stderr)
        sys.exit(Exit.BUG)
    cached = sum(node.reason is None for node in nodes)
    told = f", {cached} of them up to date" if cached else ""
    spent = formatting.duration(time.monotonic() - began)
    print(f"all done in {spent}: {len(nodes)} stages{told}")
    show_samples(nodes)
    for node in nodes:
        if node.kind == "report":
            print(f"report: {node.out / 'report.html'}")


def keep_command(workdir: Path) -> None:
    """Write the command line of the run next to its logs, for the report.

    Raises:
        InputError: nothing can be written there.
    """
    words = ["python", "-m", "pipeline.run", *sys.argv[1:]]
    try:
        (workdir / "logs").mkdir(parents=True, exist_ok=True)
        write_text(workdir / COMMAND, redact.redact(shlex.join(words)) + "\n")
    except OSError as error:
        raise InputError(
            f"workdir={workdir}: cannot write there ({error.strerror})", path=workdir
        ) from error


def show_samples(nodes: list[graph.Node]) -> None:
    """Show what the last converted model fills into masked sentences; nothing where it cannot."""
    made = [Manifest.read(node.out) for node in nodes if node.kind == "convert"]
    samples = made[-1].figures.get("samples", []) if made and made[-1] is not None else []
    if not samples:
        return
    screen.say("samples: what the model fills in for [MASK], of held-out text or your examples")
    for sample in samples:
        screen.say(f"  {sample['text']}")
        for words in sample["masks"]:
            shown = [f"'{one['word']}' {one['probability']:.2f}" for one in words]
            screen.say(f"    -> {', '.join(shown)}")


def executor(config: RunConfig, chosen: list[str]) -> Executor:
    """What runs the stages."""
    assert config.cores is not None
    if config.executor.name == "kubernetes":
        return KubernetesExecutor(config.executor)
    if config.executor.name == "slurm":
        return SlurmExecutor(config.executor, Path(config.workdir), chosen)
    return LocalExecutor(Path(config.workdir), config.cores, processes(config))


def interrupt(number: int, frame: FrameType | None) -> None:
    """End a run at SIGTERM, or when its terminal is closed, as Ctrl-C does: children first."""
    raise KeyboardInterrupt


def processes(config: RunConfig) -> int | None:
    """Training processes to launch; None leaves it to the launcher: one a GPU."""
    if config.processes is not None:
        return config.processes
    return None if Path("/dev/nvidiactl").exists() else 1


def main() -> None:
    """The command."""
    words = run_arguments.expand(sys.argv[1:])

    def start(config: RunConfig) -> None:
        execute(config, run_arguments.overrides_of(words))

    entry_point.run("run", RunConfig, start, argv=words)


if __name__ == "__main__":
    main()
