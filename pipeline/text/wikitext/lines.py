"""Markup at the start of a line: headings, sections, lists, paragraphs."""

import re

from pipeline.text.wikitext.namespaces import LINK_SECTIONS

_HEADING = re.compile(r"\n=[^\n]*+")  # only if the line also ends with =
_TITLE_MARKUP = re.compile(r"'{2,}|<[^<>]*>|\{\{[^{}]*\}\}|\[\[(?:[^\[\]|]*\|)?|\]\]")
_LIST = "*#:;"
# In sections of links and literature, a line of at least this length outside lists is prose.
PROSE = 80
_PROSE = re.compile(rf"\n[\w'\"(\[„“”«»‘’「『（][^\n]{{{PROSE - 1}}}")
_WORD = re.compile(r"\w")
_MARKED = re.compile("[|=]|!!")
_CELL = re.compile(r"\n[ \t]*[|!]")
_ROW = re.compile(r"\|(?:\}|\+(?!\d)|-+\s*(?:$|[\w-]+\s*=)|$)")
_ATTRIBUTE = re.compile(
    r"\|\s*\w[\w .-]{0,40}="
    r"|!\s*(?:style|class|scope|colspan|rowspan|align|valign|width|height|bgcolor|data-[\w-]+)\s*="
)


def remove_link_sections(text: str) -> str:
    """Remove the sections of references and links, with their subsections.

    Sections with lines of prose are left to `paragraphs`, which drops their lists. `text` starts
    with a line break.
    """
    if "\n=" not in text:
        return text
    pieces: list[str] = []
    at, dropping, begin = 0, 0, 0  # dropping: level of the section being dropped, 0: none
    for match in _HEADING.finditer(text):
        level, title = _heading(match[0].strip()) or (0, "")
        if not level or (dropping and level > dropping):
            continue
        if dropping and not _PROSE.search(text, begin, match.start()):
            pieces.append(text[at:begin])
            at = match.start()
        dropping, begin = (level, match.start()) if _is_link_section(title) else (0, 0)
    if dropping and not _PROSE.search(text, begin):
        pieces.append(text[at:begin])
        at = len(text)
    return "".join([*pieces, text[at:]])


def _is_link_section(title: str) -> bool:
    return _TITLE_MARKUP.sub("", title).strip(" \t:=").casefold() in LINK_SECTIONS


def paragraphs(text: str) -> str:
    """Return one paragraph, heading or list item per line.

    Drops headings without content, and lists and short lines in link sections.
    """
    pieces: list[str] = []  # separators and texts
    headings: list[tuple[int, str]] = []  # pending: no content below them so far
    follows = False  # a line of prose continues the paragraph before
    links = 0  # level of the current link section, 0: none
    raw_lines = text.split("\n")
    cells = _cells(raw_lines) if _CELL.search(text) else ()
    for number, raw in enumerate(raw_lines):
        line = raw.strip()
        first, continues, follows = line[:1], follows, False
        if not first or number in cells or not _WORD.search(line):
            continue
        if first == "=" and (heading := _heading(line)):
            while headings and headings[-1][0] >= heading[0]:
                headings.pop()
            headings.append(heading)
            if not links or heading[0] <= links:
                links = heading[0] if _is_link_section(heading[1]) else 0
            continue
        if links and (first in _LIST or not (continues or len(line) >= PROSE)):
            continue
        for _, title in headings:
            pieces += ("\n", title)
        headings.clear()
        if first in _LIST:
            pieces += ("\n", line.lstrip("*#:; "))
        else:
            pieces += (" " if continues else "\n", line)
            follows = True
    return "".join(pieces[1:])


def _cells(raw_lines: list[str]) -> set[int]:
    """Return the numbers of lines that are cells of a table opened or closed by a template.

    Such a table has rows, a caption or an end, in a line of its own: before the cell, or after it
    without a blank line between. Some of its cells have attributes, like parameters of a template
    without an end. Anywhere else `|` and `!` begin a paragraph.
    """
    cells: set[int] = set()
    opened = near = blank = False  # near: a cell with attributes, without a blank line since
    waiting: list[int] = []  # cells of a table if a row follows
    for number, raw in enumerate(raw_lines):
        line = raw.strip()
        if not line:
            waiting.clear()
            near, blank = False, True
        elif _ROW.match(line):
            cells.update(waiting)
            waiting.clear()
            cells.add(number)
            opened, blank = not line.startswith("|}"), False
        elif line[0] == "|" or (line[0] == "!" and ((opened and not blank) or _MARKED.search(line))):
            near = near or _ATTRIBUTE.match(line) is not None
            waiting.append(number)
            if opened or near:
                cells.update(waiting)
                waiting.clear()
        elif line[0] == "=" or blank:
            opened = False  # a heading or a paragraph ends a table that a template closed
            waiting.clear()
    return cells


def _heading(line: str) -> tuple[int, str] | None:
    """Return level and title of a heading, or None; the level is the lower count of `=`."""
    title = line.strip("=")
    left, right = len(line) - len(line.lstrip("=")), len(line) - len(line.rstrip("="))
    return (min(left, right), title.strip()) if title and left and right else None
