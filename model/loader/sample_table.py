"""Rows of shards by their position in the order, without their tokens."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from model.config import DataConfig
from model.loader.masking import Masker
from model.loader.sample_order import Order, Span, Window
from pipeline.common import counter_rng
from pipeline.common.counter_rng import Bools, Ints
from pipeline.errors import InputError
from pipeline.shards import Columns, Shard

SCAN = 2**20  # tokens scanned at once
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class SampleTable(Columns):
    """Properties of samples without their tokens; each field `(N,)`, in sample order."""

    shard: npt.NDArray[np.int32]
    start: npt.NDArray[np.int32]  # of segment A in the shard's values
    a_len: npt.NDArray[np.uint16]
    b_len: npt.NDArray[np.uint16]
    maskable: npt.NDArray[np.uint16]  # tokens that are not special: as many can be masked
    is_random_next: Bools

    def text_lengths(self) -> Ints:
        """Return the stored tokens of each sample, those of its text: `(N,)`."""
        return self.a_len.astype(np.int64) + self.b_len

    def lengths(self) -> Ints:
        """Return the tokens of each sample, including special ones: `(N,)`."""
        return self.text_lengths() + 2 + (self.b_len > 0)  # [CLS] A [SEP], B [SEP]


class SampleStream:
    """Rows of some shards by their position in the order."""

    def __init__(self, shards: list[Shard], first: int, order: Order, masker: Masker):
        """Take the shards; rows refer to the first of them by the number `first`."""
        self._shards, self._first, self._order, self._masker = shards, first, order, masker
        self._tables: list[tuple[Window, SampleTable]] = []
        self.samples = order.samples  # of an epoch

    def rows(self, start: int, stop: int) -> SampleTable:
        """Return the rows of samples `start` to `stop - 1`, sliced from their windows' tables."""
        parts = []
        while True:
            window, table = self._table(start)
            parts.append(table[start - window.first : stop - window.first])
            start = window.last
            if start >= stop:
                return SampleTable.concatenate(parts)

    def _table(self, index: int) -> tuple[Window, SampleTable]:
        """Return the window of a sample and its rows in order; caches the last two."""
        for window, table in self._tables:
            if index in window:
                return window, table
        window = self._order.window(index)
        parts = [self._columns(shard) for shard in window.shards.tolist()]
        for shard in window.following:
            self._shards[shard].read_ahead()
        self._tables = [(window, SampleTable.concatenate(parts)[window.order]), *self._tables[:1]]
        return self._tables[0]

    def spans(self, start: int) -> Iterator[Span]:
        """Yield the spans from that of a sample on, with the numbers that rows have for shards."""
        for span in self._order.spans(start):
            yield replace(span, shards=span.shards + self._first)

    def _columns(self, number: int) -> SampleTable:
        """Return all rows of a shard in file order.

        Raises:
            InputError: The columns are inconsistent.
        """
        shard = self._shards[number]
        lengths = np.diff(shard.offsets)
        special = _special_tokens(shard, self._masker)
        b_len = lengths - shard.a_len
        full = lengths + 2 + (b_len > 0)
        if len(full) and (min(lengths.min(), b_len.min()) < 0 or full.max() > shard.info.sequence_length):
            raise InputError("lengths out of range; rerun prepare", path=shard.path)
        return SampleTable(
            shard=np.full(shard.rows, self._first + number, np.int32),
            start=shard.offsets[:-1],
            a_len=shard.a_len,
            b_len=b_len.astype(np.uint16),
            maskable=(lengths - special).astype(np.uint16),
            is_random_next=shard.is_random_next,
        )


def _special_tokens(shard: Shard, masker: Masker) -> Ints:
    """Count the special tokens, mostly [UNK], in the text of each row of a shard: `(rows,)`.

    Raises:
        InputError: An id is outside the vocabulary.
    """
    positions = []
    for low in range(0, len(shard.values), SCAN):
        values = shard.ids(low, low + SCAN)
        if values.max() >= shard.info.vocab_size:
            raise InputError("an id is outside the vocabulary; rerun prepare", path=shard.path)
        positions.append(low + np.flatnonzero(masker.is_special(values)))
    return np.diff(np.searchsorted(np.concatenate([*positions, _NONE]), shard.offsets))


def order_of(shards: list[Shard], data: DataConfig, seed: int, number: int, shuffle: bool) -> Order:
    """Return the order of the rows of a source, the first of which has the seed itself."""
    source_seed = int(counter_rng.key(seed, "source", number)) if number else seed
    return Order(np.array([shard.rows for shard in shards], np.int64), source_seed, data.window_rows, shuffle)
