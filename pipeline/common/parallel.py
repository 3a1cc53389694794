"""Several requests at a time."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = 8  # requests at a time

Item = TypeVar("Item")


def each(work: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Call `work` with every item, several at a time; raise the first error."""
    listed = list(items)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="store") as pool:
        for _ in (pool.map if len(listed) > 1 else map)(work, listed):  # an error cancels what has not begun
            pass
