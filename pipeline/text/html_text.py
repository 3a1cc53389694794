"""The prose of HTML, by resiliparse: the same bytes on every run.

Lists near the root of a page would be left out as menus, and alternative texts of images kept.
"""

import re
from html import unescape

from pipeline.common.schema import library
from pipeline.storage import budget

_BODY = re.compile(r"<body\b[^<>]*+>|</head\s*+>", re.IGNORECASE)
_DEEPER = "<div><div><div>"  # a list counts as content from the fourth element below the body on
# Elements that stay open; those without an end tag are not counted.
_TAG = re.compile(
    r"<(/?)(?!(?:area|br|col|hr|img|input|li|link|meta|option|p|source|td|th|tr|wbr)\b)[a-z]", re.IGNORECASE
)
_LARGE = f"its parts are larger than {budget.DOCUMENT:,} bytes"
DEEPEST = 1000  # elements in one another: the library takes the square of their number in time


def text_of(page: str) -> str:
    """Return the main text of a page or a piece of one, a paragraph per line.

    Raises:
        ValueError: elements are nested deeper than `DEEPEST`, or take too much memory.
        ConfigError: the library is not installed.
    """
    if "<" not in page:
        return unescape(page)
    extract = library("resiliparse.extract.html2text", "corpus.reader", package="resiliparse").extract_plain_text
    budget.Budget(lambda: ValueError(_LARGE)).take(budget.parsed_size(page, ("<",)))
    if page.count("<") > DEEPEST and _depth(page) > DEEPEST:
        raise ValueError(f"elements are nested deeper than {DEEPEST:,}")
    if at := list(_BODY.finditer(page, 0, 1 << 20))[-1:]:
        page = page[: at[0].end()] + _DEEPER + page[at[0].end() :]
    else:
        page = _DEEPER + page
    text: str = extract(
        page, main_content=True, comments=False, list_bullets=False, skip_elements=["img", "svg", "footer"]
    )
    return "\n".join(filter(None, (line.strip() for line in text.split("\n"))))


def _depth(page: str) -> int:
    depth = deepest = 0
    for tag in _TAG.finditer(page):
        depth = max(0, depth - 1) if tag[1] else depth + 1
        deepest = max(deepest, depth)
    return deepest
