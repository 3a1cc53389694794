"""One rank of a training: `deepspeed model/train.py` starts many, `python -m pipeline.train` one.

The only state of a run is its sample count and its checkpoint: order, masks and dropout are
functions of (seed, position). Rerun the same command to resume a killed run.
"""

import argparse
import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

if not __package__:  # run as a script: the packages are one level above its folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from model.config import TrainConfig
from model.resilience import rank_record
from pipeline.cli import entry_point
from pipeline.common.schema import check
from pipeline.errors import ConfigError, Exit
from pipeline.stages import fetch_inputs, fingerprints, stage


def launcher_arguments(argv: list[str]) -> list[str]:
    """Return the arguments without the launchers' `--local_rank=N`, which Hydra rejects."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--local_rank", "--local-rank")
    return parser.parse_known_args(argv)[1]


def main(task: Callable[[TrainConfig], None] | None = None) -> NoReturn:
    """Run `task`, or this rank's training, with the configuration of the command line."""
    rank_record.begin_rank()
    try:
        words = launcher_arguments(sys.argv[1:])
        entry_point.run("train", TrainConfig, task or train, words, rank_record.is_first)
    except SystemExit as left:
        rank_record.end_rank(int(left.code or 0))
        if left.code in (Exit.RESTART, Exit.USER):
            # Exit handlers could wait forever for lost ranks, and running threads of the process
            # group could abort, which would change the exit code.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(int(left.code))
        raise
    except BaseException:
        rank_record.end_rank(Exit.BUG)
        raise


def rank_and_world(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return this rank and the number of ranks, by the variables of a launcher.

    Raises:
        ConfigError: they do not fit each other.
    """
    cure = "start training by a launcher, or unset it"
    found = {name: environment.get(name, usual) for name, usual in (("WORLD_SIZE", "1"), ("RANK", "0"))}
    for name, value in found.items():
        check(value.isdecimal(), f"must be a number; {cure}", name, value)
    rank, size = int(found["RANK"]), int(found["WORLD_SIZE"])
    others = ("RANK", "MASTER_ADDR", "MASTER_PORT") if size > 1 else ()
    missing = [name for name in others if name not in environment]
    check(not missing, f"is set without {', '.join(missing)}; {cure}", "WORLD_SIZE", size)
    check(rank < size, f"is not below WORLD_SIZE={size}; {cure}", "RANK", rank)
    return rank, size


def train(config: TrainConfig) -> None:
    """Run the stage: rank 0 also writes the manifest.

    Raises:
        ConfigError: the launcher's variables do not fit each other, or `processes`.
    """
    rank, world = rank_and_world(os.environ)
    if config.processes not in (None, world):
        raise ConfigError(
            f"does not match the launcher's {world} ranks; unset it (for a run, set processes= instead of "
            "train.processes=)",
            "processes",
            config.processes,
        )
    import torch

    if not torch.cuda.is_available():  # else DeepSpeed warns in every process
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from model.training import estimate, extending, trainer

    identity = fingerprint, sources = fingerprints.fingerprint("train", config)
    store = fetch_inputs.checkpoint_store(config)
    addresses = fetch_inputs.shard_addresses(config)
    common = fingerprints.partial_fingerprint(config, sources, extending.independent_keys(config))
    make = functools.partial(trainer.train, fingerprint=fingerprint, common=common, store=store, addresses=addresses)
    if rank == 0:
        stage.run("train", config, make, in_place=True, uploads=store, identity=identity)
        estimate.remember(config)
    elif config.force or fingerprints.recognise("train", config, *identity) is None:
        local = fetch_inputs.localise("train", config)
        make(local, Path(local.out))


if __name__ == "__main__":
    main()
