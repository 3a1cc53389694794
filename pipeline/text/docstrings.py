"""Paragraphs of English prose from the docstrings of Python packages.

Parses just enough of reStructuredText, the numpy and Google section styles, and Markdown fences to
drop code, tables and references and to remove the markup of the rest.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# Sections that hold names and code, not sentences.
_DROPPED_SECTIONS = frozenset(
    {"example", "examples", "reference", "references", "methods", "see also", "shape", "shapes"}
)
# Directives whose body is prose; the bodies of all others are dropped.
_PROSE_DIRECTIVES = frozenset(
    {"note", "warning", "important", "tip", "hint", "caution", "attention", "admonition", "danger"}
)
_SECTION = re.compile(r"[A-Z][\w -]{2,30}:?$")
_UNDERLINE = re.compile(r"([=\-~^\"'`*+#_.])\1{2,}\s*$")
_TABLE = re.compile(r"(=+( +=+)+|-+( +-+)+|\+[-=+]{3,}|\|.*)\s*$")
_DIRECTIVE = re.compile(r"\.\. *([\w-]+)::")
_ENTRY = re.compile(r"(\*{0,2}[A-Za-z_][\w.]*(?:, *\*{0,2}[A-Za-z_][\w.]*)*) *+(?:\([^()]*+\) *+)?:(?!:)")
_FIELD = re.compile(r":(?:param|arg|ivar|cvar|var|returns?|raises?|keyword)\b([^:]*):")
_ITEM = re.compile(r"(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-z][.)])\s+(?=\S)")
_SIGNATURE = re.compile(r"[\w.]+\([^()]*\)(?: *->.*)?$")

_ROLE = re.compile(r"(?<![a-zA-Z:+_-])([a-zA-Z+_-]*+):(?!:`)[a-zA-Z:+_-]++(?<=:)`~?!?([^`<]*+)(?:<[^`>]*+>)?`")
_LINK = re.compile(r"`([^`<]++)<[^`>]*+>`_{0,2}")
_MARKDOWN_LINK = re.compile(r"\[([^\][]+)\]\([^()\s]+\)")
_FOOTNOTE = re.compile(r"(?<!\s)\s*+\[[\w#*]+\]_")
_LITERAL = re.compile(r"(`{1,2})(.+?)\1_{0,2}")
_EMPHASIS = re.compile(r"(?<![\w*\\])(\*{1,2})(?=\S)([^*]+?)(?<=\S)\1(?![\w*])")
_FORMULA = re.compile(r"\\[a-zA-Z]{2,}|\$[^$ ]+\$")
_WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*[.,;:!?)]*$|\([A-Za-z]+$|[aAI]$")


def paragraphs(docstring: str) -> list[str]:
    """Return the prose of a dedented docstring: one string per paragraph, list item or entry."""
    found = []
    for block in _blocks(docstring.expandtabs().splitlines()):
        raw = " ".join(block)
        text = inline(raw)
        if is_prose(text) and len(_FORMULA.findall(raw)) < 2:
            found.append(text)
    return found


def inline(text: str) -> str:
    """Remove the markup of roles, links, literals, emphasis and footnotes."""
    text = _FOOTNOTE.sub("", text)
    text = _ROLE.sub(lambda match: match[1] + match[2].strip(), text)
    text = _LINK.sub(lambda match: match[1].rstrip(), text)
    text = _MARKDOWN_LINK.sub(r"\1", text)
    text = _LITERAL.sub(r"\2", text)
    text = _EMPHASIS.sub(r"\2", text)
    return " ".join(text.replace("\\", "").split()).replace(" . ", ". ")


def is_prose(text: str) -> bool:
    """Return whether a paragraph reads as English: at least five words, and few symbols."""
    tokens = text.split()
    words = sum(1 for token in tokens if _WORD.match(token))
    return words >= 5 and words >= 0.7 * len(tokens)


@dataclass
class _State:
    """State of the scan of a docstring."""

    block: list[str] = field(default_factory=list)  # lines of the paragraph so far
    base: int = 0  # indent of the paragraph's first line
    entries: bool = False  # that line was `name: ...`
    floor: int | None = None  # lines indented deeper are dropped
    fenced: bool = False
    dropping: bool = False  # until the next blank line
    section: str = ""

    def take(self) -> Iterator[list[str]]:
        """Yield the paragraph, if any, and begin a new one."""
        if self.block and self.section not in _DROPPED_SECTIONS:
            yield self.block
        self.block = []


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yield the lines of each paragraph, list item and parameter entry, without code and tables."""
    state = _State()
    for number, line in enumerate(lines, 1):
        after = lines[number] if number < len(lines) else ""
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text.startswith("```") or text.startswith("~~~"):
            state.fenced = not state.fenced
            yield from state.take()
        elif state.fenced:
            continue
        elif not text:
            state.dropping = False
            yield from state.take()
        elif state.floor is not None and indent > state.floor:
            continue
        else:
            state.floor = None
            yield from _line(state, text, indent, after)
    yield from state.take()


def _line(state: _State, text: str, indent: int, after: str) -> Iterator[list[str]]:
    """Process one line outside code; yield the paragraph that it ends, if any."""
    heading = _UNDERLINE.match(after.strip()) is not None and not _UNDERLINE.match(text)
    google = text.endswith(":") and _SECTION.match(text) is not None
    if state.dropping:
        return
    if text.startswith(">>>") or _TABLE.match(text):
        yield from state.take()
        state.dropping = True
    elif heading or google:
        yield from state.take()
        state.section = text.rstrip(":").lower()
        state.entries = True
        state.base = len(after) - len(after.lstrip())
    elif _UNDERLINE.match(text) or _SIGNATURE.match(text):
        yield from state.take()
    elif text.startswith(".. ") or text == "..":
        yield from state.take()
        directive = _DIRECTIVE.match(text)
        if directive is None or directive[1].lower() not in _PROSE_DIRECTIVES:
            state.floor = indent
    else:
        yield from _prose_line(state, text, indent, after)


def _prose_line(state: _State, text: str, indent: int, after: str) -> Iterator[list[str]]:
    """Process one line of prose, which continues the paragraph or begins the next."""
    starts = True
    deeper = bool(after.strip()) and len(after) - len(after.lstrip()) > indent
    aligned = state.entries and indent == state.base  # entries of a list share one indent
    if matched := _FIELD.match(text):
        name = matched[1].split()[-1:]
        text = ": ".join([*name, text[matched.end() :].strip()])
    elif matched := _ITEM.match(text):
        text = text[matched.end() :]
    elif (matched := _ENTRY.match(text)) and (aligned or (deeper and not state.block)):
        rest = text[matched.end() :].strip()
        # A few words after the colon are a type; more are the description.
        text = f"{matched[1]}: {rest}" if len(rest.split()) > 7 or not deeper else f"{matched[1]}:"
        state.entries = True
    else:
        starts = not state.block
        state.entries = state.entries and not starts
    if starts:
        yield from state.take()
        state.base = indent
    if text.endswith("::"):
        text = text[:-1]
        state.floor = indent
    state.block.append(text)
