"""Search folders for files, following links; anything unreadable is an error.

`Path.rglob` and `glob.glob` skip unreadable folders, broken links and (`rglob`) links to folders,
so a part of a data set would silently be missing.
"""

import contextlib
import errno
import fnmatch
import glob
import os
from collections.abc import Iterator
from pathlib import Path

from pipeline.common.errors import InputError

# A folder in the root of a file system that only root can read.
_LOST = "lost+found"


def is_folder(path: Path) -> bool:
    """Return whether `path` is a folder.

    Raises:
        InputError: a parent folder is not readable.
    """
    with _readable(path):
        return path.is_dir()


def files_below(top: Path) -> list[Path]:
    """List all files below a folder, following links, in no particular order.

    A file or folder reached by several links is listed once. Hidden ones (`.name`) are left out.

    Raises:
        InputError: a folder is not readable, or a link is broken.
    """
    found = []
    for folder in _folders(top):
        for entry in _entries(folder):
            with _readable(Path(entry.path)):
                if entry.is_file():
                    found.append(Path(entry.path))
                elif entry.is_symlink():
                    _check_link(Path(entry.path))
    return found


def files_matching(pattern: str) -> list[Path]:
    """List the files that match a pattern of `glob.glob` with `recursive=True`, sorted.

    Raises:
        InputError: a folder on the way is not readable, or a matching link is broken.
    """
    whole = Path(pattern)
    with _readable(whole):
        if whole.is_file():  # the name itself may contain wildcards
            return [whole]
    return sorted(set(_expand(Path(whole.anchor), whole.parts[bool(whole.anchor) :])))


def _expand(folder: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files below `folder` that match the parts of a pattern."""
    if not parts:
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        if is_folder(folder):
            for inner in _folders(folder):
                yield from _expand(inner, rest or ("*",))
        return
    if not glob.has_magic(part):
        names = [part]
    elif is_folder(folder):
        entries = _entries(folder, hidden=part.startswith("."))
        names = [entry.name for entry in entries if fnmatch.fnmatch(entry.name, part)]
    else:
        names = []
    for path in (folder / name for name in names):
        if rest:
            yield from _expand(path, rest)
            continue
        with _readable(path):
            if path.is_file():
                yield path
            elif path.is_symlink():
                _check_link(path)


def _folders(top: Path) -> Iterator[Path]:
    """Yield `top` and all folders below it once, under the real path rather than a link's."""
    seen: set[tuple[int, int]] = set()
    linked = [top]
    while linked:
        linked.sort(reverse=True)
        waiting = [linked.pop()]
        while waiting:
            folder = waiting.pop()
            with _readable(folder):
                status = folder.stat()
                identity = status.st_dev, status.st_ino
                if identity in seen:
                    continue
                seen.add(identity)
                inner = [entry for entry in _entries(folder) if entry.is_dir()]
            yield folder
            linked += (Path(entry.path) for entry in inner if entry.is_symlink())
            waiting += (Path(entry.path) for entry in inner if not entry.is_symlink())


def _entries(folder: Path, hidden: bool = False) -> Iterator["os.DirEntry[str]"]:
    with _readable(folder), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and not hidden:
                continue
            if entry.name == _LOST and not os.access(entry.path, os.R_OK | os.X_OK):
                continue
            yield entry


def _check_link(path: Path) -> None:
    """Raise InputError if a link is broken."""
    if not path.exists():
        target = os.readlink(path)
        raise InputError(
            f"{path}: link to {target}, which does not exist; restore it or delete the link",
            path=path,
        )


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Convert an OSError raised in the body to an InputError."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        reason = (error.strerror or "unknown error").lower()
        cure = "; change its permissions or move it away"
        allowed = error.errno not in (errno.EACCES, errno.EPERM)
        raise InputError(
            f"{where}: cannot be read ({reason})" + ("" if allowed else cure), path=where
        ) from error
