"""What every document's text passes once, before it is hashed, cut into sentences and tokenized.

Cleaning makes texts that look alike equal, and never changes what the BERT tokenizer sees: it takes
away or turns into a plain space what the tokenizer would, earlier. So there is no Unicode
normalisation (a cased vocabulary tells `é` from `e` with an accent after it), and wrongly decoded
letters stay as they are. One thing differs: old line separators (vertical tab, form feed, NEL) end
a line here, while the tokenizer would join the words on both sides.
"""

import re
import sys
import unicodedata
from collections.abc import Iterable
from itertools import chain, pairwise

_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # those of str.splitlines


def _replacement(char: str) -> str | None:
    """What the character becomes; None where it stays."""
    category = unicodedata.category(char)
    if char in _LINE_ENDS:
        return "\n"
    if category == "Zs" or char == "\t":
        return " "
    # Controls, invisible format characters, halves of surrogate pairs: nothing to learn from.
    return "" if category in ("Cc", "Cf", "Cs") else None


def _outside(chars: Iterable[int]) -> str:
    """A regular expression of one character that is not printable ASCII, but is one of `chars`.

    Stated as what it is not, ASCII first: 350 MB/s over English, 14 where `chars` stand themselves.
    """
    bounds = pairwise([0x7E, *sorted(c for c in chars if c > 0x7E), sys.maxunicode + 1])
    ranges = [(low + 1, high - 1) for low, high in bounds if low + 1 < high]
    kept = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    return f"[^ -~\n{kept}]"


# Elsewhere there is no such character; a look at all planes would take a quarter of a second.
_TABLE = {
    code: new
    for code in chain(range(0x20000), range(0xE0000, 0xE1000))
    if (new := _replacement(chr(code))) is not None and chr(code) != new
}
_ODD = re.compile(_outside(_TABLE))
_SPACES = re.compile("  +")
_BLANK_LINES = re.compile("\n\n+")


def _mended(match: re.Match[str]) -> str:
    return _TABLE[ord(match[0])]


def clean(text: str) -> str:
    """The text with single spaces, and a paragraph a line: no blank lines, no space at their ends.

    No character of it is a control or format character, a surrogate, or a space but U+0020 and the
    line feed. Cleaning twice changes nothing.
    """
    if "\r\n" in text:
        text = text.replace("\r\n", "\n")
    text = _ODD.sub(_mended, text)
    if "  " in text:
        text = _SPACES.sub(" ", text)
    text = text.replace(" \n", "\n").replace("\n ", "\n")
    if "\n\n" in text:
        text = _BLANK_LINES.sub("\n", text)
    return text.strip(" \n")
