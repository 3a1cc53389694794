"""Paragraphs -> sentences, by `sentencex` (Wikimedia), in some 250 languages."""

import re

import sentencex

# A sentence longer than this is cut at a space: it is a table or a list, and quadratic to handle.
LONGEST = 5000
# The library gets no longer piece: it is superlinear in what it gets.
PIECE = 50_000

_ENDS = re.compile(r"[.!?。！？।॥؟۔።…]")


def split(text: str, language: str) -> list[str]:
    """The sentences of a document, one paragraph a line; none is empty or crosses a line."""
    found: list[str] = []
    for line in text.split("\n"):
        for piece in pieces(line, PIECE):
            if _ENDS.search(piece, 0, max(len(piece) - 1, 0)) is None:
                parts = [piece]  # no end of a sentence within: the library has nothing to find
            else:
                parts = sentencex.segment(language, piece)
            for part in parts:
                found += pieces(part, LONGEST)
    return found


def pieces(text: str, longest: int) -> list[str]:
    """`text`, cut at spaces (else anywhere) into parts of at most `longest` characters."""
    text = text.strip()
    found = []
    while len(text) > longest:
        cut = text.rfind(" ", 1, longest)
        cut = cut if cut > 0 else longest
        found.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    if text:
        found.append(text)
    return found
