"""Which documents `prepare` left out, and why: the file `_dropped.feather` next to the shards.

Tasks add a row for each to their accounts, and the driver writes the file. Beyond `MOST`, rows with
the lowest hashes are kept: the same ones, whichever tasks they are from.
"""

import heapq
import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa

from pipeline.storage.atomic import atomic_path

FILE = "_dropped.feather"  # in the output folder
FORMAT = "dropped/1"
COLUMNS = ("id", "outcome", "reason")
MOST = 500_000

Row = tuple[str, str, str]  # of `COLUMNS`; no reason: empty


class Dropped(list[Row]):
    """Rows of documents that were left out, at most twice `MOST`."""

    def merge(self, rows: Iterable[Sequence[str]]) -> None:
        """Add rows, as JSON may give them."""
        self += ((name, outcome, reason) for name, outcome, reason in rows)
        if len(self) > 2 * MOST:
            self.trim()

    def trim(self) -> None:
        """Leave the `MOST` rows with the lowest hashes."""
        if len(self) > MOST:
            self[:] = heapq.nsmallest(MOST, self, key=lambda row: (blake2b(as_bytes("\0".join(row))).digest(), row))

    def write(self, folder: Path, documents: int) -> None:
        """Write the file, in the order of ids; `documents` were left out in all."""
        about = {b"dropped": json.dumps({"format": FORMAT, "documents": documents}).encode()}
        schema = pa.schema([(name, pa.string()) for name in COLUMNS], about)
        rows = sorted((name.encode("utf-8", "backslashreplace"), *rest) for name, *rest in self)
        columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
        batch = pa.record_batch([pa.array(values, pa.string()) for values in columns], schema=schema)
        with atomic_path(folder / FILE) as path, pa.ipc.new_file(str(path), schema) as file:
            file.write_batch(batch)


def as_bytes(name: str) -> bytes:
    """Return an id as bytes: those of files need not be valid text."""
    return name.encode("utf-8", "surrogatepass")


def from_bytes(name: bytes) -> str:
    """Return the id that `as_bytes` was given."""
    return name.decode("utf-8", "surrogatepass")
