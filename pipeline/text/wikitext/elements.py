"""Markup in angle brackets: comments, extension tags, references, HTML."""

import re

# nowiki content passes the other steps with markup characters replaced by noncharacters
# (U+FDD0 ...), which do not occur in text; they are restored at the end.
_MARKUP = "[]{}|<>'=*#;:!_-"
_DISGUISE = {ord(char): 0xFDD0 + number for number, char in enumerate(_MARKUP)} | {0x0A: 0x20}
_UNDISGUISE = {0xFDD0 + number: char for number, char in enumerate(_MARKUP)}
APOSTROPHE = chr(_DISGUISE[ord("'")])  # not a quote of bold or italics
_DISGUISED = re.compile("[\ufdd0-\ufddf]")

# A start tag: quoted values may hold `>`. If quotes do not pair up, it ends at the next `>`.
_ATTRIBUTES = r"""(?:[^<>"]*+(?:"[^"<\n]*+"[^<>"]*+)*+|[^<>]*+)"""
# Up to the end tag, and never past another start tag of the same name: the innermost element is
# found first, and an unclosed start tag does not cause backtracking.
_ELEMENT = r"<(?!/)({names})\b" + _ATTRIBUTES + r"(?:(?<=/)>|>([^<]*+(?:<(?!/?\1\b)[^<]*+)*+)</\1\s*+>)"


def _element(*names: str) -> str:
    return _ELEMENT.format(names="|".join(names))


# Elements whose content is not wikitext or not prose: code, formulas, music, images, data.
_CODE = """
nowiki pre math chem ce syntaxhighlight source score timeline hiero graph gallery imagemap mapframe
maplink inputbox templatedata templatestyles categorytree indicator includeonly dynamicpagelist
section style script
"""
_OPAQUE = re.compile("<!--.*?(?:-->|\\Z)|" + _element(*_CODE.split()), re.IGNORECASE | re.DOTALL)
_NESTED = re.compile(_element("ref", "references", "table"), re.IGNORECASE)
_NESTED_END = re.compile("</(?:ref|references|table)", re.IGNORECASE)
_DEEPEST = 20  # levels of nesting removed

# A comment alone on its line is removed with the line; a blank line would split a paragraph.
_COMMENT_LINE = re.compile(r"\n[ \t]*+<!--(?:[^-]|-(?!->))*+(?:-->([ \t]*+(?=\n))?|\Z)")

_INLINE = """
a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark nobr q rb rp rt
rtc ruby s samp small span strike strong sub sup time tt u var wbr noinclude onlyinclude ref
references nowiki includeonly ce chem math gallery poem section translate tvar
"""
_BREAKING = """
address article aside blockquote br button caption center col colgroup dd details div dl dt
figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol p pre section summary table
tbody td tfoot th thead tr ul
"""
_TAG = re.compile(
    "</?(" + "|".join(sorted(set(_INLINE.split()) | set(_BREAKING.split()))) + r")\b[^<>]*+>", re.IGNORECASE
)
_BETWEEN = dict.fromkeys(_BREAKING.split(), "\n\n") | {"br": " "}

_POEM = re.compile(r"<poem\b[^<>]*+>([^<]*+(?:<(?!/?poem\b)[^<]*+)*+)</poem\s*+>", re.IGNORECASE)


def remove_opaque(text: str) -> str:
    """Remove comments and elements whose content is not prose; disguise nowiki content."""
    if "<!--" in text:
        text = _COMMENT_LINE.sub(lambda match: match[0] if match[1] is None else "", text)
    return _OPAQUE.sub(_replace_opaque, text)


def _replace_opaque(match: re.Match[str]) -> str:
    name, content = match.groups()
    return (content or "").translate(_DISGUISE) if name and name.lower() == "nowiki" else ""


def reveal(text: str) -> str:
    """Restore nowiki content."""
    return text.translate(_UNDISGUISE) if _DISGUISED.search(text) else text


def remove_references(text: str) -> str:
    """Remove references and HTML tables, including nested ones."""
    for _ in range(_DEEPEST):
        text, count = _NESTED.subn("", text)
        if not count or not _NESTED_END.search(text):
            break
    return text


def strip_tags(text: str) -> str:
    """Remove HTML tags; block elements become paragraphs."""
    if "<" not in text:
        return text
    text = _POEM.sub(lambda match: "\n\n" + match[1].replace("\n", "\n\n") + "\n\n", text)
    return _TAG.sub(lambda match: _BETWEEN.get(match[1].lower(), ""), text)
