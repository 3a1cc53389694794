"""A sample of a corpus's text in a temporary file, to be read several times in constant memory.

Texts are kept in pieces: some documents in a row, or one long document. Most splits give their
first pieces. A packed file is one split however large, so it is read to its end, and gives the
pieces that a keyed draw picks: those with the smallest of their random numbers.
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

PIECE = 64 * 2**10  # characters of a piece, at least, but for the last one of a split
_BETWEEN = "\0"  # documents of a piece; no cleaned text has it


class TextSample:
    """Cleaned documents, perhaps without their ends, in the order of the corpus."""

    def __init__(self, folder: Path | None = None):
        """Keep the texts in `folder`; null: where temporary files are kept."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (lives as long as this)
        self._pieces: list[tuple[int, int]] = []  # where each starts, and its bytes
        self.bytes = 0
        self.splits = 0  # that were looked into

    def __iter__(self) -> Iterator[str]:
        for start, size in self._pieces:
            self._file.seek(start)
            # A character that is cut in two at the end is left out.
            text = self._file.read(size).decode("utf-8", "ignore")
            yield from filter(None, text.split(_BETWEEN))

    def add_beginning(self, texts: Iterable[str], most: int) -> int:
        """Add the first `most` bytes of raw texts, and return how many bytes they came to."""
        before = self.bytes
        for piece in batches(texts, PIECE):
            start, size = self._write(piece)
            missing = most - (self.bytes - before)
            self._keep([(start, min(size, missing))])
            if size >= missing:
                break
        return self.bytes - before

    def add_drawn(self, texts: Iterable[str], most: int, key: np.uint64) -> int:
        """Add `most` bytes from all over the raw texts, and return how many bytes they came to."""
        kept: list[tuple[float, int, int]] = []  # a heap: the largest random number comes first
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
        """Write a piece after all others; return where it starts, and its bytes."""
        cleaned = filter(None, map(clean.clean, texts))
        start = self._file.seek(0, 2)
        return start, self._file.write(_BETWEEN.join(cleaned).encode())

    def _keep(self, pieces: list[tuple[int, int]]) -> None:
        self._pieces += (piece for piece in pieces if piece[1])
        self.bytes += sum(size for _, size in pieces)


def is_uncut(split: FileRange) -> bool:
    """Whether the split is a whole packed file or tar archive, which is read from its beginning on.

    What cannot be read is not; its reader says what is wrong.
    """
    try:
        file = storage.at(split.path)
        if file.is_dir() or split.start > 0 or split.end < file.stat().st_size:
            return False
        return split.path.lower().endswith(TARS) or compressed.compression(file) != "plain"
    except (OSError, InputError):
        return False
