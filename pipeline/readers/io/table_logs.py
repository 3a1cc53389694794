"""Tables of many files, of which a log says which still count: Delta Lake is read by it, others are refused.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from unicodedata import normalize
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import InputError
from pipeline.storage import places
from pipeline.storage.places import File
from pipeline.storage.stores import hub

_LOG, _UP = "_delta_log", 4  # columns that files may be partitioned by, above the folder of one
_COMMIT, _CHECKPOINT = re.compile(r"(\d{20})\.json"), re.compile(r"(\d{20})\.checkpoint\.parquet")
_SAVED = "save its rows of today as Parquet files, and read these"
HUDI, ICEBERG = (f"belongs to a table of {name}, which keeps old files; {_SAVED}" for name in ("Hudi", "Iceberg"))


def hidden(place: str, file: File) -> bool:
    """Return whether a file in a folder is none of the table, as Spark and Hive have it: `_temporary`, `.part`."""
    return is_hidden(places.name_below(places.at(place), file))


def is_hidden(name: str) -> bool:
    """Return whether a name below a folder, or in an archive, is of such a file."""
    return any(part.startswith(("_", ".")) and "=" not in part for part in name.split("/"))


def live(found: list[File], listed: list[File], place: str) -> list[File]:
    """Return the files of tables that count today; `listed` are all of the folder `place`; of a pattern, none.

    Raises:
        InputError: a table is of another kind or lacks a file, or its log cannot be read.
    """
    # Whole paths: `.` may be within a table.
    whole = {file: file.absolute() if isinstance(file, Path) else file for file in (*listed, *found)}
    within = {str(whole[file].parent.parent) for file in listed if file.parent.name in (_LOG, "metadata")}
    local = [whole[file].parent for file in found if isinstance(file, Path)]  # a store takes its time to answer
    roots = within | {str(folder) for parent in set(local) for folder in _upwards(parent)}
    top = places.at(place)
    asked = [*_composed(top.absolute() if isinstance(top, Path) else top).split("/"), *(["**"] if listed else [])]
    if found and isinstance(found[0], places.Remote) and not listed and not str(found[0]).startswith(hub.SCHEME):
        roots |= {str(folder) for folder in _upwards(found[0].parent)[:2]}
    for root in sorted(roots):
        if places.is_folder(places.at(f"{root}/{_LOG}")):
            current, below = {_composed(f"{root}/{name}") for name in _current(root)}, _composed(f"{root}/")
            lost = current.difference(map(_composed, whole.values()))
            if lost := {one for one in lost if places.fits(one.split("/"), asked) and not places.at(one).is_file()}:
                raise InputError(f"this Delta table lacks {min(lost)}, which its log has; {_SAVED}", path=root)
            found = [one for one in found if not (name := _composed(whole[one])).startswith(below) or name in current]
        elif places.is_folder(places.at(f"{root}/metadata")) and places.matching(f"{root}/metadata/*.metadata.json"):
            raise InputError(ICEBERG, path=root)
        elif places.is_folder(places.at(f"{root}/.hoodie")):  # its files may lack the columns that say it
            raise InputError(HUDI, path=root)
    return found


def _composed(name: object) -> str:
    """Return a path as a log has it: a copy from another system may have its letters in two parts."""
    return normalize("NFC", str(name))


def _upwards(folder: File) -> list[File]:
    folders = [folder]
    while len(folders) <= _UP and (up := folders[-1].parent) != folders[-1] and not str(up).endswith("/"):
        folders.append(up)
    return folders


def _current(root: str) -> set[str]:
    """Return the names below `root` of the files that the log of a Delta table has added and not removed."""
    logged = places.below(places.at(f"{root}/{_LOG}"))
    commits = {int(one[1]): file for file in logged if (one := _COMMIT.fullmatch(file.name))}
    checkpoints = {int(one[1]): file for file in logged if (one := _CHECKPOINT.fullmatch(file.name))}
    start, names = max(checkpoints, default=-1), set[str]()
    wanted = range(start + 1, max(commits, default=start) + 1)
    if (missing := set(wanted) - set(commits)) or (start < 0 and not commits):
        raise InputError(f"the log of this Delta table lacks version {min(missing, default=0)}; {_SAVED}", path=root)
    try:
        if start >= 0:
            for row in _rows(checkpoints[start]):
                _apply(row, names)
        for version in wanted:
            for line in commits[version].read_bytes().splitlines():
                if line.strip():
                    _apply(json.loads(line), names)
    except (ValueError, OSError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise InputError(f"the log of this Delta table cannot be read ({error}); {_SAVED}", path=root) from error
    return names


def _rows(checkpoint: File) -> Iterator[dict[str, Any]]:
    with checkpoint.open("rb") as source:
        for batch in pq.ParquetFile(source).iter_batches(1000):
            yield from batch.to_pylist()


def _apply(row: dict[str, Any], names: set[str]) -> None:
    """Add or remove the file of an entry of a log.

    Raises:
        ValueError: its table is of a kind that this does not read.
    """
    added, removed, about = row.get("add"), row.get("remove"), row.get("metaData")
    if row.get("sidecar") or (added and (added.get("deletionVector") or ":/" in added["path"])):
        raise ValueError("it has deletion vectors, sidecars or files elsewhere")
    if about and dict(about.get("configuration") or {}).get("delta.columnMapping.mode", "none") != "none":
        raise ValueError("its columns have other names in its files")
    if added:
        names.add(PurePosixPath(unquote(added["path"])).as_posix())
    if removed:
        names.discard(PurePosixPath(unquote(removed["path"])).as_posix())
