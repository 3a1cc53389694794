"""Text -> hashes of runs of words: the same for the same words, on any machine and in any process.

Words are compared in lower case, without punctuation; a Chinese character is a word of its own.
"""

import hashlib
import re

import numpy as np

from pipeline.common import counter_rng

# What has no spaces between words: CJK ideographs, kana; and all other runs of letters and digits.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no word's place loses bits
_FINAL = np.uint64(0)


class _Ids(dict[str, int]):
    """64 bits for each word, remembered; forgotten when they fill too much memory."""

    MOST = 1 << 20

    def __missing__(self, word: str) -> int:
        if len(self) >= self.MOST:
            self.clear()
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self[word] = found = int.from_bytes(digest, "big")
        return found


_ids = _Ids()


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return _WORD.findall(text.lower())


def hashes(found: list[str], n: int) -> counter_rng.Bits:
    """A hash of every `n` words in a row: `(len(found) - n + 1,)`, none where there are fewer."""
    count = len(found) - n + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    ids = np.fromiter(map(_ids.__getitem__, found), np.uint64, len(found))
    sums = np.zeros(count, np.uint64)
    for place in range(n):
        sums *= _FACTOR
        sums += ids[place : place + count]
    return counter_rng.random_bits(_FINAL, sums)
