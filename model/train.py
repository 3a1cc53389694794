"""One rank of training: `deepspeed model/train.py` starts many, `python -m pipeline.train` one.

The only state of a run is a count of samples and what a checkpoint holds: order, masks and dropout
are functions of (seed, position). A killed run starts again with the same command and goes on.
"""

import dataclasses
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

if not __package__:  # a script's own folder heads the path; the packages are one level up
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import os

os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "warning")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if os.environ.get("TRAIN_GPUS"):
    # With a hostfile deepspeed counts GPUs from 0, also where a scheduler gave others.
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["TRAIN_GPUS"]

from model.config import TrainConfig
from model.resilience import rank_record
from pipeline.cli import entry_point
from pipeline.common.errors import ConfigError, Exit
from pipeline.stages import fingerprints, stage


def launcher_arguments(argv: list[str]) -> list[str]:
    """The command line without what launchers add: `--local_rank=N`, which Hydra would refuse."""
    kept, skip = [], False
    for argument in argv:
        name = argument.partition("=")[0].replace("-", "_")
        if skip:
            skip = False
        elif name == "__local_rank":
            skip = "=" not in argument
        else:
            kept.append(argument)
    return kept


def main(task: Callable[[TrainConfig], None] | None = None) -> NoReturn:
    """Run the command: `task`, or this rank's training, with what the command line says."""
    rank_record.begin_rank()
    try:
        entry_point.run("train", TrainConfig, task or train, argv=launcher_arguments(sys.argv[1:]))
    except SystemExit as left:
        rank_record.end_rank(int(left.code or 0))
        if left.code in (Exit.RESTART, Exit.USER):
            # Other ranks may be lost: what waits for them at exit would wait for ever. And threads
            # of the process group that still run would turn the exit code into that of an abort.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(int(left.code))
        raise
    except BaseException:
        rank_record.end_rank(Exit.BUG)
        raise


def train(config: TrainConfig) -> None:
    """Run the stage: rank 0 writes its manifest, the others only train.

    Raises:
        ConfigError: `processes` is not the number of ranks that the launcher started.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if config.processes not in (None, world):
        raise ConfigError(
            f"processes={config.processes}: the launcher started {world}; leave it out here (of a "
            "run it is processes=, without train.)",
            key="processes",
        )
    silence_deepspeed()
    from model.training import estimate, trainer

    fingerprint, sources = fingerprints.fingerprint("train", config)
    make = functools.partial(trainer.make, fingerprint=fingerprint)
    if int(os.environ.get("RANK", "0")) == 0:
        legacy = fingerprints.legacy_fingerprint("train", as_in_0_1_0(config), sources)
        trainer.adopt(Path(config.out), legacy, fingerprint)
        stage.run("train", config, make, in_place=True)
        estimate.remember(config)
    elif stage.current("train", config) is None:
        make(config, Path(config.out))


def as_in_0_1_0(config: TrainConfig) -> TrainConfig:
    """Return the configuration with the size that release 0.1.0 took where none was chosen."""
    if config.model.name != "auto":
        return config
    base = dataclasses.replace(
        config.model,
        name="base",
        layers=12,
        hidden=768,
        heads=12,
        feed_forward=3072,
        positions=512,
    )
    return dataclasses.replace(config, model=base)


def silence_deepspeed() -> None:
    """Say that there is no GPU where there is none: DeepSpeed would warn in every process."""
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")


if __name__ == "__main__":
    main()
