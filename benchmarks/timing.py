"""Processor time of what is measured, which other load hardly affects."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call and its CPU seconds."""
    began = time.process_time()
    result = work()
    return result, time.process_time() - began
