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


def remember(out: Path, run: str) -> None:
    """Mark what was fetched of a forced start; `run` names the folder of a training."""
    for folder in (out / "checkpoints" / run, out / "runs"):
        if folder.is_dir():
            _marker(folder).touch()


def forget(out: Path) -> None:
    """Let the next forced start of a finished stage start over."""
    for marker in out.rglob(f".*{FORCED}"):
        marker.unlink()


def _marker(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{FORCED}")
