"""Search folders for files, following links; anything unreadable is an error.

What others have named, or linked, is below the folder that it is for.

`Path.rglob` and `glob.glob` skip unreadable folders, broken links and (`rglob`) links to folders,
so a part of a data set would silently be missing.
"""

import fnmatch
import functools
import glob
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pipeline.console import terminal
from pipeline.console.formatting import pluralize
from pipeline.errors import InputError, readable

# A folder that is searched; the links found that lead out of it, None: all links are followed.
_Within = tuple[Path, set[Path] | None]
_Place = Path | os.DirEntry[str]
# A folder in the root of a file system that only root can read.
_LOST = "lost+found"


def inside(folder: Path, name: object, named_by: object) -> Path:
    """Return the path below a folder of a relative name that others chose.

    Raises:
        InputError: the name leads out of the folder; `named_by` is the file or address with it.
    """
    parts = name.split("/") if isinstance(name, str) and "\0" not in name else [""]
    if {"", ".", ".."} & set(parts):
        raise InputError(
            f"names {name!r}, which is not a file below its folder; use what another source has", path=named_by
        )
    return folder.joinpath(*parts)


def leads_out(folder: Path, path: Path) -> bool:
    """Return whether a path leads out of a folder where its links are followed.

    A snapshot of the Hugging Face hub's cache has links to the `blobs` of the same cache.
    """
    top, target = (Path(os.path.realpath(each)) for each in (folder, path))
    blobs = [each.parent / "blobs" for each in (top, *top.parents) if each.name == "snapshots"]
    return not any(map(target.is_relative_to, (top, *blobs)))


@functools.cache
def say_left_out(place: str, links: int) -> None:
    """Say once how many links lead out of a folder that others made."""
    if links:
        said = f"left out {pluralize(links, 'link')} to somewhere outside"
        terminal.say(f"warning: {place}: {said}", sys.stderr)


def visible(folder: Path) -> dict[str, Path]:
    """Return the files below a folder that are not hidden, by relative name, sorted."""
    files = ((path.relative_to(folder).as_posix(), path) for path in sorted(folder.rglob("*")) if path.is_file())
    return {name: path for name, path in files if not hidden(name)}


def hidden(name: str) -> bool:
    """Return whether a relative path is that of a lock or a temporary file."""
    return any(part.startswith(".") for part in name.split("/"))


def is_folder(path: Path) -> bool:
    """Return whether `path` is a folder.

    Raises:
        InputError: a parent folder is not readable.
    """
    with readable(path):
        return path.is_dir()


def files_below(top: Path, left_out: set[Path] | None = None) -> list[Path]:
    """List all files below a folder, following links, in no particular order.

    A file or folder reached by several links is listed once. Hidden ones (`.name`) are left out.
    With `left_out`, links that lead out of the folder are added to it and not followed.

    Raises:
        InputError: a folder is not readable, or a link is broken.
    """
    within = top, left_out
    entries = (entry for folder in _folders(top, within) for entry in _entries(folder))
    return [Path(entry) for entry in entries if not _leaves(entry, within) and _is_file(entry)]


def files_matching(pattern: str, left_out: set[Path] | None = None) -> list[Path]:
    """List the files that match a pattern of `glob.glob` with `recursive=True`, sorted.

    With `left_out`, as `files_below`: the folder is the one before the first wildcard.

    Raises:
        InputError: a folder on the way is not readable, or a matching link is broken.
    """
    whole = Path(pattern)
    with readable(whole):
        if whole.is_file():  # the name itself may contain wildcards
            return [whole]
    named = Path(*itertools.takewhile(lambda part: not glob.has_magic(part), whole.parts))
    return sorted(set(_expand(Path(whole.anchor), whole.parts[bool(whole.anchor) :], (named, left_out))))


def _leaves(place: _Place, within: _Within) -> bool:
    """Return whether a path is a link that leads out of the folder that it is below, and note it if so."""
    top, left_out = within
    path = Path(place)
    if left_out is None or not place.is_symlink() or top not in path.parents or not leads_out(top, path):
        return False
    left_out.add(path)
    return True


def _expand(folder: Path, parts: tuple[str, ...], within: _Within) -> Iterator[Path]:
    """Yield the files below `folder` that match the parts of a pattern."""
    if not parts:
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        if is_folder(folder):
            for inner in _folders(folder, within):
                yield from _expand(inner, rest or ("*",), within)
        return
    names = [part]
    if glob.has_magic(part):
        entries = _entries(folder, hidden=part.startswith(".")) if is_folder(folder) else ()
        names = [entry.name for entry in entries if fnmatch.fnmatch(entry.name, part)]
    for path in (folder / name for name in names):
        if _leaves(path, within):
            continue
        if rest:
            yield from _expand(path, rest, within)
        elif _is_file(path):
            yield path


def _folders(top: Path, within: _Within) -> Iterator[Path]:
    """Yield `top` and all folders below it once, under the real path rather than a link's."""
    seen: set[tuple[int, int]] = set()
    linked = [top]
    while linked:
        linked.sort(reverse=True)
        waiting = [linked.pop()]
        while waiting:
            folder = waiting.pop()
            with readable(folder):
                status = folder.stat()
                identity = status.st_dev, status.st_ino
                if identity in seen:
                    continue
                seen.add(identity)
                inner = [entry for entry in _entries(folder) if entry.is_dir()]
            yield folder
            linked += (Path(entry) for entry in inner if entry.is_symlink() and not _leaves(entry, within))
            waiting += (Path(entry) for entry in inner if not entry.is_symlink())


def _entries(folder: Path, hidden: bool = False) -> Iterator["os.DirEntry[str]"]:
    with readable(folder), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and not hidden:
                continue
            if entry.name == _LOST and not os.access(entry.path, os.R_OK | os.X_OK):
                continue
            yield entry


def _is_file(place: _Place) -> bool:
    """Return whether there is a file; raise InputError if there is a broken link."""
    path = Path(place)
    with readable(path):
        if place.is_symlink() and not path.exists():
            target = os.readlink(path)
            raise InputError(f"link to {target}, which does not exist; restore it or delete the link", path=path)
        return place.is_file()
