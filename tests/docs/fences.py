"""The code blocks of a page, as a reader sees them."""

import re
from dataclasses import dataclass

FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    language: str
    title: str  # the file that it is, if it is one
    text: str


def blocks(page):
    """The blocks of a page, in order."""
    for language, title, text in FENCE.findall(page.read_text(encoding="utf-8")):
        yield Block(language, title, text)


def commands(page):
    """The command lines in the `sh` blocks of a page, comments with them."""
    for block in blocks(page):
        if block.language == "sh":
            text = block.text.replace("\\\n", " ")
            yield from (line.strip() for line in text.splitlines() if line.strip())
