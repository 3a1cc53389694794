"""Run one stage in a pod or on a Slurm node: `python -m pipeline.orchestration.run_stage STAGE …`.

The pod plans the graph from the same overrides as the driver, finds its stage in it and becomes
that stage's process: its log, its signals and its exit code are the pod's own.

Environment of Indexed Jobs: JOB_COMPLETION_INDEX (set by Kubernetes); for training NODES, GPUS (a
node; 0: one process on the CPU), SERVICE (name of the headless Service) or HOSTS (the nodes' names
in the order of ranks, with commas, as deploy/slurm.sh has them) and HEARTBEAT (a folder, see
`model.resilience.heartbeat`) and PORT (29500), where the ranks meet; for evaluation PARTS.
"""

import os
import subprocess
import sys
from typing import cast

from pipeline.cli import entry_point
from pipeline.cli.overrides import quoted
from pipeline.common import cores
from pipeline.common.errors import ConfigError, Restart
from pipeline.config import EvaluateConfig, RunConfig
from pipeline.evaluation import grid_search
from pipeline.orchestration import graph, run_arguments

PORT = 29500  # where the ranks meet


def number(name: str, least: int) -> int:
    """A whole number from the environment.

    Raises:
        ConfigError: it is not there, not a number, or below `least`.
    """
    text = os.environ.get(name, "")
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"environment: {name}={text!r}: a whole number, at least {least}")
    return int(text)


def hosts(stage: str, nodes: int) -> list[str]:
    """The names of the nodes in the order of ranks.

    They are those that HOSTS lists, else those of an Indexed Job's pods behind a headless Service.

    Raises:
        ConfigError: the environment has neither, or too few.
    """
    listed, service = os.environ.get("HOSTS"), os.environ.get("SERVICE")
    if not listed and not service:
        raise ConfigError("environment: SERVICE: the name of the headless Service of the pods")
    names = listed.split(",") if listed else [f"{stage}-{i}.{service}" for i in range(nodes)]
    if len(names) != nodes:
        raise ConfigError(f"environment: NODES={nodes}, but HOSTS={listed}")
    return names


def training(node: graph.Node) -> list[str]:
    """The command of one node of several: rank from the completion index, meeting at pod 0.

    Raises:
        ConfigError: the environment does not say which of how many, or NODES is too small.
    """
    index, nodes, gpus = number("JOB_COMPLETION_INDEX", 0), number("NODES", 1), number("GPUS", 0)
    if index >= nodes:
        raise ConfigError(f"environment: NODES={nodes}, but this is pod {index}: set completions")
    names = hosts(node.name, nodes)
    # `model.launch` makes a file of it, and removes the file.
    os.environ["TRAIN_HOSTFILE"] = "".join(f"{name} slots={gpus or 1}\n" for name in names)
    alone = node.command(None)
    launcher = next(place for place, word in enumerate(alone) if word.endswith("deepspeed"))
    script = next(place for place, word in enumerate(alone) if word.endswith("train.py"))
    many = [
        "--no_ssh", "--node_rank", str(index),
        "--master_addr", names[0], "--master_port", os.environ.get("PORT", str(PORT)),
    ]  # fmt: skip
    words = [*alone[: launcher + 1], *many, *alone[script:]]
    alive = os.environ.get("HEARTBEAT")
    return [*words, f"heartbeat={quoted(alive)}"] if alive else words


def command(nodes: list[graph.Node], node: graph.Node) -> list[list[str]]:
    """The command of this pod for `node`, one of the Job's `nodes`; none where it has no part."""
    if node.kind == "train":
        return [training(node)]
    if node.kind != "evaluate":
        return [node.command(None)]
    index, parts = number("JOB_COMPLETION_INDEX", 0), number("PARTS", 1)
    grids = [len(grid_search.grid_of(cast(EvaluateConfig, other.config))) for other in nodes]
    place = nodes.index(node)
    first = (index - sum(grids[:place])) % parts  # the grids of all nodes are counted through
    return [[*node.command(None), f"part=[{first},{parts}]"]] if first < grids[place] else []


def run_stage(stage: str, config: RunConfig, chosen: list[str]) -> None:
    """Run what this pod has to of `stage`.

    Raises:
        ConfigError: the recipe has no such stage.
        Restart: what the stage reads is not there yet.
    """
    config.cores = config.cores or cores.available()
    nodes = graph.plan(config, chosen)
    mine = [node for node in nodes if node.job == stage]
    if not mine:
        listed = ", ".join(dict.fromkeys(node.job for node in nodes))
        raise ConfigError(f"{stage}: no such stage in recipe {config.recipe.name}; it has {listed}")
    missing = [n.name for n in nodes if n.reason and any(n.name in m.needs for m in mine)]
    if missing:
        # A file system may show another node's rename a little later.
        raise Restart(f"{stage}: inputs are not done: {', '.join(missing)}")
    commands = []
    for node in mine:
        print(f"{node.name}: {node.reason or 'done before'}", flush=True)
        if node.reason is not None:
            commands += command(mine, node)
    for words in commands[:-1]:
        code = subprocess.run(words, check=False).returncode
        if code:
            sys.exit(code if code > 0 else 128 - code)
    if commands:
        os.execv(commands[-1][0], commands[-1])


def main() -> None:
    """The command."""
    stage, *overrides = sys.argv[1:] or [""]
    if stage in ("--help", "-h"):
        print(__doc__, end="")
        return
    words = run_arguments.expand(overrides)

    def start(config: RunConfig) -> None:
        run_stage(stage, config, run_arguments.overrides_of(words))

    entry_point.run("run", RunConfig, start, argv=words)


if __name__ == "__main__":
    main()
