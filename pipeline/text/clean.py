"""Text cleaning, applied once per document before hashing, sentence splitting and tokenization.

Cleaning makes texts that look alike equal: it removes, or replaces by a space, characters that the
BERT tokenizer would treat the same way, and composes letters (NFC), as a new vocabulary has them. It
does not repair mojibake. Old line separators (vertical tab, form feed, NEL) end a line here, while
the tokenizer would join the words on both sides.
"""

import re
import sys
import unicodedata
from collections.abc import Iterable
from itertools import chain, pairwise

_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # as in str.splitlines


def _replacement(char: str) -> str | None:
    """Return the replacement of a character, or None to keep it."""
    category = unicodedata.category(char)
    if char in _LINE_ENDS:
        return "\n"
    if category == "Zs" or char == "\t":
        return " "
    # Control characters, invisible format characters, lone surrogates: nothing to learn from.
    return "" if category in ("Cc", "Cf", "Cs") else None


def _outside(chars: Iterable[int]) -> str:
    """Return a regular expression for one character of `chars` outside printable ASCII.

    A negated class that begins with ASCII scans English at 350 MB/s; a class of `chars` at 14.
    """
    bounds = pairwise([0x7E, *sorted(c for c in chars if c > 0x7E), sys.maxunicode + 1])
    ranges = [(low + 1, high - 1) for low, high in bounds if low + 1 < high]
    kept = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    return f"[^ -~\n{kept}]"


# The other planes have no such character; scanning them all would take 250 ms. Most characters are
# printable, and kept without a look at their category.
_TABLE = {
    ord(char): new
    for char in map(chr, chain(range(0x20000), range(0xE0000, 0xE1000)))
    if not char.isprintable() and (new := _replacement(char)) is not None and char != new
}
_ODD = re.compile(_outside(_TABLE))
_SPACES = re.compile("  +")


def _replace(match: re.Match[str]) -> str:
    return _TABLE[ord(match[0])]


def clean(text: str) -> str:
    """Return the text with single spaces and one paragraph per line, without blank lines.

    Lines have no leading or trailing space. The only white space left is U+0020 and the line feed;
    control and format characters and surrogates are gone; the rest is in NFC. The function is idempotent.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    text = unicodedata.normalize("NFC", _ODD.sub(_replace, text))
    if "  " in text:
        text = _SPACES.sub(" ", text)
    return "\n".join([line for part in text.split("\n") if (line := part.strip())])
