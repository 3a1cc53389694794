"""What benchmarks have in common: processor time, which other load hardly affects, and tables."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call and its CPU seconds."""
    began = time.process_time()
    result = work()
    return result, time.process_time() - began


def heading(columns: str) -> str:
    """Return the first two lines of a table, whose columns `|` divides; numbers stand to the right."""
    return f"| {columns} |\n|---|{'---:|' * columns.count('|')}"
