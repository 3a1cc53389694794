"""Hashes of word n-grams, identical on any machine and in any process.

Words are compared in lower case, without punctuation; a Chinese character is one word.
"""

import hashlib
import re

import numpy as np

from pipeline.common import counter_rng

# Scripts without spaces between words: CJK ideographs, kana.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd: multiplication loses no bits at any position
_FINAL = np.uint64(0)


class _Ids(dict[str, int]):
    """Cache of a 64-bit hash per word, cleared at `MOST` entries to bound its memory."""

    MOST = 1 << 20

    def __missing__(self, word: str) -> int:
        if len(self) >= self.MOST:
            self.clear()
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self[word] = found = int.from_bytes(digest, "big")
        return found


_ids = _Ids()


def words(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return _WORD.findall(text.lower())


def hashes(found: list[str], n: int) -> counter_rng.Bits:
    """Return a hash of every n-gram: `(len(found) - n + 1,)`, empty if there are fewer words."""
    count = len(found) - n + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    ids = np.fromiter(map(_ids.__getitem__, found), np.uint64, len(found))
    sums = np.zeros(count, np.uint64)
    for place in range(n):
        sums *= _FACTOR
        sums += ids[place : place + count]
    return counter_rng.random_bits(_FINAL, sums)
