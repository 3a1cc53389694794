"""Batches of texts, or of other things, by their sizes."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")


def batches(items: Iterable[Item], least: int, size: Callable[[Any], int] = len) -> Iterator[list[Item]]:
    """Group items, in order, into lists of at least the size `least`; the last may be smaller."""
    batch: list[Item] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= least:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
