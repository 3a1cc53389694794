"""Bracketed markup: templates `{{}}`, tables `{||}`, links `[[]]` and `[http://...]`.

Well-formed brackets are removed by patterns without backtracking, the rest by a stack of open
brackets over the few remaining tokens. Both are linear in the length of the text.
"""

import re
from collections.abc import Iterable

from pipeline.text.wikitext.holes import TEMPLATE

Span = tuple[int, int]

# Templates nested up to three deep, without single braces. Three braces are a parameter.
_FLAT = r"[^{}]*+"
_TEMPLATE = rf"\{{\{{{_FLAT}\}}\}}"
for _ in range(2):
    _TEMPLATE = rf"\{{\{{{_FLAT}(?:{_TEMPLATE}{_FLAT})*+\}}\}}"
# (The lookbehind comes second, to let the search jump from one pair of braces to the next.)
TEMPLATES = re.compile(rf"\{{\{{(?<!\{{\{{\{{){_TEMPLATE[4:]}(?!\}})")
# An innermost table, after removing templates. `|}}` does not end a table: left to the stack.
_TABLES = re.compile(r"\{\|(?<=\n\{\|)[^{}]*+(?<=\n\|)\}(?!\})")
_BRACES = re.compile(r"\{(?:\{++|\|(?!\}))|\}++")


def remove_braces(text: str) -> str:
    """Remove templates, parameters and tables; of unpaired braces, only the braces.

    `text` starts with a line break: tables begin on a line of their own.
    """
    for _ in range(3 if "{|" in text else 0):  # nested tables; deeper ones are left to the stack
        text, count = _TABLES.subn("", text)
        if not count:
            break
    if "{{" in text or "{|" in text or "}}" in text:
        text = _cut(text, _spans_of_braces(text), TEMPLATE)
    return text


def _cut(text: str, spans: Iterable[Span], hole: str = "") -> str:
    """Remove the given spans, which may overlap, from `text`; templates within lines leave a hole."""
    pieces, at = [], 0
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start > at:
            pieces.append(text[at:start])
            if hole and end - start > 4 and text[start + 1] == "{" and not begins_line(text, start):
                pieces.append(hole)
        at = max(at, end)
    pieces.append(text[at:])
    return "".join(pieces)


_TABLE = -1


class _Stack:
    """Stack of open braces: `[position, count]`; a table's count is `_TABLE`."""

    def __init__(self) -> None:
        self.open: list[list[int]] = []
        self.tables = 0

    def push(self, position: int, count: int) -> None:
        self.open.append([position, count])
        self.tables += count == _TABLE

    def pop(self) -> int:
        position, count = self.open.pop()
        self.tables -= count == _TABLE
        return position

    @property
    def templates(self) -> int:
        return len(self.open) - self.tables

    @property
    def in_template(self) -> bool:
        return bool(self.open) and self.open[-1][1] != _TABLE


def _spans_of_braces(text: str) -> list[Span]:
    """Return the spans of templates, parameters and tables, paired as in MediaWiki."""
    stack = _Stack()
    spans: list[Span] = []
    for match in _BRACES.finditer(text):
        token, at, end = match[0], match.start(), match.end()
        if token == "{|":
            if begins_line(text, at):
                stack.push(at, _TABLE)
            continue
        if token[0] == "{":
            stack.push(at, len(token))
            spans.append((at, end))
            continue
        count = len(token)
        row = stack.tables and text[at - 1] == "|" and begins_line(text, at - 1)
        # `|}` ends a table, but `|}}` ends a template if one was opened last.
        if row and not (stack.in_template and count >= 2):
            while stack.in_template:
                stack.pop()
            spans.append((stack.pop(), at + 1))
            count, at = count - 1, at + 1
        if count >= 2:
            spans.append((at, end))
            _close(stack, spans, at, count)
    # An unclosed table loses its first line here, but for the bar by which `lines` knows its cells.
    for at, count in stack.open:
        spans += [(at, at + 1), (at + 2, _end_of_line(text, at))] if count == _TABLE else []
    return spans


def begins_line(text: str, at: int) -> bool:
    """Return whether only blanks and list markers precede `at` in its line."""
    if (last := text[at - 1 : at]) == "\n" or last not in " \t:*#;":
        return last == "\n"
    _, line_break, before = text[max(0, at - 16) : at].rpartition("\n")
    return bool(line_break) and not before.strip(" \t:*#;")


def is_alone(match: re.Match[str]) -> bool:
    """Return whether only markers, blanks and marks are in the lines of a match."""
    after = match.string[match.end() : match.end() + 8]
    return begins_line(match.string, match.start()) and not after.partition("\n")[0].strip(" \t.,;:")


def _close(stack: _Stack, spans: list[Span], at: int, count: int) -> None:
    """Pair `count` closing braces at `at` with open ones."""
    while count >= 2 and stack.templates:
        while not stack.in_template:
            stack.pop()
        opened = stack.open[-1]
        pair = 3 if count >= 3 and opened[1] >= 3 else 2
        opened[1] -= pair
        at, count = at + pair, count - pair
        spans.append((opened[0] + opened[1], at))
        if opened[1] < 2:
            stack.pop()


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


# File name extensions: a target with one of these is a file, whatever the namespace is called.
_MEDIA = "jpe?g|png|gif|svg|tiff?|webp|xcf|pdf|djvu|og[agv]|opus|flac|mp[34]|midi?|wav|webm"


class Links:
    """Replacer of links `[[target|label]]` by their labels; drops files, categories, languages."""

    def __init__(self, dropped: Iterable[str]) -> None:
        names = sorted({name.replace("_", " ").lower() for name in dropped})
        alternatives = "|".join(re.escape(name).replace(r"\ ", "[ _]") for name in names)
        media = rf"[^\[\]|:\n]++:[^\[\]|\n]*?\.(?:{_MEDIA})[ _]*+(?=[|\]])"
        prefix = rf"[ _]*+(?=[^\[\]|:\n]{{1,40}}:)(?:(?:{alternatives})[ _]*+:|{media})"
        nested = r"(?:\[\[[^\[\]]*+\]\]|\[[^\[\]]*+\])"
        self._prefix = re.compile(prefix, re.IGNORECASE)
        self._dropped = re.compile(rf"\[\[{prefix}[^\[\]]*+(?:{nested}[^\[\]]*+)*+\]\]", re.IGNORECASE)

    def resolve(self, text: str) -> str:
        """Replace links by their labels; of unpaired brackets, remove only the brackets."""
        if "[[" in text:
            text = self._dropped.sub("", text)
            text = "".join(_LINK.split(text))
        if "[[" in text or "]]" in text:
            text = _cut(text, self._spans(text))
        return text

    def _spans(self, text: str) -> list[Span]:
        spans: list[Span] = []
        stack: list[tuple[int, int]] = []  # open links: position, and position of the label
        tokens = list(_DOUBLE.finditer(text))
        for number, match in enumerate(tokens):
            at, end = match.span()
            if match[0] == "[[":
                following = tokens[number + 1].start() if number + 1 < len(tokens) else len(text)
                pipe = text.find("|", end, following)
                stack.append((at, end if pipe < 0 else pipe + 1))
            elif stack:
                start, label = stack.pop()
                dropped = self._prefix.match(text, start + 2)
                spans += [(start, end)] if dropped else [(start, label), (at, end)]
            else:
                spans.append((at, end))
        line = 0  # the end of the last line that was looked for
        for start, _ in stack:
            dropped = self._prefix.match(text, start + 2)
            if dropped and start >= line:
                line = _end_of_line(text, start)
            spans.append((start, line if dropped else start + 2))
        return spans


_LINK = re.compile(r"\[\[[:\s]*+(?:[^\[\]|\n]*+\|)?([^\[\]]*+)\]\]")
_DOUBLE = re.compile(r"\[\[|\]\]")
_EXTERNAL = re.compile(
    r"\[(?:(?:https?|ftps?|ircs?|gopher|telnet|nntp|svn|git|mms|worldwind):|(?=//))//[^][<>\"\s]*+"
    r"[ \t]*+([^\[\]\n]*+)\]"
    r"|\[(?:mailto|news|tel|sms|urn|geo|magnet|sip|xmpp):[^][<>\"\s]++[ \t]*+([^\[\]\n]*+)\]",
    re.IGNORECASE,
)


def resolve_external(text: str) -> str:
    """Replace `[http://... label]` by its label, possibly empty; keep bare URLs."""
    return _EXTERNAL.sub(lambda match: match[1] or match[2] or "", text) if "[" in text else text
