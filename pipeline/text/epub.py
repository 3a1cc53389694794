"""Paragraphs of an EPUB, versions 2 and 3, in reading order.

An EPUB is a zip archive: META-INF/container.xml names a package file, whose spine lists XHTML files
in order. Source: https://www.w3.org/TR/epub-33/
"""

import io
import posixpath
import re
import xml.etree.ElementTree as ET
import zipfile
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from pipeline.storage.budget import PIECES, Budget, parsed_size, unzipped
from pipeline.storage.places import BROKEN_ZIP
from pipeline.text.book_text import Book, joined, without_licence
from pipeline.text.encodings import decode_page
from pipeline.text.html_text import mark_heights, plain_heights
from pipeline.text.wikitext import holes

# Elements whose content is not text, and how they are counted; "": no part of a book.
_NO_PART = "head script style template audio video iframe"
_DROPPED = {"nav": "tables of contents", "svg": "drawings", "math": "formulas", **dict.fromkeys(_NO_PART.split(), "")}
# By epub:type, role or class: numbers in the text that are no part of it.
_MARKS = {"pagebreak": "numbers of pages", "noteref": "numbers of notes"}
_MARKS |= {f"doc-{kind}": what for kind, what in _MARKS.items()}
_COUNTS = "(?:num|no|nr|number)s?"
_CLASSES = {
    "numbers of pages": rf"(?:pg|page)[-_]?(?:{_COUNTS}|break|marker)|pb",
    "numbers of notes": rf"(?:fn|foot-?notes?|end-?notes?|notes?)[-_]?(?:{_COUNTS}|anchor|ref|mark|marker|link|call)",
    "numbers of lines": rf"(?:line|verse)[-_]?{_COUNTS}",
}
_BY_CLASS = {what: re.compile(f"(?:.*[-_])?(?:{words})", re.IGNORECASE) for what, words in _CLASSES.items()}
_HIDDEN = re.compile(r"(?i)(?:(?!overflow).*[-_])?hidden|sr-only|screen-?reader(?:-text)?|x-ebookmaker-drop|d-none")
_UNSEEN = re.compile(r"\bdisplay\s*:\s*none\b|\bvisibility\s*:\s*hidden\b", re.IGNORECASE)
_VOID = ("area", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr")
_NOTE = re.compile(r"\s*(?:\[(?:\d+|\w|[ivxlc]{1,4})\]|[*†‡§])\s*")  # of a note, in a link without a class
_NUMBER = re.compile(r"\W*(?:(?:pg|page|p|seite|s)\b\W*)?(?:\d+|[ivxlcdm]+|[a-z])?\W*", re.IGNORECASE)
_READINGS = ("rt", "rp", "rtc")  # of ruby; their end tags may be missing
_BLOCK_NAMES = (
    "address article aside blockquote body br caption center dd details div dl dt fieldset figcaption figure "
    "footer form h1 h2 h3 h4 h5 h6 header hgroup hr legend li main ol option p pre section summary table td th tr ul"
)
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_ANY_TAG = re.compile("<[^<>]*+>?")  # or the beginning of one
# What cannot be text. Chapters have many types: text/xml, text/x-oeb1-document, none, wrong ones.
_MEDIA = re.compile(
    r"image/|audio/|video/|text/css|.*(?:javascript|ecmascript|font|opentype|ncx|smil|pdf)", re.IGNORECASE
)
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
_TAG = re.compile(r"</?[A-Za-z!?]")
# A document type with declarations, which the parser of HTML would take for text.
_SUBSET = re.compile(r"[^<]*+(?:<\?[^>]*+>[^<]*+)?<!DOCTYPE[^\[>]*+\[[^\]]*+\]\s*>", re.IGNORECASE)


class Broken(Exception):
    """A book that cannot be read; the message says why."""


class _Paragraphs(HTMLParser):
    """Parser of text blocks; tolerates unclosed tags."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []
        self.dropped = 0
        self.reading = False  # within a reading of ruby
        self.veil: list[str] = []  # open tags of a hidden part
        self.link = 0  # how much was open where a link to a place began
        self.around = set[str]()  # open tags that make a number one of a note: a link, and what is raised
        self.mark: list[str] = []  # open tags within a number that is not part of the text
        self.marked: list[str] = []  # the kind of the number, and what is in it
        self.passed = Counter[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        tag = tag.rpartition(":")[2]
        if self.veil or (tag not in _VOID and any(_hides(name, value or "") for name, value in attrs)):
            self.passed["hidden parts"] += not self.veil
            self.veil += [tag] if tag == (self.veil or [tag])[0] else []
            return
        if tag in _BLOCKS:
            self.end()
        kind = next(filter(None, (_mark(name, value or "") for name, value in attrs)), "")
        if tag == "sup" or (tag == "a" and any(name == "href" and "#" in (value or "") for name, value in attrs)):
            self.around.add(tag)
            self.link = len(self.open)
            kind = kind or ("numbers of notes" if len(self.around) > 1 else "")
        if kind or tag in self.mark:
            self.marked = self.marked or [kind]
            self.mark.append(tag)
        if tag == "body":
            self.dropped = 0  # a head may have no end
        elif tag in _DROPPED:
            self.open += [holes.FORMULA] if tag == "math" and not self.dropped else []
            self.dropped += 1
            self.passed[_DROPPED[tag]] += 1
        elif tag in _READINGS:
            self.passed["readings"] += tag == "rt" and not self.dropped
            self.reading = True
        elif tag in ("ruby", "rb"):
            self.reading = False

    def handle_endtag(self, tag: str) -> None:
        tag = tag.rpartition(":")[2]
        if self.veil:
            self.veil = self.veil[tag == self.veil[0] :]
            return
        if tag == "a" and tag in self.around and _NOTE.fullmatch("".join(self.open[self.link :])):
            del self.open[self.link :]
            self.passed["numbers of notes"] += 1
        self.around.discard(tag)
        self.dropped = max(0, self.dropped - (tag in _DROPPED))
        if tag in self.mark:
            self.mark.pop()
            if not self.mark:
                self.end_mark()
        self.reading = self.reading and tag not in (*_READINGS, "ruby")
        if tag in _BLOCKS:
            self.end()

    def handle_data(self, data: str) -> None:
        if not (self.dropped or self.reading or self.veil):
            (self.marked if self.mark else self.open).append(data)

    def unknown_decl(self, data: str) -> None:
        if data.startswith("CDATA["):
            self.handle_data(data.removeprefix("CDATA["))

    def end_mark(self) -> None:
        """End a number, which is left out; a word that is marked as one is text."""
        if self.marked:
            kind, text = self.marked[0], "".join(self.marked[1:])
            left_out = _NUMBER.fullmatch(text)
            self.passed[kind] += bool(left_out)
            self.open.append("" if left_out else text)
        self.mark.clear()
        self.marked.clear()

    def end(self) -> None:
        """End the current block."""
        self.end_mark()
        if block := plain_heights("".join(self.open)).strip():
            self.found.append(block)
        self.open.clear()
        self.reading = False


def _hides(name: str, value: str) -> bool:
    """Return whether an attribute says that an element is not shown."""
    if name == "class":
        return any(map(_HIDDEN.fullmatch, value.split()))
    return name == "hidden" or (name == "style" and bool(_UNSEEN.search(value)))


def _mark(name: str, value: str) -> str:
    """Return which numbers, that are no part of the text, an attribute says that an element holds."""
    if name == "class":
        return next((kind for word in value.split() for kind, one in _BY_CLASS.items() if one.fullmatch(word)), "")
    return next(filter(None, map(_MARKS.get, value.split())), "") if name in ("epub:type", "role") else ""


def parse(raw: bytes, language: str = "en", encoding: str | None = None) -> Book:
    """Parse the bytes of a book's file; `encoding` is that of chapters that declare none.

    Raises:
        Broken: the file is damaged, encrypted, or not an EPUB.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            return _read(archive, language, encoding)
    except KeyError as error:
        raise Broken(f"incomplete EPUB: {str(error.args[0]).lower()}") from error
    except (*BROKEN_ZIP, ET.ParseError, LookupError, AssertionError) as error:
        raise Broken(f"not a readable EPUB ({error})") from error


def paragraphs(page: str, passed: Counter[str]) -> list[str]:
    """Return the text blocks of an XHTML page, or of plain text, as lines; count what is left out."""
    return [" ".join(joined(block.split("\n")).split()) for block in blocks(page, passed)]


def blocks(page: str, passed: Counter[str]) -> list[str]:
    """Return the text blocks of an XHTML page, or of plain text, as they are wrapped; count what is left out."""
    if not _TAG.search(page):
        return list(filter(None, re.split(r"\n\s*\n", page.strip())))
    parser = _Paragraphs()
    subset = _SUBSET.match(page)
    parser.feed(mark_heights(page[subset.end() :] if subset else page))
    # The parser's own end looks for the end of each open tag again: quadratic.
    for text in _ANY_TAG.split(parser.rawdata):
        parser.handle_data(unescape(text))
        parser.end()
    parser.passed.pop("", None)
    passed.update(parser.passed)
    return parser.found


class _Members:
    """Members of an archive, as many bytes in total as a document may have."""

    def __init__(self, archive: zipfile.ZipFile):
        self.archive, self.name = archive, ""
        self.room = Budget(self._refused)

    def read(self, name: str) -> bytes:
        """Return the content of a member.

        Raises:
            Broken: the members read so far, or the parts of this one, are too large.
        """
        self.name = name
        content = unzipped(self.archive, name, self.room)
        Budget(self._refused).take(parsed_size(content, PIECES))
        return content

    def _refused(self) -> Broken:
        return Broken(f"{self.name}: too large, or referenced too often")


def _read(archive: zipfile.ZipFile, language: str, encoding: str | None) -> Book:
    members = _Members(archive)
    encrypted = _encrypted(members) if "META-INF/encryption.xml" in archive.namelist() else ()
    root = ET.fromstring(members.read("META-INF/container.xml")).findall(".//{*}rootfile")
    packages = [one.get("full-path", "").lstrip("/") for one in root if _MEDIA.match(one.get("media-type", "")) is None]
    if not packages:
        raise Broken("META-INF/container.xml does not name a package file")
    package_path = packages[0]
    package = ET.fromstring(decode_page(members.read(package_path), language, encoding))
    items = {item.get("id", ""): item for item in package.findall(".//{*}item")}
    passed = Counter({"other editions": len(root) - 1})
    lines, left_out = list[str](), Counter[str]()  # sentences, by what they lack
    read: set[str] = set()
    names: set[str] = set()  # of files: places may be of one and the same
    for reference in package.findall(".//{*}itemref"):
        item = _readable(items, reference.get("idref", ""), read)
        if isinstance(item, str):
            passed[item] += 1
            continue
        base = posixpath.dirname(package_path)
        href = unquote(item.get("href", "").partition("#")[0])
        name = posixpath.normpath(posixpath.join("/", base, href)).lstrip("/")
        if name in encrypted:
            raise Broken("encrypted (DRM)")
        if name in names:
            continue
        names.add(name)
        page = decode_page(members.read(name), language, encoding)
        lines += holes.remove_holed(paragraphs(page, passed), language, left_out)
    passed["sentences that lack a formula"] = left_out.total()
    passed["pages out of the reading order"] = sum(items[one].get("media-type") in _PAGES for one in {*items} - read)
    kept = without_licence([line for paragraph in lines for line in (paragraph, "")])
    title = next((" ".join(one.text.split()) for one in package.findall(".//{*}title") if one.text), "")
    return Book("\n".join(filter(None, kept)), False, passed=+passed, title=title)


def _readable(items: dict[str, Element], name: str, read: set[str]) -> Element | str:
    """Return the item of a place in the reading order, or its fallback; else what it is."""
    while (item := items.get(name)) is not None:
        if "nav" in item.get("properties", "").split():
            read.add(name)
            return "tables of contents"
        if not _MEDIA.match(item.get("media-type", "")):
            read.add(name)
            return item
        if item.get("fallback") is None or name in read:
            return "pages that are pictures or sound"
        read.add(name)
        name = item.get("fallback", "")
    return "pages that the manifest lacks"


def _encrypted(members: _Members) -> set[str]:
    """Return the names of the members that are encrypted."""
    listed = ET.fromstring(members.read("META-INF/encryption.xml")).findall(".//{*}CipherReference")
    return {unquote(found.get("URI", "")) for found in listed}
