"""Run one stage in a pod or on a Slurm node: `python -m pipeline.orchestration.run_stage STAGE …`.

The pod plans the graph from the same overrides as the driver, and replaces itself with its stage's
process, so that log, signals and exit code are those of the stage.

Environment of Indexed Jobs: JOB_COMPLETION_INDEX (set by Kubernetes). Training: NODES; GPUS per
node (0: one process on the CPU); SERVICE (name of the headless Service) or HOSTS (node names in
rank order, separated by commas); HEARTBEAT (a folder, see `pipeline.common.heartbeat`); PORT
(29500) of the rendezvous. What is missing is taken from the environment of torchrun, PET_NNODES,
PET_NPROC_PER_NODE, PET_MASTER_ADDR and PET_MASTER_PORT, which Kubeflow Trainer sets. Evaluation:
PARTS.

The stage `preflight` checks the nodes instead, with the environment of training; OPTIONS are those
of `python -m model.preflight`.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import cast

from pipeline.cli.overrides import quoted
from pipeline.common import cores, heartbeat, screen
from pipeline.common.errors import ConfigError, Restart
from pipeline.config import EvaluateConfig, RunConfig
from pipeline.evaluation import grid_search
from pipeline.orchestration import graph, run_arguments, wandb_names
from pipeline.orchestration.job_status import PREFLIGHT
from pipeline.stages import store_inputs

PORT = 29500  # of the rendezvous
TORCHRUN = {"NODES": "PET_NNODES", "GPUS": "PET_NPROC_PER_NODE", "PORT": "PET_MASTER_PORT"}
MASTER = "PET_MASTER_ADDR"  # the host of rank 0


def variable(name: str) -> str:
    """Return the environment variable that is set: `name`, or torchrun's for the same."""
    other = TORCHRUN.get(name, name)
    return other if name not in os.environ and other in os.environ else name


def number(name: str, least: int) -> int:
    """Return an environment variable as a whole number of at least `least`."""
    name = variable(name)
    text = os.environ.get(name, "")
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"the environment variable must be a whole number of at least {least}", name, repr(text))
    return int(text)


def hosts(stage: str, nodes: int) -> list[str]:
    """Return the names of the nodes in rank order.

    These are listed in HOSTS, or are those of an Indexed Job's pods behind a headless Service, or
    those of a TrainJob's, which names the first.

    Raises:
        ConfigError: none of HOSTS, SERVICE and torchrun's is set, or HOSTS has the wrong length.
    """
    listed, service = os.environ.get("HOSTS"), os.environ.get("SERVICE")
    master = os.environ.get(MASTER)
    if master and not listed and not service:
        first, dot, domain = master.partition(".")
        others = (f"{first.removesuffix('-0')}-{i}{dot}{domain}" for i in range(1, nodes))
        return [master, *others]
    if not listed and not service:
        raise ConfigError(
            "the environment variable is not set; set it to the name of the pods' headless Service", "SERVICE"
        )
    names = listed.split(",") if listed else [f"{stage}-{i}.{service}" for i in range(nodes)]
    if len(names) != nodes:
        raise ConfigError(f"the environment variable does not match HOSTS={listed}", "NODES", nodes)
    return names


def on_many_nodes(stage: str) -> list[str]:
    """Return the launcher's options for one node of several, with rank from the completion index.

    The pods' names are made of the Job's, `stage`.

    Raises:
        ConfigError: an environment variable is missing or inconsistent.
    """
    index, nodes, gpus = number("JOB_COMPLETION_INDEX", 0), number("NODES", 1), number("GPUS", 0)
    if index >= nodes:
        raise ConfigError(f"pod {index} exceeds it; set the Job's completions to NODES", "NODES", nodes)
    names = hosts(stage, nodes)
    # `model.launch` writes this to a temporary file.
    os.environ["TRAIN_HOSTFILE"] = "".join(f"{name} slots={gpus or 1}\n" for name in names)
    return [
        "--no_ssh",
        "--node_rank",
        str(index),
        "--master_addr",
        names[0],
        "--master_port",
        os.environ.get(variable("PORT"), str(PORT)),
    ]


def training(node: graph.Node) -> list[str]:
    """Return the command of this node's ranks.

    Raises:
        ConfigError: as `on_many_nodes`.
    """
    words = node.command(None, options=on_many_nodes(node.name))
    alive = os.environ.get(heartbeat.FOLDER)
    return [*words, f"heartbeat={quoted(alive)}"] if alive else words


def preflight(config: RunConfig) -> list[str]:
    """Return the command that checks this node and those that will train with it.

    Raises:
        ConfigError: as `on_many_nodes`.
    """
    places = [config.workdir]
    if store_inputs.in_store(config.workdir):
        places.append(str(store_inputs.local_place(config.workdir, config.mirror)))
    script = Path(__file__).resolve().parents[2] / "model" / "preflight.py"
    options = os.environ.get("OPTIONS", "").split()
    return [*graph.launched(script, on_many_nodes(PREFLIGHT)), *places, *options]


def command(nodes: list[graph.Node], node: graph.Node) -> list[list[str]]:
    """Return this pod's commands for `node`, one of the Job's `nodes`; empty if it has no part."""
    if node.kind == "train":
        return [training(node)]
    if node.kind != "evaluate":
        return [node.command(None)]
    index, parts = number("JOB_COMPLETION_INDEX", 0), number("PARTS", 1)
    grids = [len(grid_search.grid_of(cast(EvaluateConfig, other.config))) for other in nodes]
    position = nodes.index(node)
    first = (index - sum(grids[:position])) % parts  # runs are numbered across all grids
    return [[*node.command(None), f"part=[{first},{parts}]"]] if first < grids[position] else []


def run_stage(stage: str, config: RunConfig, chosen: list[str]) -> None:
    """Run this pod's part of `stage`.

    Raises:
        ConfigError: the recipe has no such stage.
        Restart: the stage's inputs are not done yet.
    """
    if stage == PREFLIGHT:
        words = preflight(config)
        os.execv(words[0], words)
    config.cores = config.cores or cores.available()
    wandb_names.set_environment(config)
    nodes = graph.plan(config, chosen)
    mine = [node for node in nodes if node.job == stage]
    if not mine:
        listed = ", ".join(dict.fromkeys(node.job for node in nodes))
        raise ConfigError(f"no such stage in recipe {config.recipe.name}; choose one of {listed}", path=stage)
    missing = [n.name for n in nodes if n.reason and any(n.name in m.needs for m in mine)]
    if missing:
        # A file system may show another node's rename with a delay.
        raise Restart(f"{stage}: inputs are not done: {', '.join(missing)}")
    commands = []
    for node in mine:
        screen.say(f"{node.name}: {node.reason or 'up to date'}")
        if node.reason is not None:
            commands += command(mine, node)
    for words in commands[:-1]:
        code = subprocess.run(words, check=False).returncode
        if code:
            sys.exit(code if code > 0 else 128 - code)
    if commands:
        os.execv(commands[-1][0], commands[-1])


def main() -> None:
    """Run the command."""
    stage, *overrides = sys.argv[1:] or [""]
    if stage in ("--help", "-h"):
        print(__doc__, end="")
        return
    run_arguments.start(run_arguments.expand(overrides), lambda config, chosen: run_stage(stage, config, chosen))


if __name__ == "__main__":
    main()
