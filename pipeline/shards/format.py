"""The shard format: the one contract between `pipeline` and `model`.

A shard is an uncompressed Arrow IPC file with exactly one record batch, so that a reader maps it
into memory and sees each column as one contiguous buffer:

    input_ids       list<uint16>, or list<uint32> where 16 bits are too few: segment A, then
                    segment B, without [CLS] and [SEP]
    a_len           uint16: tokens of segment A
    is_random_next  bool: B is not what follows A (of `sop`: A is what follows B)

Masks are not in it: they are drawn when a batch is made. The schema's metadata holds `ShardInfo`
as JSON under the key `shard`.

Where the words of the text are marked, the format is shard/2: the top bit of an id says that its
token goes on with the word of the token before it, and the other bits are the id.
"""

import dataclasses
import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.common.atomic import atomic_path
from pipeline.common.errors import InputError, first_line
from pipeline.common.manifest import Manifest

FORMATS = ("shard/1", "shard/2")  # ids alone; ids with a bit that marks words
KEY = b"shard"
SPLITS = ("train", "validation")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardInfo:
    """What a shard says of itself."""

    split: str  # train or validation
    pairs: str  # nsp: B is next or random; sop: next or swapped with A; none: A alone
    tokenizer: str  # sha256 of tokenizer.json
    vocab_size: int
    sequence_length: int  # longest, with [CLS] and two [SEP]
    seed: int
    words: str | None = None  # what found the words that are marked; None: they are not

    @property
    def format(self) -> str:
        """Its name, by which a reader knows whether it can read it."""
        return FORMATS[self.words is not None]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of a token id as it is stored, with the bit that marks words."""
        values = self.vocab_size << (self.words is not None)
        return np.dtype(np.uint16 if values <= 2**16 else np.uint32)

    @property
    def word_bit(self) -> int:
        """The bit of a stored id that marks words; 0: none."""
        return 0 if self.words is None else 1 << (8 * self.dtype.itemsize - 1)

    def marked(self, ids: npt.NDArray[Any], goes_on: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        """Ids as they are stored: `goes_on` is whether each goes on with a word; both `(T,)`."""
        stored = ids.astype(self.dtype)
        stored[goes_on] |= self.dtype.type(self.word_bit)
        return stored

    def as_json(self) -> str:
        """What the shard's metadata says; a key that the format does not know is left out."""
        fields = {"format": self.format, **dataclasses.asdict(self)}
        if self.words is None:
            del fields["words"]
        return json.dumps(fields, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> "ShardInfo":
        """From what a shard's metadata says.

        Raises:
            ValueError, TypeError, KeyError: it is not that of a shard that this code reads.
        """
        fields = dict(json.loads(text))
        name = fields.pop("format")
        if name not in FORMATS:
            raise ValueError(f"format {name}, this code reads {' and '.join(FORMATS)}")
        info = cls(**fields)
        if info.format != name or not isinstance(info.words, str | None):
            raise ValueError(f"words {info.words!r} in {name}")
        return info


class Shard:
    """A shard in mapped memory; nothing is copied and nothing is read before it is used."""

    def __init__(self, path: Path, info: ShardInfo, batch: pa.RecordBatch):
        self.path, self.info, self._batch = path, info, batch
        self.rows: int = batch.num_rows
        ids = batch.column("input_ids")
        # (rows+1,) int32 into `values`
        self.offsets: npt.NDArray[np.int32] = _view(ids.buffers()[1], np.int32)[: self.rows + 1]
        # (tokens,) uint16 or uint32, the ids of all rows end to end, with the bit that marks words
        self.values: npt.NDArray[Any] = ids.values.to_numpy(zero_copy_only=True)
        # (rows,) uint16
        self.a_len: npt.NDArray[np.uint16] = batch.column("a_len").to_numpy(zero_copy_only=True)

    def ids(self, low: int, high: int) -> npt.NDArray[Any]:
        """The ids of tokens `low` to `high - 1`, without the bit that marks words."""
        stored = self.values[low:high]
        return stored & (self.info.word_bit - 1) if self.info.word_bit else stored

    @cached_property
    def is_random_next(self) -> npt.NDArray[np.bool_]:
        """`(rows,)` bool."""
        flags: npt.NDArray[np.bool_] = self._batch.column("is_random_next").to_numpy(
            zero_copy_only=False
        )
        return flags


def _view(buffer: pa.Buffer, dtype: Any) -> npt.NDArray[Any]:
    return np.frombuffer(buffer, dtype)


def schema(info: ShardInfo) -> pa.Schema:
    """The Arrow schema of a shard."""
    return pa.schema(
        [
            pa.field("input_ids", pa.list_(pa.from_numpy_dtype(info.dtype)), nullable=False),
            pa.field("a_len", pa.uint16(), nullable=False),
            pa.field("is_random_next", pa.bool_(), nullable=False),
        ],
        metadata={KEY: info.as_json()},
    )


def write_shard(
    path: Path,
    info: ShardInfo,
    values: npt.NDArray[Any],
    offsets: npt.NDArray[np.integer[Any]],
    a_len: npt.NDArray[np.integer[Any]],
    is_random_next: npt.NDArray[np.bool_],
) -> None:
    """Write a shard; it gets its name when it is whole.

    `values` `(tokens,)` ids as `ShardInfo.marked` has them, `offsets` `(rows+1,)` into it, `a_len`
    and `is_random_next` `(rows,)`. The bytes are a function of the arguments.
    """
    assert offsets[-1] == len(values) < 2**31, "a shard holds less than 2**31 tokens"
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
        InputError: it is missing, cut short, or not a shard of this format.
    """
    path = Path(path)
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        metadata = (reader.schema.metadata or {}).get(KEY)
        if metadata is None:
            raise InputError(f"{path}: an Arrow file, but not a shard")
        info = ShardInfo.from_json(metadata)
        if reader.num_record_batches != 1 or not reader.schema.equals(schema(info)):
            raise InputError(f"{path}: not the columns of {info.format}")
        batch = reader.get_batch(0)
        batch.validate()
        shard = Shard(path, info, batch)
        _check_rows(shard, batch)
        return shard
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such shard") from error
    except (
        pa.ArrowException, OSError, ValueError, TypeError, KeyError, RecursionError,
    ) as error:  # fmt: skip
        raise InputError(
            f"{path}: not a readable shard ({first_line(error)}); prepare it again"
        ) from error


def _check_rows(shard: Shard, batch: pa.RecordBatch) -> None:
    """Raise unless every row is a range of ids, the first `a_len` of them segment A's.

    Raises:
        ValueError: the file is sound, but what it says is not.
    """
    lengths = np.diff(shard.offsets)
    if any(column.null_count for column in batch.columns):
        raise ValueError("rows without a value")
    if (lengths < 0).any() or shard.offsets[0] < 0 or shard.offsets[-1] > len(shard.values):
        raise ValueError("rows that are not within its ids")
    if (shard.a_len > lengths).any():
        raise ValueError("rows with a longer segment A than they are")


def open_folder(folder: Path | str, split: str) -> list[Shard]:
    """The shards of a split, by name.

    Raises:
        InputError: there are none, one is broken, or they do not belong together.
    """
    paths = sorted(Path(folder).glob(f"{split}-*.arrow"))
    if not paths:
        mend = "run python -m pipeline.prepare first, or set data.dir"
        if any(Path(folder).glob("*.arrow")):
            mend = "prepare again with a greater validation_share"
        raise InputError(f"{folder}: no {split} shards; {mend}")
    shards = [open_shard(path) for path in paths]
    for shard in shards:
        if shard.info != shards[0].info:
            raise InputError(
                f"{shard.path}: made otherwise than {paths[0].name}; do not mix folders"
            )
    return shards


def words_per_token(shards: list[Shard]) -> npt.NDArray[np.float64] | None:
    """Return the words of the text for each stored id of every shard `(N,)`.

    None where a folder was made before `prepare` counted them, or has no manifest.
    """
    counted: dict[Path, dict[str, Any]] = {}
    found = []
    for shard in shards:
        folder = shard.path.parent
        if folder not in counted:
            made = Manifest.read(folder)
            counted[folder] = made.figures.get("shards", {}) if made is not None else {}
        words = counted[folder].get(shard.path.name, {}).get("words")
        if words is None:
            return None
        found.append(words / max(len(shard.values), 1))
    return np.array(found, np.float64)
