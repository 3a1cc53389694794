"""Markup in angle brackets: comments, extension tags, references, HTML."""

import re
from collections import Counter

from pipeline.common.tables import read_table
from pipeline.text.html_text import BEFORE, EVEN, plain_heights
from pipeline.text.wikitext import brackets
from pipeline.text.wikitext.holes import CODE, END, FORMULA, TAG, spoken

# nowiki content passes the other steps with markup characters replaced by noncharacters
# (U+FDD0 ...), which do not occur in text; they are restored at the end.
_MARKUP = "[]{}|<>'=*#;:!_-"
_DISGUISE = {ord(char): 0xFDD0 + number for number, char in enumerate(_MARKUP)} | {0x0A: 0x20}
_UNDISGUISE = {chr(0xFDD0 + number): char for number, char in enumerate(_MARKUP)}
APOSTROPHE = chr(_DISGUISE[ord("'")])  # not a quote of bold or italics
_DISGUISED = re.compile("[\ufdd0-\ufddf]")

# A start tag: quoted values may hold `>`. If quotes do not pair up, it ends at the next `>`.
_ATTRIBUTES = r"""(?:[^<>"]*+(?:"[^"<\n]*+"[^<>"]*+)*+|[^<>]*+)"""
# Up to the end tag, and never past another start tag of the same name: the innermost element is
# found first, and an unclosed start tag does not cause backtracking.
_ELEMENT = r"<(?!/)({names})\b" + _ATTRIBUTES + r"(?:(?<=/)>|>([^<]*+(?:<(?!/?\1\b)[^<]*+)*+)</\1\s*+>)"


def _element(*names: str) -> str:
    return _ELEMENT.format(names="|".join(names))


_TAGS = {kind: names.split() for kind, names in read_table(__file__, "tags.yaml").items()}
_HOLES = {name: hole for kind, hole in (("formula", FORMULA), ("code", CODE), ("shown", TAG)) for name in _TAGS[kind]}
# `<ref` is passed by early: most tags are.
_ELEMENTS = _element(*_HOLES, *_TAGS["nothing"]).replace("(?!/", "(?!/|ref", 1)
_OPAQUE = re.compile(f"<!--.*?(?:-->|\\Z)|{_ELEMENTS}", re.IGNORECASE | re.DOTALL)
_NESTED = re.compile(_element("ref", "references", "table"), re.IGNORECASE)
_NESTED_END = re.compile("</(?:ref|references|table)", re.IGNORECASE)
_SHORT = re.compile(r"[^\n\t]{1,32}")  # code that is kept within a sentence
_DEEPEST = 20  # levels of nesting removed

# A comment alone on its line is removed with the line; a blank line would split a paragraph.
_COMMENT_LINE = re.compile(r"\n[ \t]*+<!--(?:[^-]|-(?!->))*+(?:-->([ \t]*+(?=\n))?|\Z)")

_BETWEEN = _HOLES | dict.fromkeys(_TAGS["nothing"] + _TAGS["inline"], "")  # of elements without an end, too
_BETWEEN |= dict.fromkeys(_TAGS["breaking"], "\n\n") | {"br": " "}
_TAG = re.compile(r"</?([A-Za-z][\w-]*+(?::[A-Za-z][\w-]*+)?+)([^<>]*+)>")
_TAB = re.compile(r"(?:<tabber>|\|-\|)\s*+[^=\n<|]*+=", re.IGNORECASE)
_WORDS = re.compile(r"\b(?:[^\W\d_]++[,;]? ){3}|[。！？।]")
_MOST = 16  # names of unknown tags whose elements are looked for
_POEM = re.compile(r"<poem\b[^<>]*+>([^<]*+(?:<(?!/?poem\b)[^<]*+)*+)</poem\s*+>", re.IGNORECASE)


def remove_opaque(text: str) -> str:
    """Remove comments and elements whose content is not prose; disguise nowiki content."""
    if "<!--" in text:
        text = _COMMENT_LINE.sub(lambda match: match[0] if match[1] is None else "", text)
    return _OPAQUE.sub(_replace_opaque, text)


def _replace_opaque(match: re.Match[str]) -> str:
    name, content = (match[1] or "").lower(), (match[2] or "").strip()
    if name == "nowiki":
        return (match[2] or "").translate(_DISGUISE)
    hole = _HOLES.get(name, "")
    if brackets.is_alone(match):
        return hole if hole in (FORMULA, CODE) else ""
    said = spoken(content) if hole == FORMULA else content if hole == CODE and _SHORT.fullmatch(content) else ""
    return said.translate(_DISGUISE) or (f"\n\n{hole}\n\n" if hole == CODE and "\n" in content else hole)


def reveal(text: str) -> str:
    """Restore nowiki content."""
    return _DISGUISED.sub(lambda match: _UNDISGUISE[match[0]], text)


def remove_references(text: str) -> str:
    """Remove references and HTML tables, including nested ones."""
    for _ in range(_DEEPEST):
        text, count = _NESTED.subn("", text)
        if not count or not _NESTED_END.search(text):
            break
    return text


def strip_tags(text: str, counts: Counter[str]) -> str:
    """Remove tags; block elements become paragraphs. Of unknown elements only prose is kept; they are counted."""
    if "<" not in text:
        return text
    text = _POEM.sub(lambda match: "\n\n" + match[1].replace("\n", "\n\n") + "\n\n", text)
    if "tabber>" in text:
        text = _TAB.sub("\n\n", text)
    unknown = set[str]()

    def between(match: re.Match[str]) -> str:
        name = match[1].lower()
        if name in ("sup", "sub"):
            return EVEN if match[0][1] == "/" else BEFORE[name]
        if name not in _BETWEEN and (not match[2] or match[2][0] in " \t\n/"):
            unknown.add(name)
        return _BETWEEN.get(name, match[0])

    text = plain_heights(_TAG.sub(between, text))
    if unknown:
        element = _element(*sorted(unknown, reverse=True)[:_MOST])
        text, elements = re.subn(element, _prose, text, flags=re.IGNORECASE)
        text, tags = _TAG.subn(lambda match: TAG if match[1].lower() in unknown else match[0], text)
        counts["unknown tags"] += elements + tags
    return text


def _prose(element: re.Match[str]) -> str:
    """Return the content of an unknown element if it has sentences."""
    content = _TAG.sub("\n\n", element[2] or "")
    return f"\n\n{content}\n\n" if END.search(content.rstrip()) and _WORDS.search(content) else TAG
