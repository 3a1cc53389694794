"""The shuffle of documents from reading tasks to writing tasks; its cost grows only with the corpus.

A task has a fixed cost, however little text it gets. Neighbouring small splits are therefore read
by one task, and neighbouring small buckets written by one, so that a task has `runner.task_bytes`
of text or more. With few tasks, each reading task leaves one part of documents per writing task.
With many, such parts would have a few bytes, and their number would be reading times writing
tasks. Then a reading task leaves one part per *range* of writing tasks, and a step between the
phases merges one range of one *group* of reading tasks into one part per writing task. Merged
parts have `MERGED_BYTES` on average: their number is proportional to the size of the corpus. Ranges
and groups are balanced so that both steps read equally often.

A task that reads more than a *batch* of tokens, as from a compressed file, which cannot be cut,
leaves one part per range for each batch. Merging tasks write in batches too: no task holds more
than a batch, or the shards that it writes.

A task writes blocks and sends references: into files of the folder of `out`, or carried by the engine.
Each attempt of a task has a file of its own, so that a reference never names the bytes of another.
The file is whole when the task has ended: only what is behind a GroupByKey may read it. Documents are
an Arrow stream, compressed by lz4.
"""

import contextlib
import dataclasses
import itertools
import math
import secrets
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa

from pipeline.common.batching import batches
from pipeline.common.ranges import bounds_of
from pipeline.config import PrepareConfig

DIRECT = 2**14  # largest product of reading and writing tasks without a merge step
MERGED_BYTES = 64 * 2**20  # text per merged part; its task needs a few times that in memory

BUFFERED = 2**24  # tokens of a batch, at least
PER_TOKEN = 4  # bytes of text, rounded down

SUBTASK_BYTES = 128 * 2**20  # text whose tokens an engine may hold in its heap: 60 MB
MOST_SUBTASKS = 2048

NEAR_BYTES = 16 * 2**20  # text whose documents a task that finds near duplicates has, at least
NEAR_PARTS = 4  # merged parts that it has, at least


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShuffleLayout:
    """Mapping from documents to parts."""

    buckets: int
    reads: int  # reading tasks
    writes: int  # writing tasks
    ranges: int  # of writing tasks; equals `writes` without a merge step
    groups: int  # of reading tasks; equals `reads` without a merge step
    batches: int  # of all reading tasks, about; equals `reads` if each has only one
    text: float = 0.0  # bytes

    @classmethod
    def choose(cls, reads: int, buckets: int, text: float, task_bytes: int, batches: int = 0) -> "ShuffleLayout":
        """Return the layout for a corpus of `text` bytes: a function of the arguments only."""
        batches = max(reads, batches)
        writes = min(buckets, max(1, int(text // task_bytes)))
        ranges, groups = writes, reads
        if batches * writes > DIRECT:
            parts = max(1.0, text / MERGED_BYTES)
            ranges = min(writes, max(1, round(math.sqrt(parts * writes / batches))))
            groups = min(reads, max(1, math.ceil(parts / ranges)))
        return cls(
            buckets=buckets, reads=reads, writes=writes, ranges=ranges, groups=groups, batches=batches, text=text
        )

    @property
    def merges(self) -> bool:
        """Return whether a merge step runs between the phases."""
        return self.batches * self.writes > DIRECT

    @property
    def subtasks(self) -> int:
        """Return how many a phase is for an engine that holds the output of a subtask."""
        return min(max(self.reads, self.writes), MOST_SUBTASKS, math.ceil(self.text / SUBTASK_BYTES))

    @property
    def near_tasks(self) -> int:
        """Return the number of tasks of each step that finds near duplicates.

        Every reading task may send a part to each of them.
        """
        tasks = min(self.writes, max(1, int(self.text // NEAR_BYTES)))
        if not self.merges:
            return tasks
        return min(tasks, max(1, DIRECT // self.reads, self.groups * self.ranges // NEAR_PARTS))

    def group(self, read: int) -> int:
        """Return the group of a reading task."""
        return read * self.groups // self.reads

    def first_place(self, read: int) -> int:
        """Return the number of the task that gets a reading task's documents of the first range."""
        return self.group(read) * self.ranges if self.merges else 0

    def first_write(self, index: int) -> int:
        """Return the first writing task of a range; `index=ranges` gives the number of tasks."""
        return -(-index * self.writes // self.ranges)

    def first_bucket(self, write: int) -> int:
        """Return the first bucket of a writing task; `write=writes` gives the number of buckets."""
        return -(-write * self.buckets // self.writes)

    def write_of(self, bucket: int) -> int:
        """Return the writing task of a bucket."""
        return bucket * self.writes // self.buckets

    @property
    def range_bounds(self) -> list[int]:
        """Return the first bucket of each range, and the number of buckets."""
        return [self.first_bucket(self.first_write(k)) for k in range(self.ranges + 1)]

    def write_bounds(self, index: int) -> list[int]:
        """Return the first bucket of each writing task of a range, and the end of the last one."""
        low, high = self.first_write(index), self.first_write(index + 1)
        return [self.first_bucket(write) for write in range(low, high + 1)]


def batch_tokens(config: PrepareConfig) -> int:
    """Return the tokens of a batch: those of a shard, which a task holds later, or more."""
    return max(BUFFERED, config.shard_bytes // PER_TOKEN)


BlockRef = bytes | tuple[str, int, int]  # the blob; or its file, where it starts there, and its size
Block = tuple[str, int, int, int, BlockRef]  # kind, task that left it, number within that, piece, content

Blocks = Iterable[Block]

ENDING = ".parts"
ALIGNED = 64  # bytes: numbers are mapped
PIECE = 2**20  # bytes of a value that an engine carries: Flink sorts in buffers of a few MB, which hold whole values


class ShuffleWriter(contextlib.ExitStack):
    """The blobs of a task; `folder` is None where the engine carries them, in pieces."""

    def __init__(self, folder: Path | None, piece: int = PIECE):
        super().__init__()
        self.piece = piece
        self.path = None if folder is None else folder / f"{secrets.token_hex(8)}{ENDING}"
        self.file: BinaryIO | None = None

    def put(self, blob: bytes | pa.Buffer) -> list[BlockRef]:
        """Leave a blob; return the tokens of its pieces."""
        if self.path is None:
            return [bytes(blob[start : start + self.piece]) for start in range(0, max(len(blob), 1), self.piece)]
        if self.file is None:
            self.file = self.enter_context(self.path.open("wb"))
        start = self.file.tell()
        self.file.write(blob)
        self.file.write(bytes(-len(blob) % ALIGNED))
        return [(self.path.name, start, len(blob))]


def read_blocks(folder: Path, parts: Blocks, kind: str) -> Iterator[pa.Buffer]:
    """Yield the blobs of one kind in the order of the tasks that left them, whatever that of `parts`.

    A retried task may have left some twice.
    """
    token_of = {(task, number, piece): token for each, task, number, piece, token in parts if each == kind}
    files: dict[str, pa.Buffer] = {}
    for _, places in itertools.groupby(sorted(token_of), itemgetter(0, 1)):
        tokens = [token_of[place] for place in places]
        if isinstance(tokens[0], bytes):
            yield pa.py_buffer(b"".join(cast(list[bytes], tokens)))
            continue
        name, start, size = tokens[0]
        if name not in files:
            with pa.memory_map(str(folder / name)) as file:
                files[name] = file.read_buffer()
        yield files[name].slice(start, size)


def nested(ids: np.ndarray, lengths: np.ndarray, counts: np.ndarray) -> pa.ListArray:
    """Nest `ids` as list<list<...>>: `lengths` of sentences, `counts` of sentences per document."""

    def offsets(sizes: np.ndarray) -> pa.Array:
        return pa.array(bounds_of(sizes).astype(np.int32))

    return pa.ListArray.from_arrays(offsets(counts), pa.ListArray.from_arrays(offsets(lengths), pa.array(ids)))


def token_count(table: pa.Table) -> int:
    """Return the number of tokens of a table's documents."""
    return sum(len(ids.flatten().flatten()) for ids in table["ids"].chunks)


def token_counts(documents: pa.ListArray) -> np.ndarray:
    """Return the number of tokens of each document of a nested array, `(D,)` int64."""
    bounds = documents.values.offsets.to_numpy()[documents.offsets.to_numpy()]
    counts: np.ndarray = np.diff(bounds).astype(np.int64)
    return counts


def take(documents: pa.ListArray, order: np.ndarray) -> pa.ListArray:
    """Return the documents at the places `order` `(K,)` of a nested array.

    A document's ids are copied as one string of bytes; Arrow's own `take` of nested lists copies
    one by one, which takes twenty times as long.
    """
    sentences = documents.values
    places = documents.offsets.to_numpy()
    offsets = sentences.offsets.to_numpy()
    counts = np.diff(places)[order]
    lengths = _rows(np.diff(offsets), places, order)
    return nested(_rows(sentences.values.to_numpy(), offsets[places], order), lengths, counts)


def _rows(values: np.ndarray, bounds: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return `values[bounds[k] : bounds[k + 1]]` of each k in `order`, one after another."""
    offsets = bounds.astype(np.int64) * values.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    rows = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
    taken = rows.take(pa.array(order))
    _, ends, data = taken.buffers()
    return np.frombuffer(data, values.dtype, np.frombuffer(ends, np.int64)[len(taken)] // values.itemsize)


OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def in_batches(tables: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    """Return the documents of all tables, in batches of about `most` tokens."""
    return map(pa.concat_tables, batches(filter(len, tables), most + 1, token_count))


def by_bucket(table: pa.Table, bounds: list[int]) -> Iterator[tuple[int, pa.Buffer]]:
    """Yield k and the packed documents of buckets `bounds[k]` to `bounds[k + 1]`, where there are any.

    One copy sorted by bucket is sliced into parts: for small parts, a copy of each would cost
    more than its bytes.
    """
    bucket = table["bucket"].to_numpy()
    order = np.argsort(bucket, kind="stable")
    places = np.searchsorted(bucket[order], bounds)
    place = table.column_names.index("ids")
    ids = take(table["ids"].combine_chunks(), order)
    rest = table.remove_column(place).take(pa.array(order))
    (batch,) = rest.add_column(place, "ids", ids).combine_chunks().to_batches()
    for k, (low, high) in enumerate(itertools.pairwise(places)):
        if low < high:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema, options=OPTIONS) as writer:
                writer.write_batch(batch.slice(low, high - low))
            yield k, sink.getvalue()


def unpack_block(blob: pa.Buffer) -> pa.Table:
    """Return the documents of a blob."""
    return pa.ipc.open_stream(blob).read_all()
