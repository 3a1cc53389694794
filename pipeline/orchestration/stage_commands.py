"""The command lines of stages, which read their settings from the record of their run."""

import subprocess
import sys
from pathlib import Path

from model.config import TrainConfig
from pipeline.cli.overrides import Words
from pipeline.common import cores
from pipeline.common.ports import free_port
from pipeline.orchestration.run_plan import ROOT, StageRecord
from pipeline.records import run_file
from pipeline.stages.registry import NODES, STAGES, placement_of

# Words after `python` that start a stage on another machine; RUN/run.json#STAGE follows.
ELSEWHERE = ["-m", "pipeline.orchestration.run_stage", run_file.OPTION]


def count_ranks(node: StageRecord, processes: int | None, most: int | None = None) -> int | None:
    """Return the training ranks on this machine, `processes` if set; None: one per GPU.

    `most` is the number of cores that they may share; None: all.
    """
    assert isinstance(node.config, TrainConfig)
    return processes or node.config.ranks(cores.gpus_present(), most or cores.available())


def stage_command(
    node: StageRecord, record: str, processes: int | None = None, most: int | None = None, options: Words | None = None
) -> Words:
    """Return the command line of a stage, whose settings are in the file `record`.

    `options` are the launcher's, of a training on other machines too; None: on this one.
    """
    settings = [run_file.OPTION, f"{record}#{node.name}"]
    if placement_of(node.kind) != NODES:
        return [sys.executable, "-m", STAGES[node.kind].script, *settings]
    script = ROOT / STAGES[node.kind].script
    if options is None:
        options = local_options(count_ranks(node, processes, most))
    return [*launch_command(script, options), *settings]


def run(words: Words) -> int:
    """Run a command; return its exit code, that of a signal as shells say it."""
    code = subprocess.run(words, check=False).returncode
    return 128 - code if code < 0 else code


def local_options(ranks: int | None) -> Words:
    """Return the launcher's options for `ranks` ranks on this machine; None: one per GPU."""
    count = ["--num_accelerators", str(ranks)] if ranks else []
    return [*count, "--master_port", str(free_port())]  # the default is the same for every job


def launch_command(script: Path | str, options: Words) -> Words:
    """Return the command that starts ranks of a script.

    DeepSpeed's launcher alone neither forwards signals nor always reports its ranks' exit codes.
    """
    deepspeed = Path(sys.executable).with_name("deepspeed")
    return [sys.executable, "-m", "model.launch", str(deepspeed), *options, str(script)]
