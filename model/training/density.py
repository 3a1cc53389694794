"""How much a text says: the bits of its bytes that the neighbours of a token leave open.

A model first learns which tokens are neighbours. So languages and kinds of text differ for it about as they do
here, where a second of counting is enough; how far a compressor gets says less. PyTorch is not imported.
"""

import hashlib
import heapq
import math
import os
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.tokenization import wordpiece
from pipeline.tokenization.learning import learn_entries
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece

SAMPLE, PIECE = 1_600_000, 5_000  # characters of a text whose density is measured, and of a piece of it
HELD_OUT = 0.1  # of them, whose tokens are guessed
ENTRIES = 4096  # of their vocabulary, and of that of most records of the law
SEEN = 200_000  # tokens whose neighbours are counted
GUESSED, PART = 16_000, 500  # tokens, and those at once: each takes a row of all entries
DISCOUNT = 0.75  # of a count, for the pairs that were not seen
SHORTER = 0.13  # power of the tokens by which fewer say less of their neighbours
LEAST = 100  # tokens that say something
THREADS = "TOKENIZERS_PARALLELISM"  # of the library; a tokenizer sets it
Ids = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float32]


class Density(NamedTuple):
    """What a text says."""

    bits: float  # of a byte without white space, with the tokens on both sides known
    token: float  # bytes of a token of the usual vocabulary


class Sample:
    """Pieces of a text's documents, about `SAMPLE` characters, of the least hashes: their order does not count."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, bytes, str]] = []  # a heap: of the greatest hash first
        self._size = 0

    def add(self, text: str, digest: bytes) -> None:
        """Add a document with its hash: the first are held out, as a training holds them out."""
        for start in range(0, len(text), PIECE):
            piece = text[start : start + PIECE]
            key = int.from_bytes(hashlib.blake2b(piece.encode(errors="replace"), digest_size=8).digest())
            heapq.heappush(self._pieces, (-key, digest, piece))
            self._size += len(piece)
            while self._size - len(self._pieces[0][2]) >= SAMPLE:
                self._size -= len(heapq.heappop(self._pieces)[2])

    def density(self) -> Density | None:
        """Measure the text, of which a short one may be a part; None if it is too short to say anything."""
        halves = self._halves()
        source = wordpiece.build(list(SPECIAL), lowercase=True, new=True)
        entries = learn_entries(halves[:1], source, ENTRIES, bars=False)
        threads = os.environ.get(THREADS)
        tokenizer = WordPiece(wordpiece.build(entries, lowercase=True, new=True))
        if threads is None:  # else the stages of the run, which inherit it, would learn their vocabulary with one
            del os.environ[THREADS]
        seen, guessed = (ids[ids != tokenizer.unk] for ids, _ in map(tokenizer.encode, ([half] for half in halves)))
        if min(len(seen), len(guessed)) < LEAST:
            return None
        sizes = np.array([len(entry.removeprefix("##").encode()) for entry in tokenizer.vocab])
        shorter = min(1.0, len(seen) / SEEN) ** SHORTER
        return Density(bits_between(seen[:SEEN], guessed, sizes) * shorter, float(sizes[seen].mean()))

    def _halves(self) -> tuple[str, str]:
        """Return the text whose neighbours are counted, and that to guess: other documents, if none is nearly all."""
        pieces = sorted((digest, -key, piece) for key, digest, piece in self._pieces)
        begins = [at for at in range(1, len(pieces)) if pieces[at][0] != pieces[at - 1][0]]
        texts = [piece for _, _, piece in pieces]
        ends = np.cumsum([len(text) for text in texts])
        least = min(PIECE, HELD_OUT * self._size)
        if fit := [at for at in begins if least <= ends[at - 1] <= self._size - least]:
            cut = next((at for at in fit if ends[at - 1] >= HELD_OUT * self._size), fit[-1])
            return "\n".join(texts[cut:]), "\n".join(texts[:cut])
        whole = "\n".join(texts)
        cut = math.ceil(HELD_OUT * len(whole))
        return whole[cut:], whole[:cut]


def bits_between(seen: Ids, guessed: Ids, sizes: npt.NDArray[np.int64]) -> float:
    """Return the bits of a byte of tokens `guessed` (T,), as those before and behind them stand in `seen` (S,).

    Each side gives every entry a probability by its counts, with an absolute discount (Ney et al. 1994); together they
    have their product over the entry's own, as if the sides knew nothing of each other. `sizes` (V,) are in bytes.
    """
    entries = len(sizes)
    base = ((np.bincount(seen, minlength=entries) + 0.5) / (len(seen) + 0.5 * entries)).astype(np.float32)
    codes = seen[:-1].astype(np.int64) * entries + seen[1:]
    pairs = np.bincount(codes, minlength=entries**2).astype(np.float32).reshape(entries, entries)
    places = np.unique(np.linspace(1, len(guessed) - 2, GUESSED).astype(np.int64))
    bits = 0.0
    for at in np.array_split(places, -(-len(places) // PART)):
        likely = probabilities(pairs[guessed[at - 1]], base) * probabilities(pairs[:, guessed[at + 1]].T, base) / base
        actual = likely[np.arange(len(at)), guessed[at]]
        bits += float(np.log2(likely.sum(axis=1) / actual).sum())
    return bits / float(sizes[guessed[places]].sum())


def probabilities(counts: Floats, base: Floats) -> Floats:
    """Return probabilities (P, V) of entries by their counts at one side; `base` (V,) has what is left."""
    discounted: Floats = np.maximum(counts - np.float32(DISCOUNT), 0)
    discounted /= np.maximum(counts.sum(axis=1, keepdims=True), 1)
    discounted += (1 - discounted.sum(axis=1, keepdims=True)) * base
    return discounted
