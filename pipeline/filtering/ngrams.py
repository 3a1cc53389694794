"""Hashes of word n-grams, identical on any machine and in any process.

Words are compared in lower case and composed (NFC), without punctuation. A Chinese character is one
word; in Thai and other scripts without spaces a piece of one or two syllables is.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pipeline.common import counter_rng
from pipeline.common.counter_rng import Bits

Places = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint32]

SEPARATOR, LETTER, IDEOGRAPH, MARK, LAST_MARK = range(5)  # kinds of characters
# Scripts without spaces between words, of one character each: CJK ideographs, kana.
_IDEOGRAPHS = ((0x3040, 0x3100), (0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0x20000, 0x31350))
# Scripts without spaces whose vowels are marks: Thai and Lao, Burmese, Khmer, Tai Tham. A run of
# letters would be a whole phrase; one that ends with its marks has about four characters in Thai.
_UNSPACED = ((0xE00, 0xF00), (0x1000, 0x10A0), (0x1780, 0x1800), (0x1A20, 0x1AB0), (0xA9E0, 0xAA00), (0xAA60, 0xAA80))
_FACTOR = 0x9E3779B97F4A7C15  # odd: multiplication loses no bits at any position
_FINAL = np.uint64(0)
BLOCK, MOST = 1 << 16, 1 << 20  # characters at once, with blanks and without
_BLANK = re.compile("[ \n]")


@functools.cache
def _kinds() -> npt.NDArray[np.uint8]:
    """Return the kind of every character.

    Letters and digits are one kind. Marks (vowels of Hindi, points of Hebrew, accents) are not
    letters to the `re` module, but belong to words.
    """
    kinds = np.full(0x110000, SEPARATOR, np.uint8)
    for run in re.finditer(r"[^\W_]+", "".join(map(chr, range(0x40000)))):  # the planes above have no letters
        kinds[run.start() : run.end()] = LETTER
    for code in range(0x300, 0x1F000):  # those above have only variation selectors
        if unicodedata.category(chr(code)) in ("Mn", "Mc"):
            kinds[code] = MARK
    for first, end in _UNSPACED:
        kinds[first:end][kinds[first:end] == MARK] = LAST_MARK
    for first, end in _IDEOGRAPHS:
        kinds[first:end] = IDEOGRAPH
    return kinds


@functools.cache
def _powers(factor: int, count: int) -> Bits:
    """Return `factor` to the powers 1 .. count."""
    return np.multiply.accumulate(np.full(count, factor, np.uint64))


def words(text: str) -> list[str]:
    """Return the words of a text, in lower case and NFC."""
    text = _plain(text)
    return [text[a:b] for a, b in zip(*_bounds(_codes(text)), strict=True)]


def numbers_of(texts: Sequence[str]) -> list[Bits]:
    """Return the number of each word of each text, the same wherever the word comes."""
    plain = [_plain(text) for text in texts]
    whole = "\n".join(plain)
    places, numbers = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
    for begin, end in _blocks(whole):
        codes = _codes(whole[begin:end])
        starts, ends = _bounds(codes)
        # A word's characters are the digits of its number: a difference of sums, shifted to its start.
        count = 1 << len(codes).bit_length()
        sums = np.cumsum(np.append(np.uint64(0), codes * _powers(_FACTOR, count)[: len(codes)]))
        shifts = _powers(pow(_FACTOR, -1, 1 << 64), count)[starts]
        places.append(starts + begin)
        numbers.append(counter_rng.random_bits(_FINAL, (sums[ends] - sums[starts]) * shifts))
    begins = np.cumsum([len(text) + 1 for text in plain[:-1]])
    return np.split(np.concatenate(numbers), np.searchsorted(np.concatenate(places), begins))[: len(texts)]


def _plain(text: str) -> str:
    """Return the text in lower case and NFC."""
    return unicodedata.normalize("NFC", text.lower())


def _codes(text: str) -> Codes:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Divide a text behind blanks, as arrays take 40 bytes for each character; without blanks, anywhere."""
    begin = 0
    while begin < len(text):
        blank = _BLANK.search(text, begin + BLOCK, begin + MOST)
        end = blank.end() if blank else min(begin + MOST, len(text))
        yield begin, end
        begin = end


def _bounds(codes: Codes) -> tuple[Places, Places]:
    """Return where words start and end: ideographs, and letters with the marks on and between them."""
    kinds = _kinds()[codes]
    for mark, becomes in ((MARK, LETTER), (LAST_MARK, LAST_MARK)):
        marks = kinds == mark
        if marks.any():  # they belong to a word if the last character before them that is none of them does
            before = np.maximum.accumulate(np.where(marks, 0, np.arange(len(kinds))))
            kinds[marks] = np.where(kinds[before] == LETTER, becomes, SEPARATOR)[marks]
    letters = kinds == LETTER
    begins = kinds == IDEOGRAPH
    begins[:1] |= letters[:1]
    begins[1:] |= letters[1:] & ~letters[:-1]
    edges = np.append(np.flatnonzero(begins | (kinds == SEPARATOR)), len(kinds))
    which = np.flatnonzero(begins[edges[:-1]])
    return edges[which], edges[which + 1]


def hashes(ids: Bits, n: int) -> Bits:
    """Return a hash of every n-gram of words' numbers: `(len(ids) - n + 1,)`, empty if there are fewer."""
    count = len(ids) - n + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    sums = np.zeros(count, np.uint64)
    for place in range(n):
        sums *= np.uint64(_FACTOR)
        sums += ids[place : place + count]
    return counter_rng.random_bits(_FINAL, sums)
