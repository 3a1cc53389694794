"""Hashes of word n-grams, identical on any machine and in any process.

Words are compared in lower case and composed (NFC), without punctuation. A Chinese character is one
word; in Thai and other scripts without spaces a piece of one or two syllables is.
"""

import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterable
from itertools import chain, pairwise

import numpy as np

from pipeline.common import counter_rng

# Scripts without spaces between words, of one character each: CJK ideographs, kana.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_LETTER = rf"[^\W_{_CJK}]"
_ASCII_WORD = re.compile("[a-z0-9]+")
# Scripts without spaces whose vowels are marks: Thai and Lao, Burmese, Khmer, Tai Tham. A run of
# letters would be a whole phrase; one that ends with its marks has about four characters in Thai.
_UNSPACED = frozenset(
    chain(
        range(0xE00, 0xF00),
        range(0x1000, 0x10A0),
        range(0x1780, 0x1800),
        range(0x1A20, 0x1AB0),
        range(0xA9E0, 0xAA00),
        range(0xAA60, 0xAA80),
    )
)
_MARKS = range(0x300, 0x1F000)  # the planes above have only variation selectors
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd: multiplication loses no bits at any position
_FINAL = np.uint64(0)
BLOCK = 1 << 20  # characters


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


@functools.cache
def _word() -> re.Pattern[str]:
    """Return the pattern of a word: letters and digits with the marks on and between them.

    To the `re` module marks (vowels of Hindi, points of Hebrew, accents) do not belong to words.
    """
    marks = [code for code in _MARKS if unicodedata.category(chr(code)) in ("Mn", "Mc")]
    inner = "".join(chr(code) for code in marks if code not in _UNSPACED)
    last = "".join(chr(code) for code in marks if code in _UNSPACED)
    # Most words end before an ASCII character, which is seen sooner than whether it is a mark.
    tail = rf"(?![\0-\x7f])(?:[{inner}]+{_LETTER}*)*[{last}]*"
    return re.compile(rf"[{_CJK}]|{_LETTER}+(?:{tail})?")


def words(text: str) -> list[str]:
    """Return the words of a text, in lower case and NFC."""
    text = text.lower()
    if text.isascii():
        return _ASCII_WORD.findall(text)
    return _word().findall(unicodedata.normalize("NFC", text))


def numbers(found: Iterable[str]) -> counter_rng.Bits:
    """Return a number of each word."""
    return np.fromiter(map(_ids.__getitem__, found), np.uint64)


def numbers_of(text: str) -> counter_rng.Bits:
    """Return the numbers of a text's words; a long one is divided at line ends, as words take 80 bytes each."""
    ends = [0]
    while ends[-1] < len(text):
        ends.append(text.find("\n", ends[-1] + BLOCK) + 1 or len(text))
    return np.concatenate([numbers(()), *(numbers(words(text[a:b])) for a, b in pairwise(ends))])


def hashes(ids: counter_rng.Bits, n: int) -> counter_rng.Bits:
    """Return a hash of every n-gram of words' numbers: `(len(ids) - n + 1,)`, empty if there are fewer."""
    count = len(ids) - n + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    sums = np.zeros(count, np.uint64)
    for place in range(n):
        sums *= _FACTOR
        sums += ids[place : place + count]
    return counter_rng.random_bits(_FINAL, sums)
