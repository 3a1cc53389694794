"""Sample of a corpus's text in a temporary file, for several passes in constant memory.

Texts are kept in pieces: consecutive documents, or one long document. Most splits contribute their
first pieces. A compressed file is one split of any size: it is read to its end and contributes the
pieces with the smallest keyed random numbers.
"""

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from pipeline.common import counter_rng, storage
from pipeline.common.batching import batches
from pipeline.common.errors import InputError
from pipeline.readers import FileRange
from pipeline.readers.io import compressed
from pipeline.readers.io.archives import TARS
from pipeline.text import clean

PIECE = 64 * 2**10  # minimum characters of a piece, except for the last one of a split
_BETWEEN = "\0"  # separates the documents of a piece; does not occur in cleaned text


class TextSample:
    """Cleaned documents, possibly truncated, in corpus order."""

    def __init__(self, folder: Path | None = None):
        """Create the temporary file in `folder`; None: the system's temporary folder."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (lives as long as this)
        self._pieces: list[tuple[int, int]] = []  # offset and size in bytes
        self.bytes = 0
        self.splits = 0  # sampled

    def __iter__(self) -> Iterator[str]:
        for start, size in self._pieces:
            self._file.seek(start)
            # Drops a character cut in two at the end.
            text = self._file.read(size).decode("utf-8", "ignore")
            yield from filter(None, text.split(_BETWEEN))

    def add_beginning(self, texts: Iterable[str], most: int) -> int:
        """Add the first `most` bytes of raw texts and return the number added."""
        before = self.bytes
        for piece in batches(texts, PIECE):
            start, size = self._write(piece)
            missing = most - (self.bytes - before)
            self._keep([(start, min(size, missing))])
            if size >= missing:
                break
        return self.bytes - before

    def add_drawn(self, texts: Iterable[str], most: int, key: np.uint64) -> int:
        """Add `most` bytes drawn from all raw texts and return the number added."""
        kept: list[tuple[float, int, int]] = []  # heap of negated random numbers: largest first
        total = 0
        for number, piece in enumerate(batches(texts, PIECE)):
            drawn = -float(counter_rng.uniform(key, number))
            if total >= most and drawn < kept[0][0]:
                continue
            start, size = self._write(piece)
            heapq.heappush(kept, (drawn, start, size))
            total += size
            while total - kept[0][2] >= most:
                total -= heapq.heappop(kept)[2]
        if total > most:
            drawn, start, size = kept[0]
            kept[0] = drawn, start, size - (total - most)
        self._keep(sorted((start, size) for _, start, size in kept))
        return min(total, most)

    def _write(self, texts: list[str]) -> tuple[int, int]:
        """Append a piece; return its offset and size in bytes."""
        cleaned = filter(None, map(clean.clean, texts))
        start = self._file.seek(0, 2)
        return start, self._file.write(_BETWEEN.join(cleaned).encode())

    def _keep(self, pieces: list[tuple[int, int]]) -> None:
        self._pieces += (piece for piece in pieces if piece[1])
        self.bytes += sum(size for _, size in pieces)


def is_uncut(split: FileRange) -> bool:
    """Return whether the split is a whole compressed file or tar archive.

    False for unreadable files; their reader reports the error.
    """
    try:
        file = storage.at(split.path)
        if file.is_dir() or split.start > 0 or split.end < file.stat().st_size:
            return False
        return split.path.lower().endswith(TARS) or compressed.CompressedFile(file).kind != "plain"
    except (OSError, InputError):
        return False
