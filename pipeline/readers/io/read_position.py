"""How far a task has read its part of the corpus, for whoever shows it.

Readers say it where they read; a task that wants to hear it says so beforehand. Tasks may be
threads of one process, so each thread has its own.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

from pipeline.readers import FileRange

_thread = threading.local()


@contextlib.contextmanager
def followed(split: FileRange, listener: Callable[[int], None]) -> Iterator[None]:
    """Have `listener` called with the bytes of `split` that were read so far, within the body."""
    _thread.split, _thread.listener = split, listener
    try:
        yield
    finally:
        _thread.split = _thread.listener = None


def reached(split: FileRange, position: int) -> None:
    """Say that `split` was read up to byte `position` of its file."""
    if getattr(_thread, "split", None) == split:
        _thread.listener(min(max(position, split.start), split.end) - split.start)
