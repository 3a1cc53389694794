"""The alphabet of a learnt vocabulary: which characters of a text become entries."""

import sys
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pipeline.common.batching import batches

# Letters are kept, all of ASCII and then by frequency, until they make up this share of the text,
# in at most half of all entries.
COVERAGE = 0.99995

# Then in at most an eighth of all entries: what any text may have, whether the sample has it or
# not, and letters met that often, up to that many of both. A word with rarer ones is [UNK].
ASCII = "".join(map(chr, range(0x21, 0x7F)))
PUNCTUATION = (
    "‘’‚‛“”„‟‹›«»‐‑‒–—―…‥·•‣†‡‖′″‴‰※⁄"  # quotes, dashes, points and marks
    "¡¿§¶©®™°ªº№¢£¤¥€±×÷−¬µ¹²³¼½¾¦"  # and signs that stand among words of any language
)
MINIMUM_COUNT = 10
MOST_RARE = 1000

_BATCH = 2**20  # characters that are counted at once


def count_letters(texts: Iterable[str], tokenizer: Tokenizer) -> dict[str, int]:
    """Count each character in the words that the tokenizer makes of the texts."""
    counts: npt.NDArray[np.int64] = np.zeros(sys.maxunicode + 1, np.int64)
    for batch in batches(texts, _BATCH):  # order and borders are nothing to a count
        part = np.bincount(np.frombuffer("".join(batch).encode("utf-32-le"), np.uint32))
        counts[: len(part)] += part
    letters: dict[str, int] = {}
    for code in np.flatnonzero(counts):
        for letter in _letters_of(chr(code), tokenizer):
            letters[letter] = letters.get(letter, 0) + int(counts[code])
    return letters


def _letters_of(char: str, tokenizer: Tokenizer) -> list[str]:
    """Return the letters that the tokenizer makes of a character; none of a space."""
    return [part for part in tokenizer.normalizer.normalize_str(char) if not part.isspace()]


def choose(letters: dict[str, int], tokenizer: Tokenizer, size: int) -> tuple[list[str], list[str]]:
    """Return the letters to keep in a vocabulary, sorted, and those that can stand inside a word.

    Args:
        letters: how often each was met.
        tokenizer: normalizes and cuts text as the vocabulary's will.
        size: entries of the vocabulary.
    """
    kept: dict[str, bool] = {}  # a letter -> whether it can stand inside a word
    room, seen, enough = size // 2, 0, COVERAGE * sum(letters.values())
    for letter in sorted(letters, key=lambda letter: (letter > "~", -letters[letter], letter)):
        if letter > "~" and seen >= enough:
            break
        joins = _joins(letter, tokenizer)
        room -= 1 + joins
        if room < 0:
            break
        seen += letters[letter]
        kept[letter] = joins
    room = size // 8
    for letter in _rare(letters, kept, tokenizer):
        joins = _joins(letter, tokenizer)
        room -= 1 + joins
        if room < 0:
            break
        kept[letter] = joins
    return sorted(kept), sorted(letter for letter, joins in kept.items() if joins)


def _rare(letters: dict[str, int], kept: Iterable[str], tokenizer: Tokenizer) -> list[str]:
    """Return the letters that are worth an entry though the coverage is reached without them."""
    always = (letter for char in ASCII + PUNCTUATION for letter in _letters_of(char, tokenizer))
    met = (letter for letter, count in letters.items() if count >= MINIMUM_COUNT)
    ranked = [*always, *sorted(met, key=lambda letter: (-letters[letter], letter))]
    known = set(kept)
    return [letter for letter in dict.fromkeys(ranked) if letter not in known][:MOST_RARE]


def _joins(letter: str, tokenizer: Tokenizer) -> bool:
    """Whether a letter between others is of one word with them."""
    between = tokenizer.normalizer.normalize_str(f"a{letter}a")
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(between)) == 1
