"""Files of a rank for `model.launch`: its process id, then its exit code; what ranks have said."""

import contextlib
import hashlib
import os
from pathlib import Path

from model.distributed.environment import LAUNCHER, RANKS
from pipeline.storage.atomic import atomic_path


def variables(folder: Path) -> dict[str, str]:
    """Return the environment of ranks that this process starts."""
    return {RANKS: str(folder), LAUNCHER: str(os.getpid())}


def begin_rank() -> None:
    """Write this rank's process id, if started by `model.launch`.

    torchrun may start it again: then it is one that has not ended.
    """
    if RANKS in os.environ:
        _path("code").unlink(missing_ok=True)
        _leave("pid", os.getpid())


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that has ended may wait for its parent to look."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def is_orphan() -> bool:
    """Return whether the `model.launch` that started this rank has been killed."""
    launcher = os.environ.get(LAUNCHER, "")
    return launcher.isdecimal() and not is_running(int(launcher))


def end_rank(code: int) -> None:
    """Write this rank's exit code, if started by `model.launch`."""
    if RANKS in os.environ:
        _leave("code", code)


def is_first(line: str) -> bool:
    """Return whether no other rank of this node has asked for a line; without a launcher, True."""
    if RANKS not in os.environ:
        return True
    name = f"said-{hashlib.sha256(line.encode()).hexdigest()[:16]}"
    try:
        Path(os.environ[RANKS], name).touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:  # the launcher is gone
        pass
    return True


def _leave(kind: str, number: int) -> None:
    with atomic_path(_path(kind)) as temporary:
        temporary.write_text(str(number))


def _path(kind: str) -> Path:
    return Path(os.environ[RANKS], f"rank-{os.environ.get('RANK', '0')}.{kind}")
