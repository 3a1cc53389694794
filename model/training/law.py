"""What a training will reach, and with which settings: a law of the records.

Its coefficients are in `law.yaml`, which `python -m benchmarks.records.law` writes; PyTorch is not imported.
"""

import hashlib
import heapq
import lzma
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.common.tables import read_table

MILLION = 1e6
USUAL = 4096  # entries of the vocabulary of most records
FEWER = 0.25  # power of the entries by which tokens of smaller vocabularies are shorter, as of 800 of English
SAMPLE, PIECE = 200_000, 6_000  # bytes of a text whose density is measured, and of a piece of it
SHORTER = 0.1  # power of the bytes by which less of English is compressed worse, from 3,000 of them on


@dataclass(frozen=True)
class Expected:
    """Held-out bits per byte, and the interval of two standard deviations of what the law left of its records."""

    bits: float
    low: float
    high: float
    beyond: float  # how many times more, or less, tokens are seen than in any record; 1: within
    unbound: float  # the bits of the law, also above those of a guess: which is better

    def __str__(self) -> str:
        """Say it with its interval."""
        return f"{self.bits:.2f} ({self.low:.2f} to {self.high:.2f})"


def table() -> dict[str, Any]:
    """Return the coefficients with their provenance."""
    found: dict[str, Any] = read_table(__file__, "law.yaml")
    return found


def worth(once: float, readings: float, half: float) -> float:
    """Return the bytes of new text that reading `once` bytes so often is worth: at most 1 + `half` times as many."""
    return once * (readings if readings <= 1 else 1 + half * -math.expm1(-(readings - 1) / half))


class Sample:
    """Pieces of a text's documents, those of the least hashes, about `SAMPLE` bytes: their order does not count."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, bytes]] = []  # a heap: of the greatest hash first
        self._size = 0

    def add(self, text: str) -> None:
        """Add a document."""
        data = text.encode(errors="replace")
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            key = int.from_bytes(hashlib.blake2b(piece, digest_size=8).digest())
            heapq.heappush(self._pieces, (-key, piece))
            self._size += len(piece)
            while self._size - len(self._pieces[0][1]) >= SAMPLE:
                self._size -= len(heapq.heappop(self._pieces)[1])

    def density(self) -> float:
        """Return the bits that a general compressor leaves of a byte of text without white space.

        A letter of two bytes says no more than one of one: so scripts, and in part languages, compare. A text shorter
        than `SAMPLE` is as dense as that of which it may be a part.
        """
        text = b"\n".join(piece for _, piece in sorted(self._pieces, reverse=True))
        of_part = min(1.0, self._size / SAMPLE) ** SHORTER
        return float(of_part * 8 * len(lzma.compress(text)) / len(b"".join(text.split())))


def bits_per_byte(
    law: dict[str, float], parameters: float, once: float, readings: float, entries: float, dense: float
) -> float:
    """Return the expected bits per byte of a model trained on text of `once` bytes, without white space.

    Its `parameters` are those outside the embeddings: a row of a vocabulary reads no context. `dense` is the text's
    density next to that of the usual one, in whose bytes the law counts.
    """
    of_size = law["size"] * (parameters / MILLION) ** -law["size_power"]
    of_text = law["text"] * (worth(once * dense, readings, law["readings"]) / MILLION) ** -law["text_power"]
    return float(dense * (law["least"] + of_size + of_text) * (entries / USUAL) ** law["entries_power"])


def outside_embeddings(parameters: float, entries: int, hidden: int) -> float:
    """Return the parameters of a model without its word embeddings and the decoder's bias."""
    return parameters - entries * (hidden + 1)


def expect(parameters: float, once: float, readings: float, entries: int, dense: float = 1.0) -> Expected:
    """Return what the law expects; its interval is wider the further it is from the records."""
    known = table()
    unbound = known["level"] * bits_per_byte(known["law"], parameters, once, readings, entries, dense)
    guess = dense * math.log2(entries) / bytes_a_token(entries)  # of who knows nothing
    bits = min(unbound, guess)
    low, high = known["range"]["bytes_read"]
    beyond = max(1.0, once * dense * readings / high, low / max(once * dense * readings, 1.0))
    spread = math.exp(2 * math.hypot(known["residual"] * (1 + math.log(beyond)), known["levels"]))
    return Expected(bits, bits / spread, min(bits * spread, guess), beyond, unbound)


def bytes_a_token(entries: int) -> float:
    """Return the bytes of a token of the usual text, without white space."""
    shorter: float = min(1.0, entries / USUAL) ** FEWER
    return near("bytes_a_token", entries) * shorter


def near(name: str, value: float) -> float:
    """Return a setting of the table by a size: between the measured ones, in logarithms."""
    points = sorted(table()[name].items())
    x, y = (np.log([float(each) for each in axis]) for axis in zip(*points, strict=True))
    return float(np.exp(np.interp(math.log(value), x, y)))
