"""What became of chosen documents, for `prepare trace=PATTERN`: one JSON line per document.

While a job traces, the files between its phases have three more columns: the id of each document,
its split and its number within the split. Each task adds the records of its documents to its
account, and the driver writes them in the order of the corpus. Shards do not change.
"""

import fnmatch
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.common.atomic import atomic_path
from pipeline.common.errors import InputError
from pipeline.config import PrepareConfig
from pipeline.filtering import filters
from pipeline.readers import FileRange

FILE = "trace.jsonl"  # in the output folder
COLUMNS = ("id", "number", "split")

Ints = npt.NDArray[np.int64]


class Trace:
    """The documents to follow: those that match a pattern, and those of a list."""

    def __init__(self, pattern: str | None, ids: frozenset[str]):
        self.matches = re.compile(fnmatch.translate(pattern)).match if pattern else None
        self.ids = ids

    @classmethod
    def of(cls, config: PrepareConfig) -> "Trace | None":
        """Return the trace that a configuration asks for; None if it asks for none.

        Raises:
            InputError: the file of ids cannot be read.
        """
        if config.trace is None and config.trace_file is None:
            return None
        lines: list[str] = []
        if config.trace_file is not None:
            try:
                text = Path(config.trace_file).read_text(encoding="utf-8-sig")
                lines = [line.strip() for line in text.splitlines()]
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(
                    f"cannot be read ({error}); name a text file with one id per line", "trace_file", config.trace_file
                ) from error
        return cls(config.trace, frozenset(filter(None, lines)))

    def follows(self, name: str) -> bool:
        """Return whether the document of this id is traced."""
        return name in self.ids or (self.matches is not None and self.matches(name) is not None)


def record(name: str, number: int, outcome: str, **more: object) -> dict[str, Any]:
    """Return what became of a document; the task adds its split."""
    return {"id": name, "number": number, "outcome": outcome, **more}


def id_column(ids: Sequence[str]) -> pa.Array:
    """Return ids as bytes: those of files need not be valid text."""
    return pa.array([name.encode("utf-8", "surrogatepass") for name in ids], pa.binary())


@dataclass(frozen=True)
class Origins:
    """Where the documents of a bucket are from: R documents in the order of K hashes."""

    table: pa.Table  # (R,) of `COLUMNS`
    hashes: npt.NDArray[np.uint64]  # (K, 2)
    group: Ints  # (R,) the hash of each document; the first of a hash is the one that is kept
    similar: npt.NDArray[np.uint64]  # (K, 2) hash of the document that it is similar to
    near: npt.NDArray[np.bool_]  # (K,) whether it was left out for that
    named: npt.NDArray[np.bool_]  # (K,) whether a document was left out as similar to it

    def account(self, trace: Trace, shard: str, rows: Callable[[], list[list[int]]]) -> dict[str, Any]:
        """Return the records of traced documents, and ids of documents that others are similar to.

        `rows` returns the rows of the shard that hold text of each document that was written.
        """
        columns = (self.table[name].to_pylist() for name in COLUMNS)
        places = [
            (name.decode("utf-8", "surrogatepass"), number, split) for name, number, split in zip(*columns, strict=True)
        ]
        kept = np.searchsorted(self.group, np.arange(len(self.hashes)))
        written = np.cumsum(~self.near) - 1  # index of each hash among the written documents
        records, rows_of = [], None
        for row, ((name, number, split), group) in enumerate(zip(places, self.group, strict=True)):
            if not trace.follows(name):
                continue
            if row != kept[group]:
                what: dict[str, Any] = {"outcome": "duplicate", "duplicate_of": places[kept[group]][0]}
            elif self.near[group]:
                like = hex_of(self.similar[group])
                what = {"outcome": "filtered", "reason": filters.NEAR, "near_duplicate_of": like}
            else:
                rows_of = rows() if rows_of is None else rows_of
                found = rows_of[written[group]]
                what = {"outcome": "written", "shard": shard if found else None, "rows": found}
            records.append(record(name, number, **what) | {"split": split})
        names = {hex_of(self.hashes[group]): places[kept[group]][0] for group in np.flatnonzero(self.named)}
        return {"traced": records, "names": names}


def hex_of(pair: npt.NDArray[np.uint64]) -> str:
    """Return a hash as text."""
    return f"{int(pair[0]):016x}{int(pair[1]):016x}"


def rows_of_documents(values: Ints, offsets: Ints, count: int) -> list[list[int]]:
    """Return the rows that hold tokens of each of `count` documents.

    `values` has the document of each token, row by row; below 0 there is none.
    """
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    pairs = np.unique(np.stack([values, row])[:, values >= 0], axis=1)
    bounds = np.searchsorted(pairs[0], np.arange(count + 1))
    return [pairs[1, bounds[k] : bounds[k + 1]].tolist() for k in range(count)]


def lines(records: list[dict[str, Any]], names: dict[str, str], splits: list[FileRange]) -> Iterator[bytes]:
    """Yield the lines of the trace, in the order of the corpus."""
    for each in sorted(records, key=lambda found: (found["split"], found["number"])):
        split, number = splits[each["split"]], each["number"]
        place = {"file": split.path, "bytes": [split.start, split.end], "number": number}
        if like := each.get("near_duplicate_of"):
            each["near_duplicate_of"] = names.get(like, like)
        rest = {key: value for key, value in each.items() if key not in ("split", "number", "id")}
        line = json.dumps({"id": each["id"], **place, **rest}, ensure_ascii=False)
        yield line.encode("utf-8", "backslashreplace") + b"\n"


def write(folder: Path, records: list[dict[str, Any]], names: dict[str, str], splits: list[FileRange]) -> None:
    """Write the trace into the output folder."""
    with atomic_path(folder / FILE) as path, path.open("wb") as file:
        file.writelines(lines(records, names, splits))
