"""The prose of HTML, by resiliparse: the same bytes on every run.

Lists near the root of a page would be left out as menus; alternative texts of images, readings of characters and TeX
of formulas would be kept.
"""

import re
from html import unescape

from pipeline.common.schema import library
from pipeline.storage import budget
from pipeline.text import encodings

# An empty element of XML, which for a parser of HTML begins and does not end.
_EMPTY = re.compile(r"<((?!(?:area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr)\b)([\w:.-]++)[^<>]*)/>")
_BODY = re.compile(r"<body\b[^<>]*+>|</head\s*+>", re.IGNORECASE)
_DEEPER = "<div><div><div>"  # a list counts as content from the fourth element below the body on
# Digits next to digits, by their height: 10^6 is not 106, 101_2 not 1012, and in 3d10 4s2 a blank divides them.
_SCRIPT = re.compile(
    r"<(?:sup\b[^<>]*+>(?=(?:<(?:i|em|var|a\b(?![^<>]*#)[^<>]*+)>)?(?:(?:[-\u2212\u2013+]|&minus;|&#8722;)?\d|[knx]\b))"
    r"|sub\b[^<>]*+>(?=\d)|/su[bp]>(?=(?:<sub>)?\d))"
)
_FRACTION = re.compile(r"<sup>(?<=\d<sup>)(?=\d++</sup>(?:/|⁄|&frasl;|&#8260;))")  # 5<sup>1</sup>/<sub>2</sub>
# A picture of the first letter of a word, as of `<img alt="O"/>nce`.
_LETTER = re.compile(r"<img\b(?![^<>]{0,400}math)[^<>]{0,400}?\balt=.([^\W\d_])\W[^<>]{0,400}+>(?=(?:</\w+>)?[^\W\d_])")
_TIME = re.compile(  # left out elsewhere; a mark between two may have company
    r"<time\b(?:(?<=[^\s<>] <time)|(?<=[(\[\u2013/\u2060-]<time))[^<>]*+>([^<>]*+)</time>"
)
# The number of a note: raised, and linked to a place.
_NUMBER = r"\s*+[\[(]?(?:\d{1,4}|[a-z*†‡§])[\])]?\s*+"
_NOTE = re.compile(
    rf"<sup\b[^<>]*+>(?:\s*+<a\b(?=[^<>]*#)[^<>]*+>{_NUMBER}</a>\s*+</sup>|{_NUMBER}</sup>(?=\s*+</a\s*+>))"
)
_SKIPPED = ["img", "svg", "footer", "rt", "rp", "annotation", "[role=doc-noteref]"]
# What MediaWiki puts around the prose, also in dumps of Wikimedia Enterprise and in ZIM; wikitext has it in templates.
_SKIPPED += ["sup.reference", ".mw-ref", ".Inline-Template", ".mw-editsection", "ol.references", ".infobox", ".navbox"]
_LARGE = f"its parts are larger than {budget.DOCUMENT:,} bytes"
DEEPEST = 1000  # elements in one another: the library takes the square of their number in time
_TOO_DEEP = ">".join("*" * (DEEPEST + 1))  # what it finds within 0.2 us an element
# A text of one character from U+0800 on, which the library takes for an icon of a font, as those of private use are.
_LONE = "[\u0800-\udfff\uf900-\uffff]"
_ALONE = re.compile(rf">\s*+({_LONE}|&#?\w++;)(?=\s*+<)")
_COMPANY = "\u2060"  # no icon has any; cleaning would remove it
_JOINTS = {"msup": "^", "msub": "_", "mfrac": "/"}  # of MathML: what is between the two parts, or before a root
_JOINTS["msqrt"] = f"√{_COMPANY}"
_UNDIVIDED = re.compile(r"</(?:summary|legend)\s*+>")  # blocks, of which the library divides no text


def plain_marks(page: str) -> str:
    """Return a page with marks and blanks between digits of different heights, and letters for initials."""
    page = _LETTER.sub(r"\1", page) if "<img" in page else page
    return _SCRIPT.sub(_marked, _FRACTION.sub(" <sup>", page)) if "<su" in page else page


def _marked(tag: re.Match[str]) -> str:
    """Return a tag behind a digit with the mark that it means."""
    before = tag.string[max(0, tag.start() - 7) : tag.start()]
    mark = " " if tag[0][1] == "/" else "^" if tag[0][3] == "p" else "_"
    before = before.removesuffix("</sub>") if mark == "^" else before
    return tag[0] + mark if before[-1:].isdecimal() else tag[0]


def decoded_text(raw: bytes, language: str, encoding: str | None) -> str:
    """Return the main text of a page, decoded as declared, as stated, or as detected.

    Raises:
        ValueError: it is not text; raised by `text_of`.
    """
    page = encodings.decode_page(raw, language, encoding)
    if encodings.is_binary(raw, page):
        raise ValueError(encodings.BINARY)
    return text_of(page)


def text_of(page: str) -> str:
    """Return the main text of a page or a piece of one, a paragraph per line.

    Raises:
        ValueError: elements are nested deeper than `DEEPEST`, or take too much memory.
        ConfigError: the library is not installed.
    """
    if "<" not in page:
        return unescape(page)
    if page.lstrip()[:5] == "<?xml":
        page = _EMPTY.sub(r"<\1></\2>", page).replace("<![CDATA[", "").replace("]]>", "")
    parser = library("resiliparse.parse.html", "corpus.reader", package="resiliparse")
    to_text = library("resiliparse.extract.html2text", "corpus.reader", package="resiliparse")
    budget.Budget(lambda: ValueError(_LARGE)).take(budget.parsed_size(page, ("<",)))
    head = max((at.end() for at in _BODY.finditer(page, 0, 1 << 20)), default=0)
    page = page[:head] + _DEEPER + page[head:]
    page = _NOTE.sub(_unnumbered, page) if "<sup" in page else page
    page = _UNDIVIDED.sub(r"<br>\g<0>", _ALONE.sub(_accompanied, plain_marks(page)))
    tree = parser.HTMLTree.parse(_TIME.sub(r"\1", page) if "<time" in page else page)
    if tree.document.query_selector(_TOO_DEEP) is not None:
        raise ValueError(f"elements are nested deeper than {DEEPEST:,}")
    for node in tree.document.query_selector_all(",".join(_JOINTS)):
        if node.tag == "msqrt":
            node.insert_before(tree.create_text_node(_JOINTS[node.tag]), node.first_child)
        elif (first := node.first_element_child) is not None and (node.tag == "mfrac" or first.text[-1:].isdigit()):
            first.append_child(tree.create_text_node(_JOINTS[node.tag]))
    text: str = to_text.extract_plain_text(
        tree, main_content=True, comments=False, list_bullets=False, skip_elements=_SKIPPED
    )
    return "\n".join(filter(None, (line.strip() for line in text.replace(_COMPANY, "").split("\n"))))


def _unnumbered(raised: re.Match[str]) -> str:
    """Return nothing for the number of a note; a number within another link stays."""
    tag = raised.string[max(0, raised.start() - 400) : raised.start()].rstrip().rpartition("<")[2]
    noted = "<a" in raised[0] or (tag[:1] in "aA" and tag[1:2].isspace() and tag[-1:] == ">" and "#" in tag)
    return "" if noted else raised[0]


def _accompanied(text: re.Match[str]) -> str:
    return text[0] + _COMPANY * bool(re.fullmatch(_LONE, unescape(text[1])))
