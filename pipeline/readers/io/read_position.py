"""Read position of a task within its split, for progress displays.

Readers report positions; a task subscribes with `followed`. Tasks may be threads of one process,
so the subscription is thread-local.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

from pipeline.readers import FileRange

_thread = threading.local()


@contextlib.contextmanager
def followed(split: FileRange, listener: Callable[[int], None]) -> Iterator[None]:
    """Within the body, call `listener` with the number of bytes of `split` read so far."""
    _thread.split, _thread.listener = split, listener
    try:
        yield
    finally:
        _thread.split = _thread.listener = None


def reached(split: FileRange, position: int) -> None:
    """Report that `split` was read up to byte `position` of its file."""
    if getattr(_thread, "split", None) == split:
        _thread.listener(min(max(position, split.start), split.end) - split.start)
