"""The prose of Markdown: CommonMark with what GitHub, Obsidian, MyST and makers of sites add, read as HTML.

By pulldown-cmark of Rust: markdown-it-py is a fiftieth as fast.
"""

import re
from collections import Counter

from pyromark import Markdown, Options

from pipeline.text import epub

_PARSER = Markdown(
    options=Options.ENABLE_TABLES | Options.ENABLE_FOOTNOTES | Options.ENABLE_STRIKETHROUGH | Options.ENABLE_TASKLISTS
)
# Of front matter the library finds some in any place, of code none that is deep in HTML, of tables none with tabs.
_LEFT_OUT_BEFORE = {
    "front matter": re.compile(
        r"(?m)\A(?:---\n(?:[\w-]+:.*\n|[ \t#].*\n|-(?!--).*\n|\n)*+(?:---|\.\.\.)|\+{3}\n(?:(?!\+{3}).*\n)*+\+{3}) *$"
    ),
    "blocks of code": re.compile(r"(?m)^[ \t]*(```++|~~~++)[^`\n]*+\n(?:(?:(?![ \t]*\1).*\n)*+[ \t]*\1.*$)?"),
    "lines of tables": re.compile(r"(?m)^[ \t]*\|.*\|[ \t]*$"),
}
_LEFT_OUT = {"CodeBlock": "blocks of code", "Table": "tables", "FootnoteDefinition": "notes"}
# What is literal, also in HTML: ``so'' without code; a year that begins no list, a speaker that begins no link.
_QUOTE = re.compile(r"`(?=`?[^`']{1,400}'')")
_LITERAL = re.compile(r"(?m)\n([ \t>]*+(?:\d{3,4}(?=.\s)|\[[^\]^\n]++(?=\]: ++[^\s/#]*[^\w\s/#>)]$)))([.)\]])")
_UNENDED = ("p", "br", "hr", "img", "li", "dt", "dd", "td", "th", "tr", "wbr")  # other tags without an end are words
# What blank lines are put around: a tag that is alone, as what it is around is Markdown too; tables begin anywhere.
_APART = re.compile(r"(?m)\n([ \t]*+</?[a-zA-Z][^<>\n]*+>[ \t]*$|(?=[^|\n]*+\|.*+\n[ \t:-]*+\|[-:| \t]*+$))")
# Roles of MyST; links, pictures and kinds of quotations of Obsidian; attributes; marks of Liquid, Hugo and MDX.
_MARK = re.compile(
    r"(?=[{<!*\[%:>\n])(?:\{[\w:+-]++\}<code>([^<&]*?)(?: ?&lt;[^<]*+)?</code>|(<code>[^<]*+</code>)"
    r"|\*\*([^*<]++)\*\*|\[{1,2}_*(?i:toc)_*\]{1,2}|\[(?<![a-zA-Z0-9_]\[)\[(?:[^\[\]|<]*+\|)?([^\[\]|<]++)\]\]"
    r"|\[!\w+(?: <a [^<>]*+>[^<]*+</a>|[^<\[\]\n]*+)\][+-]?|(?<=[>\n]):::[^<\n]*+|\{(?!\.\.)[#.:][^{}<\n]*+\}(?=\n|</)"
    r"|\[([^\[\]<]++)\]\([^(){}<\s]*+\{[{%][^{}<]*+\}\}?[^()<\n]*+\)|\{\{(?:&lt;|%)[^{}<]*+\}\}|\{/\*[^*<]*+\*/\}"
    r"|\{%[^%<]*+%\}|%(?<!\d%)%[^%<]*+%%|([>\n])import (?:[^\n'\"]* from )?['\"][^\n'\"]*+['\"];?(?=\n|</p>)"
    r"|!\[\[[^\[\]<]*+\]\]"
    r"|<(script|style|template|head|title|svg|math|nav|video|iframe)\b[^<>]*+>(?:(?:(?!</?\7\b)[\s\S])*+</\7>)?)"
)


def unmarked(text: str) -> tuple[str, Counter[str]]:
    """Return paragraphs, between blank lines and without marks, and how often there was what else."""
    passed = Counter[str]()
    for what, mark in _LEFT_OUT_BEFORE.items():
        text, passed[what] = mark.subn("", text)
    text = _QUOTE.sub("&#96;", _APART.sub(r"\n\n\1\n\n", f"\n{text}"))  # an end of a line is found at once
    text = _LITERAL.sub(lambda mark: f"\n{mark[1]}&#{ord(mark[2])};", text)
    raw, pieces, end = text.encode(), list[bytes](), 0
    for event, at in _PARSER.events_with_range(text):
        match event:
            case {"Start": dict(tag)} if at["start"] >= end and (kind := _LEFT_OUT.get(next(iter(tag)))):
                # What is indented is verse, or whatever a book indents.
                block = raw[at["start"] : at["end"]] if tag == {"CodeBlock": "Indented"} else b""
                passed[kind] += not block
                pieces += [raw[end : at["start"]].rstrip(b" \t"), re.sub(rb"(?m)^[ \t>]+", b"", block) or b"\n"]
                end = at["end"]
    page = re.sub(r"<(?i:br)\b[^<>]*+>", " ", _PARSER.html(b"".join([*pieces, raw[end:]]).decode()))
    ended = {*_UNENDED, *re.findall(r"</([\w.:-]++)", page.lower())}
    page = re.sub(r"<(?=([a-zA-Z][\w.:-]*+)>)", lambda tag: "<" if tag[1].lower() in ended else "&lt;", page)
    # Of <![ the parser of HTML can make nothing.
    return "\n\n".join(epub.blocks("<p>" + _MARK.sub(r"\1\2\3\4\5\6", page).replace("<![", "["), passed)), passed
