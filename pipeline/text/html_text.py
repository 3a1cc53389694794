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
# Marks: what follows is higher, lower, no more so. No text has these numbers, which are of no letter.
RAISED, LOWERED, EVEN = "\u0378\u0379\u0380"
_SCRIPT = re.compile(r"<(/?+)([sS][uU][bBpP])\b[^<>]*+>")
# Digits next to digits, by their height: 10^6 is not 106, 101_2 not 1012, 1F_16 not 1F16, and a blank divides 5 1/2 and
# 3d10 4s2. A mark comes first, as it is looked for; the group that matches says what it becomes.
_HEIGHT = re.compile(
    rf"[{RAISED}{LOWERED}{EVEN}](?:(?<=\d.)(?:"
    rf"(?:(?<={RAISED})(?=\d++{EVEN}(?:/{LOWERED}|⁄|&frasl;|&#8260;))|(?<={EVEN}){EVEN}*+(?={LOWERED}?\d))()"
    rf"|(?:(?<={RAISED})|(?<={EVEN}){EVEN}*+{RAISED})(?=(?:[-\u2212\u2013+]|&minus;|&#8722;)?\d|[knx]\b)()"
    rf"|(?<={LOWERED})(?=\d)())|(?<=[\dA-F][A-F]{LOWERED})(?=16{EVEN}(?!\w))()|(?<= .){EVEN}*+ ++)?"
)
_SIGNS = {None: "", 1: " ", 2: "^", 3: "_", 4: "_"}
# A picture of the first letter of a word, as of `<img alt="O"/>nce`.
_LETTER = re.compile(r"<img\b(?![^<>]{0,400}math)[^<>]{0,400}?\balt=.([^\W\d_])\W[^<>]{0,400}+>(?=(?:</\w+>)?[^\W\d_])")
_TIME = re.compile(  # left out elsewhere; a mark between two may have company
    r"<time\b(?:(?<=[^\s<>] <time)|(?<=[(\[\u2013/\u2060-]<time)|(?<=<p><time)(?=[^<>]*+>[^<>]*+</time>,?\s\w))"
    r"[^<>]*+>([^<>]*+)</time>"
)
# The number of a note: raised, and linked to a place.
_NUMBER = r"\s*+[\[(]?(?:\d{1,4}|[a-z*†‡§])(?:[,\u2013-]\d{1,4})*+[\])]?\s*+"
_PLACE = r"<a\b(?=[^<>]*#)[^<>]*+>"
_NOTE = re.compile(
    rf"<(?:sup\b[^<>]*+>(?:[\s,\u2013-]*+{_PLACE}{_NUMBER}</a>)++\s*+</sup>"
    rf"|{_PLACE[1:]}\s*+<sup\b[^<>]*+>{_NUMBER}</sup>\s*+</a\s*+>)"
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
# Of MathML: what is between the parts of an element, and before and after them.
JOINTS = {"msup": [RAISED], "msub": [LOWERED], "mfrac": ["/"], "mroot": ["^1/"], "msqrt": list[str]()}
JOINTS |= {"msubsup": [LOWERED, RAISED], "munderover": [LOWERED, RAISED]}
BEFORE = {"sup": RAISED, "sub": LOWERED, "mfrac": EVEN, "msqrt": "√"}
_BLANK = re.compile(r">\s++(?=</?m(?:[ino]|row|s(?:up|ub|ubsup|qrt|tyle)|frac|root|under|over|underover)\b)")
_UNDIVIDED = re.compile(r"</(?:summary|legend)\s*+>")  # blocks, of which the library divides no text


def mark_heights(page: str) -> str:
    """Return a page with marks of height at its tags, for `plain_heights`, and letters for initials."""
    page = _LETTER.sub(r"\1", page) if "<img" in page else page
    return _SCRIPT.sub(lambda tag: EVEN + tag[0] if tag[1] else tag[0] + BEFORE[tag[2].lower()], page)


def plain_heights(text: str) -> str:
    """Return a text with signs and blanks between digits of different heights, for the marks of height in it."""
    if RAISED not in text and LOWERED not in text and EVEN not in text:
        return text
    return _HEIGHT.sub(lambda mark: _SIGNS[mark.lastindex], text)


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
    page = _NOTE.sub("", page) if "<sup" in page else page
    page = _UNDIVIDED.sub(r"<br>\g<0>", _ALONE.sub(_accompanied, mark_heights(page)))
    page = _BLANK.sub(">", page) if "<math" in page else page
    tree = parser.HTMLTree.parse(_TIME.sub(r"\1", page) if "<time" in page else page)
    if tree.document.query_selector(_TOO_DEEP) is not None:
        raise ValueError(f"elements are nested deeper than {DEEPEST:,}")
    for node in tree.document.query_selector_all(",".join(JOINTS)) if "<math" in page else ():
        part = node.first_element_child
        for joint in JOINTS[node.tag] if part is not None else ():
            part.append_child(tree.create_text_node(joint))
            part = part.next_element or part
        if mark := BEFORE.get(node.tag):
            node.insert_before(tree.create_text_node(mark + _COMPANY), node.first_child)
        node.append_child(tree.create_text_node(EVEN))
    text: str = to_text.extract_plain_text(
        tree, main_content=True, comments=False, list_bullets=False, skip_elements=_SKIPPED
    )
    text = plain_heights(text.replace(_COMPANY, ""))
    return "\n".join(filter(None, (line.strip() for line in text.split("\n"))))


def _accompanied(text: re.Match[str]) -> str:
    return text[0] + _COMPANY * bool(re.fullmatch(_LONE, unescape(text[1])))
