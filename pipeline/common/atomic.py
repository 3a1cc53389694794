"""Write files so that a crash leaves the old content or the new, never a part of it."""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `path` when the body ends, and is removed if it raises.

    Its name is unique: attempts that run at the same time never see each other's bytes.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """As `atomic_path`, for a folder that the body makes; a folder that has the name goes."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        while temporary.exists():
            shutil.rmtree(path, ignore_errors=True)
            try:
                temporary.rename(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another one was quicker
                    raise
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_text(path: Path, text: str, mode: int | None = None) -> None:
    """Write a small text file, flushed to the disk before it gets its name.

    `mode` are its permission bits; None leaves them to the umask.
    """
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files and folders that killed processes left in `folder`."""
    for path in folder.glob(".*.tmp"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
