"""The order of samples as arithmetic: which row every global sample index is.

Epoch `index // N` visits the N rows once: shards in a keyed order, cut into windows of consecutive
shards, and within a window all its rows in a keyed order. So one number, the count of samples that
were consumed, says where training is, whatever the world size and the micro-batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pipeline.common import counter_rng

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Window:
    """A run of samples whose rows are shuffled together."""

    first: int  # global sample index of its first row
    last: int  # and one past its last
    shards: Ints  # (S,) the shards that it reads, laid end to end in this order
    order: Ints  # (last-first,) which of their rows comes when
    following: Ints  # the shards of the next window; none at the end of an epoch

    def __contains__(self, index: int) -> bool:
        return self.first <= index < self.last


@dataclass(frozen=True)
class Order:
    """The order of all rows in all epochs; `shuffle=False` takes them as they lie."""

    rows: Ints  # (S,) rows of each shard
    seed: int
    window_rows: int  # about so many rows are shuffled together
    shuffle: bool = True

    @property
    def samples(self) -> int:
        """Rows in all shards: samples of an epoch."""
        return int(self.rows.sum())

    def window(self, index: int) -> Window:
        """The window in which a global sample index falls: a function of its arguments alone."""
        epoch, position = divmod(index, self.samples)
        shards = self._permutation(len(self.rows), "shards", epoch)
        ends = np.cumsum(self.rows[shards])
        starts = ends - self.rows[shards]
        number = starts // self.window_rows  # rising: the window of each shard
        # Empty shards share their start with the next one, so the last that starts here is meant.
        here = int(number[np.searchsorted(starts, position, side="right") - 1])
        low, high = np.searchsorted(number, here), np.searchsorted(number, here, side="right")
        # Numbers may be left out, after a shard larger than a window.
        after = np.searchsorted(number, number[high:][:1], side="right").max(initial=high)
        first, last = int(starts[low]), int(ends[high - 1])
        return Window(
            first=epoch * self.samples + first,
            last=epoch * self.samples + last,
            shards=shards[low:high],
            order=self._permutation(last - first, "rows", epoch, here),
            following=shards[high:after],
        )

    def _permutation(self, n: int, purpose: str, *parts: int) -> Ints:
        if not self.shuffle:
            return np.arange(n)
        return counter_rng.permutation(counter_rng.key(self.seed, purpose, *parts), n)


@dataclass(frozen=True)
class Mixture:
    """Samples from several sources by weight: which one each global sample index falls on.

    Sources take turns as evenly as can be: of any first n samples a source has its share, to within
    one for each source. Nothing is drawn, so nothing is remembered.
    """

    shares: tuple[int, ...]

    PARTS: ClassVar = 1_000_000  # that the samples are shared out in

    @classmethod
    def by_weight(cls, weights: Sequence[float]) -> "Mixture":
        """Shares like `weights`, rounded to millionths."""
        total = sum(weights)
        return cls(tuple(max(1, round(weight / total * cls.PARTS)) for weight in weights))

    def before(self, index: int) -> list[int]:
        """How many of the first `index` samples are from each source."""
        given, left = [], sum(self.shares)
        for share in self.shares:
            given.append(index * share // left)
            index, left = index - given[-1], left - share
        return given

    def sources(self, start: int, stop: int) -> Ints:
        """The source of each of the samples `start` to `stop - 1`: `(stop-start,)`."""
        source = np.empty(stop - start, np.int64)
        place, left = np.arange(stop - start), sum(self.shares)
        for number, share in enumerate(self.shares):
            given = np.arange(start, stop + 1) * share // left  # of what is left over, (n+1,)
            mine = np.diff(given) > 0
            source[place[mine]] = number
            place = place[~mine]
            start, stop, left = start - int(given[0]), stop - int(given[-1]), left - share
        return source

    def once(self, samples: Sequence[int]) -> int:
        """How many samples can be had before a source of so many begins again."""
        total = sum(self.shares)
        count = min(n * total // share for n, share in zip(samples, self.shares, strict=True))
        while any(used > n for used, n in zip(self.before(count), samples, strict=True)):
            count -= 1
        return count


def even_cuts(sizes: Ints, parts: int) -> Ints:
    """Where to cut a row of things into `parts` runs of as equal a sum of `sizes` as can be.

    `(n,)` -> the runs' ends, `(parts + 1,)`, from 0 to n. No run is empty unless n < `parts`.
    """
    count = len(sizes)
    step: Ints = np.arange(parts + 1)
    if count < parts:
        return count * step // parts
    ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    goals = ends[-1] * step // parts
    cuts: Ints = np.searchsorted(ends, goals)
    cuts -= (cuts > 0) & (goals - ends[cuts - 1] < ends[cuts] - goals)  # the nearer end
    cuts = np.maximum.accumulate(cuts - step) + step  # at least one thing a run,
    last: Ints = np.minimum(cuts, count - parts + step)  # and enough left for the later ones
    return last
