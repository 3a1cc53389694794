"""Paragraphs -> sentences, by `sentencex` (Wikimedia), which knows the rules of 300 languages."""

import re

from sentencex import segment

# A sentence longer than this is cut. BERT's longest sequence is 512 tokens, about four characters
# each in English: what goes beyond would be truncated away when pairs are made. Nothing that long
# is found in encyclopaedias; in books it is lists and verse without full stops.
LONGEST = 2048

_PIECE = re.compile(
    rf".{{1,{LONGEST}}}(?=\s|$)"  # up to the last space that fits,
    rf"|.{{1,{LONGEST}}}(?<=[、，；：。])"  # else the last mark that fits,
    rf"|.{{1,{LONGEST}}}",  # else wherever it must be
    re.DOTALL,
)


def split_sentences(text: str, language: str, *, by_lines: bool = False) -> list[str]:
    """The sentences of a cleaned text: none empty, no space at their ends, in order.

    A sentence never spans two lines; with `by_lines` every line is one. A `language` (ISO 639 code)
    that the library does not know is read by the rules of English.
    """
    if not text:
        return []
    if by_lines:
        lines = filter(None, map(str.strip, text.split("\n")))
        return [piece for line in lines for piece in _capped(line)]
    # Blank lines are paragraphs to the library: one call a document, and nothing (an open quote)
    # reaches over a line's end.
    parts = _segment(language, text.replace("\n", "\n\n"))
    if parts is None:
        parts = []
        for line in text.split("\n"):
            parts += _segment(language, line) or [line]
    found = [sentence for part in parts if (sentence := part.strip())]
    if max(map(len, found), default=0) > LONGEST:
        found = [piece for sentence in found for piece in _capped(sentence)]
    return found


def _segment(language: str, text: str) -> list[str] | None:
    """What the library says; None where it fails.

    Version 1.0.32 slices inside a character on some texts with white space that `clean` takes out.
    """
    try:
        parts: list[str] = segment(language, text)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's, derived from BaseException
            raise
        return None
    return parts


def _capped(sentence: str) -> list[str]:
    """The sentence in pieces of at most `LONGEST` characters."""
    if len(sentence) <= LONGEST:
        return [sentence]
    return [piece for part in _PIECE.findall(sentence) if (piece := part.strip())]
