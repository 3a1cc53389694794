"""Kept reading: what a reading task makes of its splits, next to the folder of `out`.

A unit is what depends neither on the rest of the corpus nor on pairs and shards: tokenized documents,
their MinHash signatures, and counts. Its name is a hash of all that determines it, so the next start
takes it up, whatever is read by its neighbours. It is renamed when it is whole, and its last bytes
are a checksum: what is not as it was written is read again.
"""

import hashlib
import json
import shutil
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.common import parallel
from pipeline.readers import FileRange
from pipeline.storage.atomic import atomic_path
from pipeline.storage.checksums import sha256
from pipeline.storage.stores import objects
from pipeline.storage.strict_json import Json

ENDING = ".unit"
END = struct.Struct("<Q32s")  # bytes of the counts, and the SHA-256 of all before

Splits = list[FileRange]  # of the corpus, or of a task
CachedRead = tuple[dict[str, Any], list[pa.RecordBatch]]  # counts, documents


def entry_name(key: str, splits: Splits) -> str:
    """Return the name of the unit of some splits; `key` is a hash of all else that determines it."""
    text = json.dumps([key, *(split.identity for split in splits)])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32] + ENDING


@dataclass(frozen=True)
class ReadCache:
    """The units of a stage."""

    folder: Path
    address: str  # of the same folder in a store, whose units are there on any machine; or empty

    def names(self) -> set[str]:
        """Return the names of all units."""
        stored = objects.client(self.address).below(self.address) if self.address else []
        names = (info.key.rpartition("/")[2] for info in stored)
        return {*(path.name for path in self.folder.glob(f"*{ENDING}")), *names}

    def write(self, name: str, tables: Iterable[pa.Table], counts: Callable[[], Json]) -> None:
        """Write a unit: documents, and what `counts` returns when `tables` are over."""
        path = self.folder / name
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            writer = None
            for table in tables:
                writer = writer or pa.ipc.new_stream(file, table.schema)  # ids hardly compress
                writer.write_table(table.combine_chunks())
            if writer is not None:
                writer.close()
            end = json.dumps(counts()).encode()
            file.write(end)
            file.flush()
            file.write(END.pack(len(end), bytes.fromhex(sha256(temporary))))
        if self.address:
            objects.client(self.address).put_file(f"{self.address}/{name}", path, sha256(path))

    def read(self, name: str) -> CachedRead | None:
        """Return a unit; None if it is not there, or not as it was written."""
        path = self.folder / name
        if not path.exists() and self.address and (info := objects.client(self.address).head(f"{self.address}/{name}")):
            objects.fetch(f"{self.address}/{name}", info, path, None)
        if not path.exists():
            return None
        with pa.memory_map(str(path)) as file:
            data = file.read_buffer()
        if data.size < END.size:
            return None
        body = data.slice(0, data.size - END.size)
        length, digest = END.unpack(data.slice(body.size))
        if length > body.size or hashlib.sha256(body).digest() != digest:
            return None
        documents = body.slice(0, body.size - length)
        batches = list(pa.ipc.open_stream(documents)) if documents.size else []
        return json.loads(bytes(body.slice(documents.size))), batches

    def remove(self, names: Iterable[str]) -> None:
        """Remove units, here and in the store."""
        if self.address:
            store = objects.client(self.address)
            parallel.each(lambda name: store.delete(f"{self.address}/{name}"), names)
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def remove_all_but(self, names: set[str]) -> int:
        """Remove other units, and the folder if none is left; return the bytes of those that stay."""
        self.remove({*self.names(), *(path.name for path in self.folder.glob("*"))} - names)
        if not names:
            shutil.rmtree(self.folder, ignore_errors=True)
        return sum(path.stat().st_size for path in self.folder.glob("*"))
