"""Many small files as one long one, so that byte ranges cut them into parts of even size.

A range owns the files that begin in it: whatever the cut, each file is in one part.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pipeline.corpora import Split

Item = TypeVar("Item")


def cut(path: str, sizes: Iterable[int], split_bytes: int) -> list[Split]:
    """Splits of `split_bytes` each over things of these sizes, laid end to end under one name."""
    total = sum(max(size, 1) for size in sizes)
    bounds = [*range(0, total, split_bytes), total]
    return [Split(path, start, end) for start, end in itertools.pairwise(bounds)]


def owned(items: Iterable[tuple[Item, int]], split: Split) -> Iterator[Item]:
    """Those of the things (with their sizes) that begin in the split."""
    begin = 0
    for item, size in items:
        if split.start <= begin < split.end:
            yield item
        begin += max(size, 1)  # an empty file begins somewhere too
