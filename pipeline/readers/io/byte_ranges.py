"""Many small files treated as one long file, cut by byte ranges into parts of even size.

A range owns the files that begin in it: whatever the cut, each file is in exactly one part.
"""

import bisect
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from pipeline.common import counter_rng
from pipeline.errors import InputError
from pipeline.readers.base import FileRange, ReadLog
from pipeline.storage import places

Item = TypeVar("Item")
Marked = tuple[Item, str, int]  # an item, a word that changes when it does, and its size


def stamp(marks: Iterable[str]) -> str:
    """Return a hash of the items' marks, to detect changes."""
    return hashlib.blake2b("\0".join(marks).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def cut(path: str, items: Iterable[Marked[Item]], split_bytes: int, *, loose: bool = False) -> list[FileRange]:
    """Cut items, concatenated under one name, into file ranges of about `split_bytes`.

    `loose` items come and go, one by one: a file range ends where the mark of one says so, see `firsts`.
    """
    listed = list(placed(items))
    total = listed[-1][-1] if listed else 0
    starts: Sequence[int] = range(0, total, split_bytes)
    if loose:
        chosen = firsts(((mark, end - begin) for _, mark, begin, end in listed), split_bytes)
        starts = [listed[k][2] for k in chosen]
    begins = [begin for _, _, begin, _ in listed]
    ranges = []
    for start, end in itertools.pairwise([*starts, total]):
        mine = listed[bisect.bisect_left(begins, start) : bisect.bisect_left(begins, end)]
        ranges.append(FileRange(path, start, end, stamp(mark for _, mark, _, _ in mine), items=len(mine)))
    return ranges


def even(path: str, numbers: Sequence[int]) -> list[Marked[int]]:
    """Return parts of a file, known by numbers, as if they were equally large."""
    mark, size = places.mark_and_size(places.at(path))
    return [(number, f"{mark}\x1f{number}", max(1, size // len(numbers))) for number in numbers]


def placed(items: Iterable[Marked[Item]]) -> Iterator[tuple[Item, str, int, int]]:
    """Yield each item with its mark, where it begins, and where it ends."""
    begin = 0
    for item, mark, size in items:
        end = begin + max(size, 1)  # an empty file needs a position of its own
        yield item, mark, begin, end
        begin = end


def items_in_range(items: Iterable[Marked[Item]], file_range: FileRange, log: ReadLog) -> Iterator[Item]:
    """Yield the items that begin in the file range.

    Raises:
        InputError: they are not those that began there when the file range was cut.
    """
    mine = [each for each in placed(items) if file_range.start <= each[2] < file_range.end]
    if file_range.stamp and file_range.stamp != stamp(mark for _, mark, _, _ in mine):
        raise InputError("files were changed during the run; rerun the command", path=file_range.path)
    for item, _, begin, _ in mine:
        log.reached(file_range, begin)
        yield item


def firsts(sizes: Iterable[tuple[str, float]], least: int) -> list[int]:
    """Return where parts of neighbours begin; `sizes` are by the neighbours' names.

    A part has the size `least`, and ends where the hash of a name says so, or at twice as much:
    soon after a neighbour that is new, parts are those that there were without it.
    """
    chosen: list[int] = []
    held, ended = 0.0, True
    for index, (name, size) in enumerate(sizes):
        if ended:
            chosen.append(index)
            held = 0.0
        held += size
        by_chance = int(counter_rng.number_of(name)) / 2**64 * least < 2 * size
        ended = held >= 2 * least or (held >= least and by_chance)
    return chosen
