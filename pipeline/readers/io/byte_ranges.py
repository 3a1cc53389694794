"""Many small files as one long one, so that byte ranges cut them into parts of even size.

A range owns the files that begin in it: whatever the cut, each file is in one part.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pipeline.common.errors import InputError
from pipeline.readers import FileRange
from pipeline.readers.io import read_position

Item = TypeVar("Item")


def stamp(sizes: list[int]) -> str:
    """What tells whether things of these sizes are still the same."""
    return hashlib.blake2b(repr(sizes).encode(), digest_size=8).hexdigest()


def cut(path: str, sizes: Iterable[int], split_bytes: int) -> list[FileRange]:
    """Splits of `split_bytes` each over things of these sizes, laid end to end under one name."""
    sizes = list(sizes)
    total, mark = sum(max(size, 1) for size in sizes), stamp(sizes)
    bounds = [*range(0, total, split_bytes), total]
    return [FileRange(path, start, end, mark) for start, end in itertools.pairwise(bounds)]


def items_in_range(items: Iterable[tuple[Item, int]], split: FileRange) -> Iterator[Item]:
    """Those of the things (with their sizes) that begin in the split.

    Raises:
        InputError: the things are not those that were there when the split was cut, so that what
            begins where has changed.
    """
    items, begin = list(items), 0
    if split.stamp and split.stamp != stamp([size for _, size in items]):
        raise InputError(f"{split.path}: files there were changed during the run; start it again")
    for item, size in items:
        if split.start <= begin < split.end:
            read_position.reached(split, begin)
            yield item
        begin += max(size, 1)  # an empty file begins somewhere too
