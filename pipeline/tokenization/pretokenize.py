"""Cutting text into pieces that the BERT tokenizer treats independently, and a cache of their ids.

Text may be cut where the BERT normalizer and pre-tokenizer cut in any context: at spaces, and on
both sides of punctuation and Chinese characters. Both look at one character at a time: the tokens
of the pieces, concatenated, are the tokens of the text.

Shapes: S sentences, T tokens, N pieces, D distinct ones.
"""

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from pipeline.common.counter_rng import Bools
from pipeline.common.ranges import ranges

Ids = npt.NDArray[Any]  # uint16 or uint32
Bytes = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.int64]

CHUNK = 4 * 2**20  # bytes processed at once; larger chunks are not faster
CACHED = 2**19  # cached pieces, about 64 MB,
CACHED_BYTES = 2**25  # and their bytes, for text without word boundaries

_SURROGATES = re.compile("[\ud800-\udfff]")

# Character classes for cutting. `starts` depends on their order.
_INSIDE, _ALONE, _SPACE, _UNKNOWN = 0, 1, 2, 3

_BLANK = ord(" ")


class CharClasses:
    """Class of each character up to U+FFFF for cutting, queried from the library once.

    A character that is a separate piece between letters is one in any context, provided that it is
    a starter in Unicode's canonical ordering and its own decomposition: nothing is reordered
    across it.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._table = np.full(2**16, _UNKNOWN, np.uint8)
        # Classes of bytes; non-ASCII bytes belong to longer characters.
        self.ascii = np.full(256, _INSIDE, np.uint8)
        self.ascii[:128] = self.of(np.arange(128))

    def of(self, codes: Ids) -> Bytes:
        """Return the class of each character `(N,)`."""
        classes: Bytes = self._table[codes]
        unknown = codes[classes == _UNKNOWN]
        if len(unknown):
            self._learn([chr(code) for code in np.unique(unknown)])
            classes = self._table[codes]
        return classes

    def stands_alone(self, char: str) -> bool:
        """Return whether a character is a separate piece in any context."""
        return bool(self.of(np.array([ord(char)])) == _ALONE)

    def _learn(self, chars: list[str]) -> None:
        # Other threads may read the table: an entry changes once, from unknown to its class.
        # ASCII, spaces, punctuation, common Chinese.
        asked = [c for c in chars if c.isascii() or unicodedata.category(c)[0] in "PZ" or "\u4e00" <= c < "\ua000"]
        classes = dict.fromkeys(chars, _INSIDE) | (self._ask(asked) if asked else {})
        self._table[list(map(ord, classes))] = list(classes.values())

    def _ask(self, chars: list[str]) -> dict[str, int]:
        """Query the library for the classes of characters."""
        text = self._tokenizer.normalizer.normalize_str(" b ".join(f"a{char}a" for char in chars))
        words = [word for word, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(text)]
        ends = [-1, *(place for place, word in enumerate(words) if word == "b"), len(words)]
        classes = {}
        for char, (before, end) in zip(chars, pairwise(ends), strict=True):
            if end - before == 3:
                classes[char] = _SPACE
            elif end - before == 4 and unicodedata.normalize("NFD", char) == char:
                classes[char] = _INSIDE if unicodedata.combining(char) else _ALONE
        return classes


def starts(data: Bytes, bounds: Lengths, kinds: CharClasses) -> Lengths:
    """Return where the pieces of UTF-8 `data` start `(N,)`: each a word or a single character.

    Spaces belong to the piece before them. Every sentence (start: `bounds`) starts a piece.
    """
    kind = kinds.ascii[data]
    begins = kind == _ALONE
    begins[1:] |= kind[1:] < kind[:-1]
    # Among multi-byte characters, only those of three bytes matter: quotes, dashes, Chinese.
    wide = np.flatnonzero((data >= 0xE0) & (data < 0xF0))
    wide = wide[kinds.of(_codes(data, wide)) != _INSIDE]
    begins[wide] = True
    after = wide[wide + 3 < len(data)] + 3
    begins[after[kind[after] != _SPACE]] = True
    begins[bounds[bounds < len(data)]] = True
    return np.flatnonzero(begins)


def remove_spaces(data: Bytes, cuts: Lengths) -> tuple[bytes, Lengths]:
    """Return the text without spaces, and `cuts` as positions in it.

    Without spaces, a word is the same piece whether a space follows it or not.
    """
    words = data.tobytes().translate(None, b" ")
    new = np.zeros_like(cuts)
    np.cumsum(np.diff(cuts) - (data[cuts[1:] - 1] == _BLANK), out=new[1:])
    if new[-1] != len(words):  # a piece has several spaces; does not happen in cleaned text
        spaces = np.zeros(len(data) + 1, np.int64)  # before each byte
        np.cumsum(data == _BLANK, out=spaces[1:])
        new = cuts - spaces[cuts]
    return words, new


def are_chinese(data: Bytes, places: Lengths) -> Bools:
    """Return whether the character at each position of UTF-8 `data` is common Chinese: `(N,)`."""
    lead = data[places]
    chinese: Bools = (lead >= 0xE4) & (lead <= 0xE9)
    chinese[chinese] = _codes(data, places[chinese]) >= 0x4E00
    return chinese


def _codes(data: Bytes, places: Lengths) -> Ids:
    """Decode the three-byte characters at positions `places` `(N,)`."""
    code = (data[places] & 0xF).astype(np.uint16) << 12
    code |= (data[places + 1] & 0x3F).astype(np.uint16) << 6
    code |= data[places + 2] & 0x3F
    return code


def chunks(bounds: Lengths) -> Iterator[Lengths]:
    """Yield the parts of `bounds` that delimit runs of whole sentences of about `CHUNK` bytes."""
    first, last = 0, len(bounds) - 1
    while first < last:
        end = int(np.searchsorted(bounds, bounds[first] + CHUNK))
        end = min(max(end, first + 1), last)
        yield bounds[first : end + 1]
        first = end


class Cache:
    """Cache of the ids of pieces, shared by the threads of a process."""

    def __init__(self, ask: Callable[[list[str]], tuple[Ids, Lengths]]):
        """Create an empty cache; `ask` tokenizes texts to concatenated ids and their counts."""
        self._ask = ask
        # Indices are valid while the lock is held. Arrays are replaced, never modified, except
        # `_again`, which does not affect ids.
        self._lock = threading.Lock()
        self._places: dict[bytes, int] = {}  # piece -> index into the arrays
        self._bytes = 0  # of all pieces
        self._counts: Lengths = np.zeros(0, np.int64)
        self._starts: Lengths = np.zeros(0, np.int64)  # in the pool
        self._pool: Ids = np.zeros(0, np.uint16)  # the ids of all pieces, concatenated
        self._again: Bools = np.zeros(0, np.bool_)  # hit after they were cached

    def __len__(self) -> int:
        return len(self._places)

    def encode(self, pieces: list[bytes], indices: Lengths) -> tuple[Ids, Lengths]:
        """Return the ids `(T,)` of the distinct `pieces` at `indices` `(N,)`, and counts `(N,)`.

        Tokenizes new pieces first. Thread-safe.
        """
        with self._lock:
            places = self._look_up(pieces)[indices]
            counts, starts, pool = self._counts, self._starts, self._pool
        return _gather(places, counts, starts, pool)

    def _look_up(self, pieces: list[bytes]) -> Lengths:
        """Return the indices of distinct pieces `(D,)`; tokenize new ones first."""
        if len(self) > CACHED or self._bytes > CACHED_BYTES:
            self._drop_rare()
        places = np.fromiter(map(self._places.get, pieces, repeat(-1)), np.int64, len(pieces))
        is_new = places < 0
        self._again[places[~is_new]] = True
        if is_new.any():
            places[is_new] = self._learn([pieces[index] for index in np.flatnonzero(is_new)])
        return places

    def _learn(self, pieces: list[bytes]) -> list[int]:
        """Tokenize new pieces; return their indices."""
        new = sorted(pieces, key=bytes.isascii)  # batched together, ASCII takes half the time
        ids, counts = self._ask([piece.decode() for piece in new])
        first = len(self._counts)
        self._places.update(zip(new, range(first, first + len(new)), strict=True))
        self._bytes += sum(map(len, new))
        self._starts = np.concatenate([self._starts, len(self._pool) + np.cumsum(counts) - counts])
        self._counts = np.concatenate([self._counts, counts])
        self._pool = np.concatenate([self._pool, ids])
        self._again = np.concatenate([self._again, np.zeros(len(new), np.bool_)])
        return list(map(self._places.__getitem__, pieces))

    def _drop_rare(self) -> None:
        """Keep the pieces with hits, or none if those are more than half of the capacity."""
        again = self._again.tolist()
        kept = {piece: place for piece, place in self._places.items() if again[place]}
        if len(kept) > CACHED // 2:
            kept = {}
        old, new = np.unique(np.fromiter(kept.values(), np.int64, len(kept)), return_inverse=True)
        self._places = dict(zip(kept, new.tolist(), strict=True))
        self._bytes = sum(map(len, kept))
        self._pool, self._counts = _gather(old, self._counts, self._starts, self._pool)
        self._starts = np.cumsum(self._counts) - self._counts
        self._again = np.zeros(len(old), np.bool_)


def _gather(places: Lengths, counts: Lengths, starts: Lengths, pool: Ids) -> tuple[Ids, Lengths]:
    """Return the concatenated ids `(T,)` at indices `places` `(N,)`, and their counts `(N,)`."""
    counts = counts[places]
    return pool[ranges(starts[places], counts)], counts


def utf8_buffer(sentences: list[str]) -> tuple[list[str], Bytes, Lengths]:
    """Return the sentences, their concatenated UTF-8, and the offset of each in it `(S+1,)`.

    Lone surrogates are removed.
    """
    try:
        text = pa.array(sentences, pa.large_string())
    except UnicodeEncodeError:
        sentences = [_SURROGATES.sub("", sentence) for sentence in sentences]
        text = pa.array(sentences, pa.large_string())
    _, bounds, data = text.buffers()
    ends = np.frombuffer(bounds or bytes(8), np.int64)[: len(text) + 1]
    return sentences, np.frombuffer(data or b"", np.uint8)[: ends[-1]], ends


# WordPiece takes a longer word for unknown. Text of Thai and others has no spaces between words.
LONGEST_WORD = 100
# A vowel written before its consonant stays with this, as do marks, vowels and stacked letters with
# the one before. Words that are not too long are one match.
_BEFORE = r"\u0E40-\u0E44\u0EC0-\u0EC4\u1039\u17D2\u1A60\uAABB\uAABC"
_AFTER = r"\u0E30\u0E32\u0E33\u0E45\u0E46\u0EB0\u0EB2\u0EB3\u0EC6"
LONG_WORDS = rf".{{0,{LONGEST_WORD - 1}}}[^\n{_BEFORE}](?![\p{{M}}{_AFTER}])|.{{1,{LONGEST_WORD}}}"
# The same, as earlier releases wrote it: not every library can look behind.
OLD_LONG_WORDS = rf".{{1,{LONGEST_WORD}}}(?<![{_BEFORE}])(?![\p{{M}}{_AFTER}])|.{{1,{LONGEST_WORD}}}"
_FIXED = f"FixedLength {LONGEST_WORD}"


def has_syllables(entries: list[str]) -> bool:
    """Return whether a letter of some entry stays with the one next to it, so that length alone may not cut words."""
    letters = "".join(entries)
    marks = any(unicodedata.category(letter)[0] == "M" for letter in {*letters})
    return marks or re.search(f"[{_BEFORE}{_AFTER}]", letters) is not None


# What may be in front of the model, in this order: a mark, and the types of its members.
_CUTS = (_FIXED, LONG_WORDS, OLD_LONG_WORDS)
_KNOWN = {
    "normalizer": (["BertNormalizer"], ["NFC", "BertNormalizer"]),
    "pre_tokenizer": (["BertPreTokenizer"], *(["BertPreTokenizer", cut] for cut in _CUTS)),
    "model": (["WordPiece"],),
}


def members(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the members of a sequence in a tokenizer.json, or the part alone."""
    if part is None:
        return []
    inner = part.get("normalizers") or part.get("pretokenizers")
    return [part] if inner is None else [each for one in inner for each in members(one)]


def uncached_reason(spec: dict[str, Any]) -> str | None:
    """Return why text cannot be cut into pieces for this tokenizer.json; None if it can."""
    for part, known in _KNOWN.items():
        names = [_name(each) for each in members(spec[part])]
        if names not in known:
            return f"its {part} is {', '.join(names) or 'none'}, not {known[0][0]}"
    words = [token["content"] for token in spec["added_tokens"] if not token["special"]]
    return f"it has added words ({words[0]!r} first)" if words else None


def _name(part: dict[str, Any]) -> str:
    """Return the type of a part; of one that splits by a length or a regular expression, this."""
    if part["type"] == "FixedLength":
        return f"FixedLength {part['length']}"
    splits = part["type"] == "Split" and part["behavior"] == "Isolated" and not part["invert"]
    return str(part["pattern"].get("Regex", "Split") if splits else part["type"])


def ascii_tokenizer(tokenizer: Tokenizer, lowercase: bool) -> Tokenizer:
    """Return an equivalent tokenizer for pieces in printable ASCII, twice as fast.

    It need not handle accents, control characters, Chinese characters, punctuation or words of more
    than `LONGEST_WORD` characters.
    """
    bare = Tokenizer(tokenizer.model)
    if lowercase:
        bare.normalizer = normalizers.Lowercase()
    bare.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return bare
