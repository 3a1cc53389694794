"""What a rank leaves for `model.launch`: its process id at first, its exit code at last."""

import os
from pathlib import Path

from pipeline.common.atomic import atomic_path

RANKS = "TRAIN_RANKS"  # environment: folder where this node's ranks leave their ids and exit codes


def begin_rank() -> None:
    """Leave this rank's process id, where `model.launch` asked for it."""
    if RANKS in os.environ:
        _leave("pid", os.getpid())


def end_rank(code: int) -> None:
    """Leave how this rank ended, where `model.launch` asked for it."""
    if RANKS in os.environ:
        _leave("code", code)


def _leave(kind: str, number: int) -> None:
    path = Path(os.environ[RANKS], f"rank-{os.environ.get('RANK', '0')}.{kind}")
    with atomic_path(path) as temporary:
        temporary.write_text(str(number))
