"""`deepspeed model/train.py`: pre-train BERT with DeepSpeed ZeRO, on one CPU or many GPU nodes.

The only state of a run is a count of samples and what a checkpoint holds: order, masks and dropout
are functions of (seed, position). A killed run starts again with the same command and goes on.
"""

import functools
import sys
from pathlib import Path
from typing import NoReturn

# A script's own folder heads the path; the packages are one level up.
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
from pipeline.common.errors import Exit
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


def main() -> NoReturn:
    """The command."""
    rank_record.begin_rank()
    try:
        entry_point.run("train", TrainConfig, train, argv=launcher_arguments(sys.argv[1:]))
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
    """Run the stage: rank 0 keeps its books, the others only train."""
    from model.training import trainer

    fingerprint, sources = fingerprints.fingerprint("train", config)
    make = functools.partial(trainer.make, fingerprint=fingerprint)
    if int(os.environ.get("RANK", "0")) == 0:
        legacy = fingerprints.legacy_fingerprint("train", config, sources)
        trainer.adopt(Path(config.out), legacy, fingerprint)
        stage.run("train", config, make, in_place=True)
    elif stage.current("train", config) is None:
        make(config, Path(config.out))


if __name__ == "__main__":
    main()
