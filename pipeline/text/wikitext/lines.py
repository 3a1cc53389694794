"""What depends on the start of a line: headings, sections, lists, paragraphs."""

import re

from pipeline.text.wikitext.namespaces import LINK_SECTIONS

_HEADING = re.compile(r"\n=[^\n]*+")  # if it also ends so
_TITLE_MARKUP = re.compile(r"'{2,}|<[^<>]*>|\{\{[^{}]*\}\}|\[\[(?:[^\[\]|]*\|)?|\]\]")
_LIST = "*#:;"
_WORD = re.compile(r"\w")


def remove_link_sections(text: str) -> str:
    """Without the sections of references and links, and what is below them.

    `text` starts with a line break.
    """
    if "\n=" not in text:
        return text
    pieces: list[str] = []
    at, dropping = 0, 0  # the level of the section that is being dropped, 0: none
    for match in _HEADING.finditer(text):
        level, title = _heading(match[0].strip()) or (0, "")
        if not level or (dropping and level > dropping):
            continue
        drop = _is_link_section(title)
        if drop and not dropping:
            pieces.append(text[at : match.start()])
        elif dropping and not drop:
            at = match.start()
        dropping = level if drop else 0
    if not dropping:
        pieces.append(text[at:])
    return "".join(pieces)


def _is_link_section(title: str) -> bool:
    plain = _TITLE_MARKUP.sub("", title).strip(" \t:=").casefold()
    return plain in LINK_SECTIONS


def paragraphs(text: str) -> str:
    """One paragraph, heading or list item a line; headings with nothing below them go."""
    pieces: list[str] = []  # each with what parts it from the one before
    headings: list[tuple[int, str]] = []  # not written yet: nothing is below them so far
    follows = False  # a line of prose would go on with the paragraph before
    for raw in text.split("\n"):
        line = raw.strip()
        first = line[:1]
        if not first or _is_cell(line) or not _WORD.search(line):
            follows = False
            continue
        if first == "=" and (heading := _heading(line)):
            while headings and headings[-1][0] >= heading[0]:
                headings.pop()
            headings.append(heading)
            follows = False
            continue
        for _, title in headings:
            pieces += ("\n", title)
        headings.clear()
        if first in _LIST:
            pieces += ("\n", line.lstrip("*#:; "))
            follows = False
        else:
            pieces += (" " if follows else "\n", line)
            follows = True
    return "".join(pieces[1:])


def _is_cell(line: str) -> bool:
    """Whether the line is of a table that was opened or closed by a template."""
    return line[0] == "|" or (line[0] == "!" and ("|" in line or "!!" in line or "=" in line))


def _heading(line: str) -> tuple[int, str] | None:
    """Level and title of a line that is a heading; the level is the lower count of `=`."""
    title = line.strip("=")
    left, right = len(line) - len(line.lstrip("=")), len(line) - len(line.rstrip("="))
    return (min(left, right), title.strip()) if title and left and right else None
