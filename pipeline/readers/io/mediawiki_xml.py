"""MediaWiki's export format, versions 0.3 to 0.11: bytes of a dump -> pages.

Source: https://www.mediawiki.org/wiki/Help:Export#Export_format
"""

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast
from xml.etree.ElementTree import Element

from pipeline.common import storage
from pipeline.common.errors import InputError
from pipeline.readers import FileRange
from pipeline.readers.io import compressed

_ROOT, _OPEN, _CLOSE, _END = b"<mediawiki>", b"<page>", b"</page>", b"</mediawiki>"
# What XML raises that is broken, in an encoding that the parser has not, or with words for numbers.
MALFORMED = (ET.ParseError, ValueError, LookupError)
_READ_ON = 64  # chunks of at most a megabyte: more than a block of bzip2 has
_HELD = 64  # bytes held back at the end of a chunk: more than the tags above and a few blanks


@dataclass(frozen=True, slots=True)
class Site:
    """What a dump says of its wiki."""

    database: str = ""  # such as enwiki
    namespaces: dict[int, str] = field(default_factory=dict)  # number -> local name
    utf8: bool = True  # only then may a part of it be read without what is before


@dataclass(slots=True)
class Page:
    """One page, with its newest revision."""

    id: str = ""
    title: str = ""
    namespace: int | None = None  # None: an old dump, where only the title tells
    redirect: bool = False
    timestamp: str = ""  # ISO 8601, so that the order of strings is that of times
    model: str = "wikitext"
    text: str = ""


def site(path: str) -> Site:
    """The header of a dump.

    Raises:
        InputError: the file is damaged, or no dump.
    """
    parser: ET.XMLPullParser[Any] = ET.XMLPullParser(("start", "end"))
    database, namespaces, utf8 = "", dict[int, str](), True
    root = None
    chunks = compressed.read(FileRange(path, 0, 1))
    try:
        for count, (data, _) in enumerate(chunks):
            if count == 0:
                utf8 = data[:2] not in (b"\xff\xfe", b"\xfe\xff") and b"<page>"[:1] in data[:64]
                declared = data[:100].partition(b"encoding=")[2][1:6].lower()
                utf8 = utf8 and declared in (b"", b"utf-8")
            parser.feed(data)
            for event, element in _events(parser):
                tag = _local(element)
                if root is None:
                    root = _check_root(path, tag)
                if (event, tag) == ("end", "dbname"):
                    database = element.text or ""
                elif (event, tag) == ("end", "namespace"):
                    namespaces[int(element.get("key", "0"))] = element.text or ""
                elif (event, tag) in (("end", "siteinfo"), ("start", "page")):
                    return Site(database, namespaces, utf8)
        parser.close()
    except MALFORMED as error:
        raise malformed(path, chunks, str(error)) from error
    return Site(database, namespaces, utf8)


def pages(split: FileRange) -> Iterator[Page]:
    """The pages that start in a part of a dump, in order.

    Raises:
        InputError: the file is damaged, cut off, not well-formed, or no dump.
    """
    parser: ET.XMLPullParser[Any] = ET.XMLPullParser(("start", "end"))
    root: Element | None = None
    element: Element | None = None
    page, last = Page(), ""
    chunks = _document(split)
    try:
        for data in chunks:
            parser.feed(data)
            for event, child in _events(parser):
                tag = _local(child)
                if event == "start":
                    if root is None:
                        root = child
                        _check_root(split.path, tag)
                    elif tag == "page":
                        element, page = child, Page()
                elif tag == "revision" and element is not None:
                    _revise(page, child)
                    del element[-1]  # a page may have a million revisions
                elif tag == "page" and element is not None and root is not None:
                    _complete(page, child)
                    root.clear()
                    element = None
                    last = page.id
                    yield page
        if root is not None:
            parser.close()
    except MALFORMED as error:
        start = f" counted from the first page after byte {split.start}" if split.start else ""
        after = f", after the page with id {last}" if last else ""
        raise malformed(split.path, chunks, f"{error}{start}{after}") from error


def malformed(path: str, rest: Iterator[object], why: str) -> InputError:
    """That the XML is broken, once the `rest` has shown that it is not the packed file that is.

    A damaged block unpacks to anything; that its checksum is wrong is only seen at its end.

    Raises:
        InputError: the packed file is damaged.
    """
    for _ in itertools.islice(rest, _READ_ON):
        pass
    kind = compressed.compression(path)
    hint = f"; `{kind} -t {path}` tells whether the file is damaged" if kind != "plain" else ""
    return InputError(f"{path}: not well-formed XML: {why}{hint}")


def _events(parser: "ET.XMLPullParser[Any]") -> Iterator[tuple[str, Element]]:
    """Start and end events: no others are asked for."""
    return cast(Iterator[tuple[str, Element]], parser.read_events())


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _revise(page: Page, revision: Element) -> None:
    """Take a revision into `page` if it is newer than what is there."""
    parts = {_local(part): part.text or "" for part in revision}
    if (timestamp := parts.get("timestamp", "")) >= page.timestamp:
        page.timestamp = timestamp
        page.model = parts.get("model") or "wikitext"  # before 0.6 there was no other
        page.text = parts.get("text", "")


def _complete(page: Page, element: Element) -> None:
    """Take what stands outside the revisions."""
    for part in element:
        tag, value = _local(part), part.text or ""
        if tag == "title":
            page.title = value
        elif tag == "id":
            page.id = value
        elif tag == "ns":
            page.namespace = int(value)
        elif tag == "redirect":
            page.redirect = True


def _check_root(path: str, tag: str) -> str:
    if tag != "mediawiki":
        raise InputError(
            f"{path}: line 1: the root element is <{tag}>, not <mediawiki>: this is no complete "
            "dump of a wiki's pages"
        )
    return tag


def _document(split: FileRange) -> Iterator[bytes]:
    """The pages that start in the part, within a root: a document that parses by itself.

    `<` is always escaped in the text of a page, so the tags of pages are found without parsing.
    """
    chunks = compressed.read(split)
    if split.start == 0 and split.end >= storage.at(split.path).stat().st_size:
        yield from (data for data, _ in chunks)
        return
    root = _ROOT if split.start else b""  # the first part has the dump's own
    begun = inside = False  # the first page was given out; the last one given out is open
    held = b""  # what follows may complete a tag in it
    for data, owned in chunks:
        if not owned:
            rest = (data for data, _ in chunks)
            yield from _finish(root, held, itertools.chain([data], rest), begun, inside)
            return
        held += data
        if not begun:
            at = held.find(_OPEN)
            if at < 0:
                held = held[-_HELD:] if root else held
                continue
            begun = True
            if root:
                yield root
                held = held[at:]
        inside = _is_open(held, inside)
        yield held[:-_HELD]
        held = held[-_HELD:]
    if begun:
        yield held
    elif held and not held.rstrip().endswith(_END):
        raise InputError(f"{split.path}: cut off: it does not end in {_END.decode()}")


def _is_open(data: bytes, before: bool) -> bool:
    """Whether a page is open at the end of `data`."""
    opened, closed = data.rfind(_OPEN), data.rfind(_CLOSE)
    return before if opened == closed else opened > closed


def _finish(
    root: bytes, held: bytes, chunks: Iterator[bytes], begun: bool, inside: bool
) -> Iterator[bytes]:
    """The end of a part's document: `held` is owned, `chunks` follow the part."""
    boundary = len(held)
    while len(held) < boundary + _HELD and (more := next(chunks, b"")):
        held += more
    last = boundary + len(_OPEN) - 1  # a tag that starts in the part ends before
    inside = _is_open(held[:last], inside)
    if not inside:
        if begun:
            yield held[: held.rfind(_CLOSE, 0, last) + len(_CLOSE)] + _END
        return
    start = max(0, held.rfind(_OPEN, 0, last))
    if not begun:
        yield root
        held, start = (held[start:], 0) if root else (held, start)
    close = held.find(_CLOSE, start)
    while close < 0 and (more := next(chunks, b"")):
        yield held[:-_HELD]
        held = held[-_HELD:] + more
        close = held.find(_CLOSE)
    yield held[: close + len(_CLOSE)] + _END if close >= 0 else held
