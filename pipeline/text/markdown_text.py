"""The prose of Markdown: CommonMark with what GitHub, Obsidian, MyST and makers of sites add, read as HTML."""

import re
from collections import Counter

from pyromark import Markdown, Options

from pipeline.text import epub

_PARSER = Markdown(
    options=Options.ENABLE_TABLES | Options.ENABLE_FOOTNOTES | Options.ENABLE_STRIKETHROUGH | Options.ENABLE_TASKLISTS
)
# The library finds front matter in any place, between two rules, and no code that is deep in HTML.
_FRONT_MATTER = re.compile(
    r"(?m)\A(?:---\n(?:[\w-]+:.*\n|[ \t#].*\n|-(?!--).*\n|\n)*+(?:---|\.\.\.)|\+{3}\n(?:(?!\+{3}).*\n)*+\+{3}) *$"
)
_FENCED = re.compile(r"^[ \t]*(```++|~~~++)[^`\n]*+\n(?:(?:(?![ \t]*\1).*\n)*+[ \t]*\1.*$)?", re.MULTILINE)
_LEFT_OUT = {"CodeBlock": "blocks of code", "Table": "tables", "FootnoteDefinition": "notes"}
# What a backslash makes literal: a year that begins no list, a speaker that begins no link, ``so'' without code.
_LITERAL = re.compile(r"(\n(?:\d{3,4}(?=[.)]\s)|\[[^\]^\n]++(?=\]: ++(?!\S*(?:[/#]|\.\w))\S)))|(`)(?=`?[^`']{1,400}'')")
_TAG = re.compile(r"^[ \t]*+</?[a-zA-Z][^<>\n]*+>[ \t]*$", re.MULTILINE)  # alone: what it is around is Markdown too
# Roles of MyST; links, pictures and kinds of quotations of Obsidian; attributes; marks of Liquid, Hugo and MDX.
_MARK = re.compile(
    r"(?=[{<!*\[%:i])(?:\{[\w:+-]++\}<code>([^<&]*?)(?: ?&lt;[^<]*+)?</code>|(<code>[^<]*+</code>)|!\[\[[^\[\]<]*+\]\]"
    r"|\*\*([^*<]++)\*\*|\[{1,2}_*(?i:toc)_*\]{1,2}|\[\[(?:[^\[\]|<]*+\|)?([^\[\]|<]++)\]\]|\{/\*[^*<]*+\*/\}"
    r"|\[!\w+(?: <a [^<>]*+>[^<]*+</a>|[^<\[\]\n]*+)\][+-]?|(?<=[>\n]):::[^<\n]*+|\{[#.:][^{}<\n]*+\}(?=\n|</)"
    r"|\{%[^%<]*+%\}|\{\{(?:&lt;|%)[^{}<]*+\}\}|(?<=[>\n])import [^\n]*['\"];?(?=\n|</p>)|%%[^%<]*+%%"
    r"|<(script|style|template|head|title|svg|math|nav|video|iframe)\b[^<>]*+>(?:(?:(?!</?\5\b)[\s\S])*+</\5>)?)"
)


def unmarked(text: str) -> tuple[str, Counter[str]]:
    """Return paragraphs, between blank lines and without marks, and how often there was what else."""
    passed = Counter[str]()
    text, passed["front matter"] = _FRONT_MATTER.subn("", text)
    text, passed["blocks of code"] = _FENCED.subn("", text)
    text = _LITERAL.sub(r"\1\\\2", _TAG.sub(r"\n\n\g<0>\n\n", text))
    raw, pieces, end = text.encode(), list[bytes](), 0
    for event, at in _PARSER.events_with_range(text):
        match event:
            case {"Start": dict(tag)} if at["start"] >= end and (kind := _LEFT_OUT.get(next(iter(tag)))):
                # What is indented is verse, or whatever a book indents.
                block = raw[at["start"] : at["end"]] if tag == {"CodeBlock": "Indented"} else b""
                passed[kind] += not block
                pieces += [raw[end : at["start"]].rstrip(b" \t"), re.sub(rb"(?m)^[ \t>]+", b"", block), b"\n"]
                end = at["end"]
    page = _PARSER.html(b"".join([*pieces, raw[end:]]).decode()).replace("<br />\n", "\n")
    ended = frozenset(re.findall("</([a-z]++)", page))  # others are words, as <unk>
    page = re.sub("<(?=([a-z]{3,})>)", lambda tag: "<" if tag[1] in ended else "&lt;", page)
    # Of <![ the parser of HTML can make nothing.
    return "\n\n".join(epub.blocks(_MARK.sub(r"\1\2\3\4", page).replace("<![", "["), passed)), passed
