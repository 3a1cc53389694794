"""Run one stage on another machine: `python -m pipeline.orchestration.run_stage --from RUN/run.json#STAGE`.

The stage's settings are in the record that the driver has written, RUN/run.json; this process
replaces itself with the stage's, so that log, signals and exit code are those of the stage. With
cores=N, preparation takes as many.

Environment of Indexed Jobs: JOB_COMPLETION_INDEX (set by Kubernetes). Training: BERT_NODES;
BERT_GPUS of each (0: one process on the CPU); BERT_SERVICE (the headless Service) or BERT_HOSTS (the
nodes' names in rank order, separated by commas); BERT_PORT (29500) of the rendezvous; BERT_HEARTBEAT
(a folder, see `pipeline.common.heartbeat`); BERT_PROMETHEUS (ADDRESS:PORT where rank 0 serves its
metrics). Evaluation: BERT_PARTS. Slurm and Kubeflow Trainer have names of their own.

The stage `preflight` checks the nodes instead, with the environment of training; BERT_OPTIONS are those
of `python -m model.preflight`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, cast

from model.distributed.environment import HOSTFILE
from pipeline.cli import entry_point
from pipeline.cli.overrides import Words
from pipeline.common import cores as machine
from pipeline.common import heartbeat
from pipeline.config import EvaluateConfig, PrepareConfig
from pipeline.console import terminal
from pipeline.errors import ConfigError, Exit, InputError, Restart
from pipeline.evaluation.evaluators import evaluator_of
from pipeline.orchestration import run_plan, stage_commands
from pipeline.orchestration.job_status import DIGEST, PREFLIGHT
from pipeline.orchestration.run_plan import Run, StageRecord, StageRecords
from pipeline.records import run_file
from pipeline.stages.registry import NODES, placement_of

PORT = 29500  # of the rendezvous
INDEX = "JOB_COMPLETION_INDEX"  # environment: set by Kubernetes
TASK = "SLURM_PROCID"  # environment: set in a step of Slurm
MASTER = "PET_MASTER_ADDR"  # environment: the host of rank 0, for torchrun


@dataclass(frozen=True)
class Node:
    """One of the nodes of a training."""

    index: int
    gpus: int  # of each; 0: one process on the CPU
    hosts: tuple[str, ...]  # in rank order
    port: int


def node_of(job: str) -> Node:
    """Return this node among those of a training; the pods of a Job are named after it.

    Raises:
        ConfigError: an environment variable is missing, or contradicts another one.
    """
    if TASK in os.environ:
        return node_from_slurm()
    if MASTER in os.environ and not {"BERT_HOSTS", "BERT_SERVICE"} & os.environ.keys():
        return node_from_torchrun()
    return node_from_indexed_job(job)


def node_from_slurm() -> Node:
    """Return the node of a step of Slurm."""
    words = ["scontrol", "show", "hostnames", os.environ["SLURM_STEP_NODELIST"]]
    names = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    # Jobs on the same node need different ports, or they would join each other's store.
    port = number("BERT_PORT", 1, 20000 + number("SLURM_JOB_ID", 0) % 10000)
    return Node(number(TASK, 0), number("SLURM_GPUS_ON_NODE", 0, 0), tuple(names), port)


def node_from_torchrun() -> Node:
    """Return the node of a TrainJob, which names the first pod; BERT_GPUS goes before what it says."""
    index, nodes = number(INDEX, 0), number("PET_NNODES", 1)
    first, dot, domain = os.environ[MASTER].partition(".")
    others = (f"{first.removesuffix('-0')}-{each}{dot}{domain}" for each in range(1, nodes))
    gpus = number("BERT_GPUS" if "BERT_GPUS" in os.environ else "PET_NPROC_PER_NODE", 0)
    return Node(index, gpus, (os.environ[MASTER], *others), number("PET_MASTER_PORT", 1, PORT))


def node_from_indexed_job(job: str) -> Node:
    """Return the node of a pod behind the headless Service BERT_SERVICE, or one of BERT_HOSTS."""
    index, nodes, gpus = number(INDEX, 0), number("BERT_NODES", 1), number("BERT_GPUS", 0)
    if index >= nodes:
        raise ConfigError(f"pod {index} exceeds it; set the Job's completions to BERT_NODES", "BERT_NODES", nodes)
    listed, service = os.environ.get("BERT_HOSTS"), os.environ.get("BERT_SERVICE")
    if not listed and not service:
        cure = "set it to the name of the pods' headless Service"
        raise ConfigError(f"the environment variable is not set; {cure}", "BERT_SERVICE")
    names = listed.split(",") if listed else [f"{job}-{each}.{service}" for each in range(nodes)]
    if len(names) != nodes:
        raise ConfigError(f"the environment variable does not match BERT_HOSTS={listed}", "BERT_NODES", nodes)
    return Node(index, gpus, tuple(names), number("BERT_PORT", 1, PORT))


def evaluation_part() -> tuple[int, int]:
    """Return which of how many jobs that share an evaluation this is.

    Raises:
        ConfigError: an environment variable is missing.
    """
    if TASK not in os.environ:
        return number(INDEX, 0), number("BERT_PARTS", 1)
    nodes = number("SLURM_STEP_NUM_NODES", 1)
    return number("SLURM_ARRAY_TASK_ID", 0, number(TASK, 0)), number("SLURM_ARRAY_TASK_COUNT", 1, nodes)


def number(name: str, least: int, default: int | None = None) -> int:
    """Return an environment variable as a whole number of at least `least`.

    Raises:
        ConfigError: it is none, or is not set and has no default.
    """
    text = os.environ.get(name, "" if default is None else str(default))
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"the environment variable must be a whole number of at least {least}", name, repr(text))
    return int(text)


def multi_node_options(stage: str) -> Words:
    """Return the launcher's options for one node of several.

    Raises:
        ConfigError: an environment variable is missing or inconsistent.
    """
    node = node_of(stage)
    # `model.launch` writes it to a temporary file.
    os.environ[HOSTFILE] = "".join(f"{name} slots={node.gpus or 1}\n" for name in node.hosts)
    meet = ["--master_addr", node.hosts[0], "--master_port", str(node.port)]
    return ["--no_ssh", "--node_rank", str(node.index), *meet]


def preflight_command() -> Words:
    """Return the command that checks this node and those that will train with it.

    Raises:
        ConfigError: as `multi_node_options`.
    """
    options = os.environ.get("BERT_OPTIONS", "").split()
    script = run_plan.ROOT / "model" / "preflight.py"
    return [*stage_commands.launch_command(script, multi_node_options(PREFLIGHT)), *options]


def pod_command(nodes: StageRecords, node: StageRecord, record: str) -> Words:
    """Return this pod's command for `node`, one of the Job's `nodes`; empty if it has no part."""
    if placement_of(node.kind) == NODES:
        words = stage_commands.stage_command(node, record, options=multi_node_options(node.name))
        if alive := os.environ.get(heartbeat.FOLDER):
            words.append(f"heartbeat={json.dumps(alive)}")
        host, _, port = os.environ.get("BERT_PROMETHEUS", "").rpartition(":")
        if host:
            words += [f"tracking.prometheus_host={json.dumps(host)}", f"tracking.prometheus_port={port}"]
        return words
    words = stage_commands.stage_command(node, record)
    if not isinstance(node.config, EvaluateConfig):
        return words
    index, parts = evaluation_part()
    configs = [cast(EvaluateConfig, other.config) for other in nodes]
    grids = [evaluator_of(config.task).run_count(config) for config in configs]
    position = nodes.index(node)
    first = (index - sum(grids[:position])) % parts  # runs are numbered across all grids
    return [*words, f"part=[{first},{parts}]"] if first < grids[position] else []


def run_stage(words: Words) -> NoReturn:
    """Run this pod's part of a stage.

    Raises:
        ConfigError: the words name none, or the recipe has no such stage.
        InputError: the record of the run cannot be read.
        Restart: the stage's inputs are not done yet, or the record is another run's.
    """
    place, *settings = words[1:] or [""]
    record, named, stage = place.partition("#")
    if words[:1] != [run_file.OPTION] or not named:
        raise ConfigError("is required; add RUN/run.json#STAGE", run_file.OPTION)
    typed = dict(word.partition("=")[::2] for word in settings)
    try:
        run = run_plan.read(record)
    except InputError as error:
        if isinstance(error.__cause__, FileNotFoundError):  # a mount may come late, or be lost
            raise Restart(f"{stage}: {error}") from error
        raise
    if os.environ.get(DIGEST, run.digest(stage)) != run.digest(stage):
        raise Restart(f"{stage}: {record} is not yet, or no more, the record that this job was made for")
    os.environ.update(run.environment | os.environ)
    commands = [preflight_command()] if stage == PREFLIGHT else commands_of(stage, run, record, typed)
    for each in commands[:-1]:
        if code := stage_commands.run(each):
            sys.exit(code)
    if commands:
        os.execv(commands[-1][0], commands[-1])
    sys.exit(Exit.DONE)


def commands_of(stage: str, run: Run, record: str, typed: Mapping[str, str]) -> list[Words]:
    """Return the commands of a Job's stages that are not made yet.

    Raises:
        ConfigError, Restart: as `run_stage`.
    """
    members = [node for node in run.stages.values() if node.job == stage]
    if not members:
        listed = ", ".join(dict.fromkeys(node.job for node in run.stages.values()))
        raise ConfigError(f"no such stage in recipe {run.recipe}; choose one of {listed}", path=stage)
    needs = dict.fromkeys(name for node in members for name in node.needs)
    if missing := [name for name in needs if run.stages[name].made() is None]:
        # A file system may show another node's rename with a delay.
        raise Restart(f"{stage}: inputs are not done: {', '.join(missing)}")
    commands = []
    for node in members:
        manifest = node.made()
        terminal.say(f"{node.name}: {'up to date' if manifest else node.reason or 'changed since'}")
        if manifest or not (words := pod_command(members, node, record)):
            continue
        if isinstance(node.config, PrepareConfig) and node.config.runner.workers == run.cores:
            words.append(f"runner.workers={typed.get('cores') or machine.available()}")
        commands.append(words)
    return commands


def main() -> None:
    """Run the command."""
    if sys.argv[1:2] in (["--help"], ["-h"]):
        print(__doc__, end="")
        return
    os.environ[terminal.RECORDS] = "1"
    entry_point.run_guarded(lambda: run_stage(sys.argv[1:]))


if __name__ == "__main__":
    main()
