"""A stage that resumes and is forced starts over once.

The same command, repeated after an interruption, continues: a file next to the folder that a forced
start has emptied says so, until a finished stage is forced again.
"""

import shutil
from pathlib import Path

FORCED = ".forced"


def start_over(folder: Path) -> None:
    """Empty the folder that a stage resumes from, unless a forced start has done so before."""
    if _marker(folder).exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _marker(folder).touch()


def began(out: Path) -> bool:
    """Return whether a forced start has emptied a folder in `out`."""
    return any(out.rglob(f".*{FORCED}"))


def forget(out: Path) -> None:
    """Let the next forced start of a finished stage start over."""
    for marker in out.rglob(f".*{FORCED}"):
        marker.unlink()


def _marker(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{FORCED}")
