"""Plain text from wikitext, by regular expressions for speed.

The steps work from the outside in, each leaving less for the next: comments and code, link
sections, references, templates and tables, links, quotes, tags, entities, lines. Templates that
carry text within sentences are rendered. The tests compare the result with mwparserfromhell's.
"""

import html.entities
import re
from collections import Counter
from functools import lru_cache

from pipeline.common.language_codes import wikipedia_code
from pipeline.common.tables import read_table
from pipeline.text.wikitext import brackets, elements, holes, lines, namespaces
from pipeline.text.wikitext.templates import Templates

_SWITCH = re.compile(r"__(?:[^\W_a-z]+(?:_[^\W_a-z]+)*|(?i:(?:no|force)?toc|noeditsection|nogallery|(?:no)?index))__")
_BAR = re.compile(r"(?<=\n)(\{?)\{\{!\}\}")  # of a table whose bars are templates
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
# All white space but the space and the line feed, and invisible characters.
_BLANKS = re.compile(r"[^\S\n ]")
_ODD = re.compile(
    r"[\0\t\x0b-\r\x1c-\x1f\x85\xa0\xad\u1680\u2000-\u200b\u200e\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]"
)
# Left in brackets by removed templates: nothing, or stray punctuation before the first word.
_EMPTY_WIDE = re.compile(r"（[ ,;:、，；：]*+）")
_LEADING = re.compile(r"\([ ,;:]++")
# Script variants: `-{zh-hans:计算机; zh-hant:電腦}-` is resolved to one of them.
# Source: https://www.mediawiki.org/wiki/Writing_systems/Syntax
_VARIANTS = read_table(__file__, "language_variants.yaml")
_PREFERRED = _VARIANTS["preferred"].split()
_VARIANT = re.compile(r"-\{([^{}]*+)\}-")
_CHOICE = re.compile(r"(?:^|;)\s*+(?:(?:[^;:=]|=(?!>))*+=>\s*+)*+([a-z]{2,4}(?:-[a-z]+)?)\s*+:", re.IGNORECASE)
_HIDDEN_FLAGS = frozenset("AHT-DN")  # flags: rules for later, the page's title, a description


class Extractor:
    """Converter of pages in one language's wikitext to plain text."""

    def __init__(
        self, language: str = "en", *, files: str | None = None, categories: str | None = None, keep: bool = False
    ) -> None:
        """Compile the patterns; `files` and `categories` are the wiki's names of namespaces."""
        self._language, self._keep = language, keep
        dropped = [*namespaces.FILES, *namespaces.CATEGORIES, *namespaces.LANGUAGES]
        dropped += [name for name in (files, categories) if name]
        self._links = brackets.Links(dropped)
        self._templates = Templates(language)
        self._variants = wikipedia_code(language) in _VARIANTS["converted"].split()
        words = "|".join(map(re.escape, namespaces.REDIRECTS))
        self._redirect = re.compile(rf"\s*#(?:{words})\s*:?\s*\[\[", re.IGNORECASE)

    def is_redirect(self, wikitext: str) -> bool:
        """Return whether the page is a redirect."""
        return self._redirect.match(wikitext) is not None

    def text(self, wikitext: str, counts: Counter[str] | None = None) -> str:
        """Return plain text: one paragraph, heading or list item per line; may be empty.

        `counts` takes the number of sentences left out as a part of them is markup, by its kind.
        """
        counts = Counter() if counts is None else counts
        text = "\n" + wikitext
        if "<" in text:
            text = elements.remove_opaque(text)
        text = lines.remove_link_sections(text)
        if "<" in text:
            text = elements.remove_references(text)
        text = self._templates.expand(_BAR.sub(r"\1|", text))
        if self._variants:
            text = _resolve_variants(text)
        text = brackets.remove_braces(text)
        text = self._links.resolve(text)
        text = brackets.resolve_external(text)
        text = _remove_quotes(text)
        text = elements.strip_tags(text, counts)
        if "__" in text:
            text = _SWITCH.sub("", text)
        if "&" in text:
            text = _ENTITY.sub(lambda match: _character(match[0]), text)
        if any(map(text.__contains__, holes.KINDS)):
            text = holes.HOLES.sub("", text) if self._keep else holes.leave_out(text, self._language, counts)
        text = _even(text)
        return elements.reveal(lines.paragraphs(text))


_QUOTES = re.compile(r"'{2,}")
_APOSTROPHE = re.compile(r"'''(?<=\w''')(?!')")


def _remove_quotes(text: str) -> str:
    """Remove the quotes of bold and italics; keep apostrophes among them."""
    if "''" not in text:
        return text
    if _APOSTROPHE.search(text):
        text = "\n".join([_keep_apostrophe(line) if "'''" in line else line for line in text.split("\n")])
    if "''''" in text:
        text = _QUOTES.sub(lambda match: "'" * {4: 1}.get(len(match[0]), len(match[0]) - 5), text)
    return text.replace("'''", "").replace("''", "")


def _keep_apostrophe(line: str) -> str:
    """Treat `l'''arbre''` as an apostrophe and italics if quotes do not pair up otherwise.

    Source: MediaWiki's Parser::doQuotes.
    """
    if not (marks := [match.start() for match in _APOSTROPHE.finditer(line)]):
        return line
    runs = [len(run) for run in _QUOTES.findall(line)]
    bold = sum(run in (3, 4) or run >= 5 for run in runs)
    italic = sum(run == 2 or run >= 5 for run in runs)
    if bold % 2 == 0 or italic % 2 == 0:
        return line
    after_letter = (at for at in marks if at < 2 or not line[at - 2].isalnum())
    at = next(after_letter, marks[0])
    return line[:at] + elements.APOSTROPHE + line[at + 1 :]


@lru_cache(maxsize=4096)
def _character(entity: str) -> str:
    """Return the character of `&name;`, or the input if it is unknown."""
    if entity[1] != "#":
        return html.entities.html5.get(entity[1:], entity)
    code = int(entity[3:-1], 16) if entity[2] in "xX" else int(entity[2:-1])
    if code in (9, 10, 13):
        return " "
    visible = 32 <= code < 0x110000 and not 0xD800 <= code < 0xE000 and not 0x7F <= code < 0xA0
    return chr(code) if visible else ""


def _even(text: str) -> str:
    """Normalise white space and remove punctuation left by removed templates."""
    text = text.replace("\xa0", " ")
    if _ODD.search(text):
        text = _ODD.sub("", _BLANKS.sub(" ", text))
    text = _LEADING.sub("(", text).replace(" ()", "")
    if "（" in text:
        text = _EMPTY_WIDE.sub("", text)
    while "  " in text:
        text = text.replace("  ", " ")
    return text.replace(" )", ")").replace(" ,", ",").replace(" ;", ";")


def _resolve_variants(text: str) -> str:
    """Replace each conversion block by one variant."""
    for _ in range(4):  # blocks within blocks
        if "-{" not in text:
            break
        text = _VARIANT.sub(_choose, text)
    return text


def _choose(match: re.Match[str]) -> str:
    content = match[1]
    flags, bar, rules = content.partition("|")
    wanted = {flag.strip().upper() for flag in flags.split(";")}
    if not bar or not all(len(flag) <= 1 or flag.lower() in _PREFERRED for flag in wanted):
        wanted, rules = set(), content  # a bar belonged to a link
    if wanted & _HIDDEN_FLAGS and "S" not in wanted and wanted != {"A"}:
        return ""
    if "R" in wanted:
        return rules
    starts = list(_CHOICE.finditer(rules))
    ends = [*[rule.start() for rule in starts], len(rules)][1:]
    choices = {
        rule[1].lower(): rules[rule.end() : end].strip().rstrip(";") for rule, end in zip(starts, ends, strict=True)
    }
    return next((choices[variant] for variant in (*_PREFERRED, *choices) if variant in choices), rules)
