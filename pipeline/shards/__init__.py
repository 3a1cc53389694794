"""The shard format: the only contract between `pipeline` and `model`.

A shard is an uncompressed Arrow IPC file with exactly one record batch. A reader maps it into
memory and sees each column as one contiguous buffer:

    input_ids       list<uint16>, or list<uint32> if 16 bits are too few: segment A, then
                    segment B, without [CLS] and [SEP]
    a_len           uint16: tokens of segment A
    is_random_next  bool: B does not follow A (with `sop`: A follows B)

Masks are not stored: they are drawn when a batch is made. The schema's metadata holds `ShardInfo`
as JSON under the key `shard`.

Shards with marked words have the format shard/2: the top bit of an id is set if its token continues
the word of the token before it; the other bits are the id.
"""

import dataclasses
import json
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.errors import InputError, first_line
from pipeline.records.manifest import Manifest
from pipeline.records.metrics import CorpusCounts, ShardCounts
from pipeline.storage.atomic import atomic_path

Tokens = npt.NDArray[Any]  # uint16 or uint32
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.integer[Any]]

FORMATS = ("shard/1", "shard/2")  # plain ids; ids with a word bit
KEY = b"shard"
SPLITS = ("train", "validation")


class Columns:
    """Base of dataclasses whose fields are arrays `(N,)`: rows of a table."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(**{name: column[rows] for name, column in vars(self).items()})

    @classmethod
    def concatenate(cls, parts: list[Self]) -> Self:
        """Concatenate the rows of `parts`, in order; a single part is not copied."""
        if len(parts) == 1:
            return parts[0]
        return cls(*map(np.concatenate, zip(*(vars(part).values() for part in parts), strict=True)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardInfo:
    """Metadata of a shard."""

    split: str  # train or validation
    pairs: str  # nsp: B is next or random; sop: next or swapped with A; none: only A
    tokenizer: str  # sha256 of tokenizer.json
    vocab_size: int
    sequence_length: int  # maximum, with [CLS] and two [SEP]
    seed: int
    words: str | None = None  # segmenter that marked the words; None: not marked

    @property
    def format(self) -> str:
        """Return the name of the format, which tells a reader whether it can read the shard."""
        return FORMATS[self.words is not None]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of a stored id, including the word bit."""
        values = self.vocab_size << (self.words is not None)
        return np.dtype(np.uint16 if values <= 2**16 else np.uint32)

    @property
    def word_bit(self) -> int:
        """Return the bit of a stored id that marks words; 0: none."""
        return 0 if self.words is None else 1 << (8 * self.dtype.itemsize - 1)

    def marked(self, ids: Tokens, goes_on: Flags) -> Tokens:
        """Return ids as stored; `goes_on`: the token continues a word; both `(T,)`."""
        stored = ids.astype(self.dtype)
        stored[goes_on] |= self.dtype.type(self.word_bit)
        return stored

    def as_json(self) -> str:
        """Return the metadata as JSON, without keys that the format does not have."""
        fields = {"format": self.format, **dataclasses.asdict(self)}
        if self.words is None:
            del fields["words"]
        return json.dumps(fields, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> "ShardInfo":
        """Parse a shard's metadata.

        Raises:
            ValueError, TypeError, KeyError: it is invalid, or of an unsupported format.
        """
        fields = dict(json.loads(text))
        name = fields.pop("format")
        if name not in FORMATS:
            raise ValueError(f"format {name} is not supported, only {' and '.join(FORMATS)}")
        info = cls(**fields)
        if info.format != name or not isinstance(info.words, str | None):
            raise ValueError(f"words={info.words!r} is invalid in {name}")
        return info


class Shard:
    """A memory-mapped shard; data is neither copied nor read before it is used."""

    def __init__(self, path: Path, info: ShardInfo, batch: pa.RecordBatch):
        self.path, self.info, self._batch = path, info, batch
        self.rows: int = batch.num_rows
        ids = batch.column("input_ids")
        # (rows+1,) int32 into `values`
        self.offsets: npt.NDArray[np.int32] = np.frombuffer(ids.buffers()[1], np.int32)[: self.rows + 1]
        # (tokens,) uint16 or uint32, the concatenated ids of all rows, with the word bit
        self.values: Tokens = ids.values.to_numpy(zero_copy_only=True)
        self.tokens = len(self.values)
        # (rows,) uint16
        self.a_len: npt.NDArray[np.uint16] = batch.column("a_len").to_numpy(zero_copy_only=True)

    def ids(self, low: int, high: int) -> Tokens:
        """Return the ids of tokens `low` to `high - 1`, without the word bit."""
        stored = self.values[low:high]
        return stored & (self.info.word_bit - 1) if self.info.word_bit else stored

    def read_ahead(self) -> None:
        """Ask the system to read the file from disk sequentially."""
        if hasattr(os, "posix_fadvise"):
            with self.path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    @cached_property
    def is_random_next(self) -> Flags:
        """Return the flags `(rows,)` bool."""
        flags: Flags = self._batch.column("is_random_next").to_numpy(zero_copy_only=False)
        return flags


def schema(info: ShardInfo) -> pa.Schema:
    """Return the Arrow schema of a shard."""
    return pa.schema(
        [
            pa.field("input_ids", pa.list_(pa.from_numpy_dtype(info.dtype)), nullable=False),
            pa.field("a_len", pa.uint16(), nullable=False),
            pa.field("is_random_next", pa.bool_(), nullable=False),
        ],
        metadata={KEY: info.as_json()},
    )


def write_shard(
    path: Path, info: ShardInfo, values: Tokens, offsets: Integers, a_len: Integers, is_random_next: Flags
) -> None:
    """Write a shard atomically.

    `values` `(tokens,)` ids as returned by `ShardInfo.marked`, `offsets` `(rows+1,)` into it,
    `a_len` and `is_random_next` `(rows,)`. The bytes are a function of the arguments.
    """
    assert offsets[-1] == len(values) < 2**31, "a shard must have fewer than 2**31 tokens"
    ids = pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), pa.array(values, type=pa.from_numpy_dtype(info.dtype))
    )
    columns = [ids, pa.array(a_len.astype(np.uint16)), pa.array(is_random_next)]
    batch = pa.record_batch(columns, schema=schema(info))
    with (
        atomic_path(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, batch.schema) as writer,
    ):
        writer.write_batch(batch)


def open_shard(path: Path | str) -> Shard:
    """Map a shard into memory.

    Raises:
        InputError: the file is missing, truncated, or not a shard of a supported format.
    """
    path = Path(path)
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        metadata = (reader.schema.metadata or {}).get(KEY)
        if metadata is None:
            raise InputError("is an Arrow file, but not a shard", path=path)
        info = ShardInfo.from_json(metadata)
        if reader.num_record_batches != 1 or not reader.schema.equals(schema(info)):
            raise InputError(f"does not have the columns of {info.format}", path=path)
        batch = reader.get_batch(0)
        batch.validate()
        shard = Shard(path, info, batch)
        _check_rows(shard, batch)
        return shard
    except FileNotFoundError as error:
        raise InputError("shard not found", path=path) from error
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"not a readable shard ({first_line(error)}); run prepare again", path=path) from error


def _check_rows(shard: Shard, batch: pa.RecordBatch) -> None:
    """Raise ValueError unless every row is a range of ids with at least `a_len` tokens."""
    lengths = np.diff(shard.offsets)  # Arrow has looked at the first and the last offset
    if any(column.null_count for column in batch.columns):
        raise ValueError("rows have null values")
    if (lengths < 0).any():
        raise ValueError("row offsets are out of range")
    if (shard.a_len > lengths).any():
        raise ValueError("segment A is longer than its row")


def open_folder(folder: Path | str, split: str) -> list[Shard]:
    """Open the shards of a split, sorted by name.

    Raises:
        InputError: none are found, one is broken, or their metadata differ.
    """
    paths = sorted(Path(folder).glob(f"{split}-*.arrow"))
    if not paths:
        cure = "run python -m pipeline.prepare first, or set data.dir"
        if any(Path(folder).glob("*.arrow")):
            cure = f"run prepare again with a {'smaller' if split == 'train' else 'larger'} validation_share"
        raise InputError(f"no {split} shards found; {cure}", path=folder)
    shards = [open_shard(path) for path in paths]
    for shard in shards:
        if shard.info != shards[0].info:
            raise InputError(
                f"metadata differs from {paths[0].name}; a folder must contain the shards of one prepare run",
                path=shard.path,
            )
    return shards


def words_per_token(shards: Sequence[Shard]) -> npt.NDArray[np.float64] | None:
    """Return the words of the text for each stored id of every shard `(N,)`.

    None where a folder was made before `prepare` counted them, or has no manifest.
    """
    counted: dict[Path, dict[str, ShardCounts]] = {}
    ratios = []
    for shard in shards:
        folder = shard.path.parent
        if folder not in counted:
            manifest = Manifest.read(folder, of_input=True)
            counted[folder] = CorpusCounts.of(manifest).shards if manifest is not None else {}
        counts = counted[folder].get(shard.path.name)
        if counts is None or counts.words is None:
            return None
        ratios.append(counts.words / max(shard.tokens, 1))
    return np.array(ratios, np.float64)
