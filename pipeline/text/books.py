"""Books as text files -> title and paragraphs: encodings, hard wraps, headers, licences, markup."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# A line longer than this is not hard-wrapped: no editor wraps wider.
WRAP = 120

_BREAK = re.compile(r"\r\n|\r|\n|\f|\x85")
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
_RULE = re.compile(r"\s*([-_=*~.])(\s*\1){2,}\s*$")
_FACT = re.compile(r"#{0,6}\s*(Title|Author|Authors|Year|Date|Language|Translator):\s*(.*)$")
_SCAN = 40  # lines in which the facts of a header stand

_GUTENBERG_START = re.compile(
    r"\*{3} ?START OF TH(?:E|IS) PROJECT GUTENBERG.*|\*END\*? ?THE SMALL PRINT!.*", re.IGNORECASE
)
_GUTENBERG_END = re.compile(
    r"\*{3} ?END OF TH(?:E|IS) PROJECT GUTENBERG.*|End of (?:the )?Project Gutenberg(?:'s)? .*",
    re.IGNORECASE,
)
_GUTENBERG_TITLE = re.compile(r"^Title:\s*(.+)$", re.MULTILINE)

_IMAGE = re.compile(r"!\[[^\]]*\]\([^)\s]*\)")
_LINK = re.compile(r"\[([^\][]+)\]\([^()\s]+\)")
_EMPHASIS = re.compile(r"(?<![\w*])([_*]{1,3})(?=[^\s_*])([^_*]*?[^\s_*])\1(?![\w*])")

# UTF-8 that was once read as Latin-1 or cp1252: é has become Ã©, a dash â€”.
_CP1252 = {ord(bytes([b]).decode("cp1252", "replace")): chr(b) for b in range(0x80, 0xA0)}
_CP1252.pop(0xFFFD)
_HIGH = "[\x80-\xbf" + "".join(map(chr, _CP1252)) + "]"
_MISREAD = re.compile(f"[ÂÃÅ]{_HIGH}|â[€\x80]{_HIGH}")


@dataclass(frozen=True)
class Book:
    """A book; `text` has one paragraph or heading a line."""

    title: str  # empty where the file does not say
    text: str
    encoding: str  # utf-8, utf-16 or cp1252
    mended: bool  # letters that had been read in the wrong encoding were put right


def parse(raw: bytes) -> Book:
    """A book from the bytes of its file."""
    text, encoding = decode(raw)
    whole = _MISREAD.sub(_reread, text)
    title, lines = _without_licence(_BREAK.split(whole.replace("\ufeff", "")))
    stated, lines = _without_header(lines)
    paragraphs = (plain(paragraph) for paragraph in _paragraphs(lines))
    return Book(stated or title, "\n".join(filter(None, paragraphs)), encoding, whole != text)


def decode(raw: bytes) -> tuple[str, str]:
    """The text, and the encoding: UTF-8 or UTF-16 by its mark, UTF-8 if it is, else cp1252."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace"), "utf-16"
    try:
        return raw.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        # The five bytes that cp1252 leaves open become the control characters of Latin-1.
        text = raw.decode("latin-1")
        back = {ord(code): chr(letter) for letter, code in _CP1252.items()}
        return text.translate(back), "cp1252"


def plain(paragraph: str) -> str:
    """A paragraph without the marks of emphasis, links and pictures, its spaces made single."""
    paragraph = _LINK.sub(r"\1", _IMAGE.sub("", paragraph))
    if "_" in paragraph or "*" in paragraph:
        paragraph = _EMPHASIS.sub(r"\2", paragraph)
    return " ".join(paragraph.split())


def _reread(match: re.Match[str]) -> str:
    try:
        return match[0].translate(_CP1252).encode("latin-1").decode("utf-8")
    except UnicodeError:
        return match[0]


def _without_licence(lines: list[str]) -> tuple[str, list[str]]:
    """The title in a Project Gutenberg header, and the lines between header and licence."""
    starts = [i for i, line in enumerate(lines[:1000]) if _GUTENBERG_START.match(line)]
    if not starts:
        return "", lines
    header, body = "\n".join(lines[: starts[-1]]), lines[starts[-1] + 1 :]
    ends = (i for i, line in enumerate(body) if _GUTENBERG_END.match(line))
    title = _GUTENBERG_TITLE.search(header)
    return title[1].strip() if title else "", body[: next(ends, len(body))]


def _without_header(lines: list[str]) -> tuple[str, list[str]]:
    """The title that the first lines state, and the lines after such statements."""
    title, end = "", 0
    for number, line in enumerate(lines[:_SCAN]):
        fact, heading = _FACT.match(line), _HEADING.match(line)
        if fact:
            title = fact[2].strip() if fact[1] == "Title" else title
            end = number + 1
        elif heading and heading[1] == "#" and not title:
            title = heading[2]
            break
        elif line.strip() and not _RULE.match(line):
            break
    return title, lines[end:]


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Headings, and the lines between blank ones joined, unless they are paragraphs already."""
    block: list[str] = []
    for line in [*lines, ""]:
        heading = _HEADING.match(line)
        if line.strip() and not heading and not _RULE.match(line):
            block.append(line)
            continue
        if block and max(map(len, block)) > WRAP:
            yield from block
        elif block:
            yield " ".join(block)
        block = []
        if heading:
            yield heading[2]
