"""Standard output and standard error that survive the loss of their reader, without secrets.

`train | head -3`, a killed ssh or a closed terminal leave a pipe or terminal without a reader.
By default the next `print` would raise an error and end hours of work.
"""

import errno
import io
import os
import re
import sys
from typing import Any, TextIO, cast

from pipeline.console.redact import redact

_BARS = re.compile("(\r|\x1b\\[(?:K|A|[01]?m))")
GONE = (errno.EPIPE, errno.EIO, errno.ENXIO)  # a pipe without a reader, a closed terminal
FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk of a file


class _Shown(io.TextIOWrapper):
    """A text stream without secrets and orders to a terminal, also those of a traceback."""

    def write(self, text: str) -> int:
        """Write text as `redact` shows it, with what bars and bold headings consist of."""
        parts = _BARS.split(text)
        parts[::2] = map(redact, parts[::2])
        super().write("".join(parts))
        return len(text)


class _Unfiltered:
    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        return io.TextIOWrapper.write(self._stream, text)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def unfiltered(stream: TextIO) -> TextIO:
    """Return a stream for our own bars and colours, whose words were redacted before."""
    return cast(TextIO, _Unfiltered(stream)) if isinstance(stream, io.TextIOWrapper) else stream


class _Lasting(io.FileIO):
    """A file descriptor that becomes the null device when its reader is gone, or its disk full."""

    gone = full = False

    def write(self, data) -> int:  # type: ignore[no-untyped-def]
        """Write, or discard the data."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in GONE + FULL:
                raise
            self.gone, self.full = True, error.errno in FULL
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())  # C++ libraries write to the descriptor itself
        os.close(null)
        return memoryview(data).nbytes


_lasting: dict[int, _Lasting] = {}


def outlive_readers() -> None:
    """Keep this process running when standard output or error can no longer be written."""
    if sys.stdout is sys.__stdout__:
        sys.stdout = sys.__stdout__ = _replace(sys.stdout, 1)  # type: ignore[misc, assignment]
    if sys.stderr is sys.__stderr__:
        sys.stderr = sys.__stderr__ = _replace(sys.stderr, 2)  # type: ignore[misc, assignment]


def is_gone() -> bool:
    """Return whether standard output has lost its reader."""
    return 1 in _lasting and _lasting[1].gone


def is_full() -> bool:
    """Return whether a part of standard output found no space."""
    sys.stdout.flush()
    return 1 in _lasting and _lasting[1].full


def _replace(stream: TextIO | None, descriptor: int) -> TextIO:
    """Return a copy of `stream` that discards data without a reader; None is a closed stream."""
    if stream is None:  # `>&-`
        return open(os.devnull, "w", encoding="utf-8")
    if descriptor in _lasting or not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    _lasting[descriptor] = raw = _Lasting(stream.fileno(), "w", closefd=False)
    # With `python -u` the text layer writes to the descriptor directly, without a buffer.
    return _Shown(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace" if stream.errors in (None, "", "strict") else stream.errors,
        line_buffering=stream.line_buffering or descriptor == 2,
        write_through=stream.write_through,
    )
