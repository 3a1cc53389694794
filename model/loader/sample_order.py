"""Order of samples: a pure function from the global sample index to a row.

Epoch `index // N` visits the N rows once: shards in a keyed order, split into windows of
consecutive shards, and within a window all its rows in a keyed order. The number of consumed
samples therefore determines the position of training for any world size and micro-batch.
"""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pipeline.common import counter_rng
from pipeline.common.counter_rng import Ints
from pipeline.common.ranges import bounds_of


@dataclass(frozen=True)
class Span:
    """Consecutive samples whose rows are shuffled together, and the shards that contain them."""

    first: int  # global sample index of its first row
    last: int  # one past its last
    shards: Ints  # (S,) its shards, concatenated in this order

    def __contains__(self, index: int) -> bool:
        return self.first <= index < self.last


@dataclass(frozen=True)
class Window(Span):
    """A span with the order of its rows."""

    order: Ints  # (last-first,) permutation of the rows
    following: Ints  # shards of the next window; empty at the end of an epoch


@dataclass(frozen=True)
class Order:
    """Order of all rows in all epochs; `shuffle=False` keeps file order."""

    rows: Ints  # (S,) rows of each shard
    seed: int
    window_rows: int  # approximate number of rows shuffled together
    shuffle: bool

    @property
    def samples(self) -> int:
        """Return the rows in all shards, the samples of an epoch."""
        return int(self.rows.sum())

    def window(self, index: int) -> Window:
        """Return the window of a global sample index, a pure function."""
        epoch, window, span, following = self._locate(index)
        order = self._permutation(span.last - span.first, "rows", epoch, window)
        return Window(**vars(span), order=order, following=following)

    def spans(self, index: int) -> Iterator[Span]:
        """Yield the spans from that of a global sample index on, without end."""
        while True:
            span = self._locate(index)[2]
            yield span
            index = span.last

    def _locate(self, index: int) -> tuple[int, int, Span, Ints]:
        """Return the epoch of a sample, the number of its window, its span, and the next shards."""
        epoch, position = divmod(index, self.samples)
        shards = self._permutation(len(self.rows), "shards", epoch)
        ends = np.cumsum(self.rows[shards])
        starts = ends - self.rows[shards]
        windows = starts // self.window_rows  # ascending: the window of each shard
        # Empty shards share their start with the next one: take the last one that starts here.
        window = int(windows[np.searchsorted(starts, position, side="right") - 1])
        low, high = np.searchsorted(windows, window), np.searchsorted(windows, window, side="right")
        # A shard larger than a window leaves gaps in the numbers.
        after = np.searchsorted(windows, windows[high:][:1], side="right").max(initial=high)
        first, last = int(starts[low]), int(ends[high - 1])
        before = epoch * self.samples
        span = Span(first=before + first, last=before + last, shards=shards[low:high])
        return epoch, window, span, shards[high:after]

    def _permutation(self, n: int, purpose: str, *parts: int) -> Ints:
        if not self.shuffle:
            return np.arange(n)
        return counter_rng.permutation(counter_rng.key(self.seed, purpose, *parts), n)


@dataclass(frozen=True)
class Mixture:
    """Mixture of several sources by weight, a pure function of the global sample index.

    Sources alternate as evenly as possible: among any first n samples, each source has its share to
    within the number of sources. No random draws, hence no state.
    """

    shares: tuple[int, ...]

    PARTS: ClassVar = 1_000_000  # resolution of the shares

    @classmethod
    def by_weight(cls, weights: Sequence[float]) -> "Mixture":
        """Return a mixture with shares proportional to `weights`, rounded to millionths."""
        total = sum(weights)
        return cls(tuple(max(1, round(weight / total * cls.PARTS)) for weight in weights))

    def before(self, index: int) -> list[int]:
        """Return how many of the first `index` samples are from each source."""
        counts, left = [], sum(self.shares)
        for share in self.shares:
            counts.append(index * share // left)
            index, left = index - counts[-1], left - share
        return counts

    def place(self, source: int, number: int) -> int:
        """Return the global index of sample `number` of a source."""
        total, share = sum(self.shares), self.shares[source]
        after = (number + 1 + len(self.shares)) * total // share + 1
        return bisect.bisect_right(range(after), number, key=lambda index: self.before(index + 1)[source])

    def sources(self, start: int, stop: int) -> Ints:
        """Return the source of each of the samples `start` to `stop - 1`: `(stop-start,)`."""
        source = np.empty(stop - start, np.int64)
        position, left = np.arange(stop - start), sum(self.shares)
        for number, share in enumerate(self.shares):
            totals = np.arange(start, stop + 1) * share // left  # of the remaining samples, (n+1,)
            chosen = np.diff(totals) > 0
            source[position[chosen]] = number
            position = position[~chosen]
            start, stop, left = start - int(totals[0]), stop - int(totals[-1]), left - share
        return source

    def once(self, samples: Sequence[int]) -> int:
        """Return how many samples fit before a source of `samples` samples repeats."""
        total = sum(self.shares)
        count = min(n * total // share for n, share in zip(samples, self.shares, strict=True))
        while any(used > n for used, n in zip(self.before(count), samples, strict=True)):
            count -= 1
        return count


def even_cuts(sizes: Ints, parts: int) -> Ints:
    """Split items into `parts` runs with sums of `sizes` as equal as possible.

    `(n,)` -> boundaries of the runs, `(parts + 1,)`, from 0 to n. No run is empty unless
    n < `parts`.
    """
    count = len(sizes)
    step: Ints = np.arange(parts + 1)
    if count < parts:
        return count * step // parts
    ends = bounds_of(sizes)
    goals = ends[-1] * step // parts
    cuts: Ints = np.searchsorted(ends, goals)
    cuts -= (cuts > 0) & (goals - ends[cuts - 1] < ends[cuts] - goals)  # the nearer end
    cuts = np.maximum.accumulate(cuts - step) + step  # at least one item per run,
    last: Ints = np.minimum(cuts, count - parts + step)  # and enough for the later runs
    return last
