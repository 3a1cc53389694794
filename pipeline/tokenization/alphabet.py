"""Alphabet of a trained vocabulary: the characters of a text that become entries."""

import sys
import unicodedata
from collections.abc import Iterable, Iterator

import numpy as np
from tokenizers import Tokenizer

from pipeline.common.batching import batches
from pipeline.tokenization.pretokenize import Lengths

# Letters are kept, ASCII first and then by frequency, until they cover this share of the text, in
# at most half of all entries.
COVERAGE = 0.99995

# Then, in at most an eighth of all entries and at most MOST_RARE in number: common characters that
# the sample may lack, and letters seen at least MINIMUM_COUNT times. A word with rarer ones is
# [UNK].
ASCII = "".join(map(chr, range(0x21, 0x7F)))
PUNCTUATION = (
    "‘’‚‛“”„‟‹›«»‐‑‒–—―…‥·•‣†‡‖′″‴‰※⁄"  # quotes, dashes, points and marks,
    "¡¿§¶©®™°ªº№¢£¤¥€±×÷−¬µ¹²³¼½¾¦"  # and symbols used in any language
)
MINIMUM_COUNT = 10
MOST_RARE = 1000

_BATCH = 2**20  # characters counted at once


def count_letters(texts: Iterable[str], tokenizer: Tokenizer) -> dict[str, int]:
    """Count the characters of cleaned texts, as the tokenizer normalizes them."""
    letters: dict[str, int] = {}
    for char, count in _characters(texts):
        for letter in _letters_of(char, tokenizer):
            letters[letter] = letters.get(letter, 0) + count
    return letters


def accented_share(texts: Iterable[str]) -> float:
    """Return the share of the characters of cleaned texts, without spaces, from which accents would be stripped."""
    chars = [(unicodedata.normalize("NFD", char), count) for char, count in _characters(texts) if not char.isspace()]
    marked = sum(count for parts, count in chars if "Mn" in map(unicodedata.category, parts))
    return marked / max(sum(count for _, count in chars), 1)


def _characters(texts: Iterable[str]) -> list[tuple[str, int]]:
    """Count the characters of the texts."""
    counts: Lengths = np.zeros(sys.maxunicode + 1, np.int64)
    for batch in batches(texts, _BATCH):  # counts do not depend on order or batch bounds
        part = np.bincount(np.frombuffer("".join(batch).encode("utf-32-le"), np.uint32))
        counts[: len(part)] += part
    return [(chr(code), int(counts[code])) for code in np.flatnonzero(counts)]


def _letters_of(char: str, tokenizer: Tokenizer) -> list[str]:
    """Return the letters that a character is normalized to; none for a space."""
    return [part for part in tokenizer.normalizer.normalize_str(char) if not part.isspace()]


def choose(letters: dict[str, int], tokenizer: Tokenizer, size: int) -> tuple[list[str], list[str]]:
    """Return the letters to keep in a vocabulary, sorted, and those that can occur inside a word.

    Args:
        letters: count of each letter.
        tokenizer: normalizes and pre-tokenizes like the vocabulary's tokenizer.
        size: entries of the vocabulary.
    """
    kept: dict[str, bool] = {}  # letter -> can occur inside a word
    seen, enough = 0, COVERAGE * sum(letters.values())
    ranked = sorted(letters, key=lambda letter: (letter > "~", -letters[letter], letter))
    for letter, joins in _fitting(ranked, size // 2, tokenizer):
        if letter > "~" and seen >= enough:
            break
        seen += letters[letter]
        kept[letter] = joins
    kept.update(_fitting(_rare(letters, kept, tokenizer), size // 8, tokenizer))
    return sorted(kept), sorted(letter for letter, joins in kept.items() if joins)


def _fitting(letters: Iterable[str], room: int, tokenizer: Tokenizer) -> Iterator[tuple[str, bool]]:
    """Yield the first letters that `room` entries hold, and whether each can occur inside a word."""
    for letter in letters:
        between = tokenizer.normalizer.normalize_str(f"a{letter}a")
        joins = len(tokenizer.pre_tokenizer.pre_tokenize_str(between)) == 1
        room -= 1 + joins
        if room < 0:
            return
        yield letter, joins


def _rare(letters: dict[str, int], kept: Iterable[str], tokenizer: Tokenizer) -> list[str]:
    """Return the letters that are worth an entry beyond the coverage."""
    always = (letter for char in ASCII + PUNCTUATION for letter in _letters_of(char, tokenizer))
    met = (letter for letter, count in letters.items() if count >= MINIMUM_COUNT)
    ranked = [*always, *sorted(met, key=lambda letter: (-letters[letter], letter))]
    known = set(kept)
    return [letter for letter in dict.fromkeys(ranked) if letter not in known][:MOST_RARE]
