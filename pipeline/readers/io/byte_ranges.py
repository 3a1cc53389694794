"""Many small files treated as one long file, cut by byte ranges into parts of even size.

A range owns the files that begin in it: whatever the cut, each file is in exactly one part.
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
    """Return a hash of the items' sizes, to detect changes."""
    return hashlib.blake2b(repr(sizes).encode(), digest_size=8).hexdigest()


def cut(path: str, sizes: Iterable[int], split_bytes: int) -> list[FileRange]:
    """Cut items of these sizes, concatenated under one name, into splits of `split_bytes`."""
    sizes = list(sizes)
    total, mark = sum(max(size, 1) for size in sizes), stamp(sizes)
    bounds = [*range(0, total, split_bytes), total]
    return [FileRange(path, start, end, mark) for start, end in itertools.pairwise(bounds)]


def items_in_range(items: Iterable[tuple[Item, int]], split: FileRange) -> Iterator[Item]:
    """Yield the items (given with their sizes) that begin in the split.

    Raises:
        InputError: the sizes have changed since the split was cut, and with them the positions.
    """
    items, begin = list(items), 0
    if split.stamp and split.stamp != stamp([size for _, size in items]):
        raise InputError("files were changed during the run; rerun the command", path=split.path)
    for item, size in items:
        if split.start <= begin < split.end:
            read_position.reached(split, begin)
            yield item
        begin += max(size, 1)  # an empty file needs a position of its own
