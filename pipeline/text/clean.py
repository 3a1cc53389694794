"""What every document's text passes once, before it is hashed, split and tokenized."""

import re

_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
# Whitespace of all kinds but line breaks; the tokenizer takes each for a space.
_SPACES = re.compile(r"[^\S\n]+")
_MARGINS = re.compile(r" ?\n[ \n]*")
# What no tokenizer keeps: C0 and C1 controls, zero-width marks of layout, half of a surrogate pair.
_DROPPED = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u200b\u2060\ufeff\ufffe\uffff\ud800-\udfff]"
)


def clean(text: str) -> str:
    """One paragraph a line, single spaces, no control characters, no empty lines.

    The letters stay as they are: case, accents and compatibility forms are the tokenizer's.
    """
    if text.isascii() and "\t" not in text and "\r" not in text and text.isprintable():
        return _SPACES.sub(" ", text).strip()
    text = _BREAKS.sub("\n", text)
    text = _DROPPED.sub("", text)
    text = _SPACES.sub(" ", text)
    return _MARGINS.sub("\n", text).strip()
