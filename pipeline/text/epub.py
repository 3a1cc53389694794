"""Title and paragraphs of an EPUB, versions 2 and 3, in reading order.

An EPUB is a zip archive: META-INF/container.xml names a package file, whose spine lists XHTML files
in order. Source: https://www.w3.org/TR/epub-33/
"""

import io
import posixpath
import re
import xml.etree.ElementTree as ET
import zipfile
from html import unescape
from html.parser import HTMLParser
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from pipeline.common.budget import Budget, parsed_size, unzipped
from pipeline.common.storage import BROKEN_ZIP
from pipeline.text.book_text import Book, without_licence
from pipeline.text.encodings import decode

_PIECES = (b"<", b"=", b"&", b"\n")  # each makes an element, an attribute or a text of its own
_DROPPED = frozenset({"head", "script", "style", "nav", "svg", "math", "template", "figure"})
_BLOCK_NAMES = (
    "address article aside blockquote body br caption dd div dl dt figcaption footer h1 h2 h3 h4 "
    "h5 h6 header hr li main ol p pre section table td th tr ul"
)
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_TAG = re.compile("<[^<>]*+>?")  # or the beginning of one
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")


class Broken(Exception):
    """A book that cannot be read; the message says why."""


class _Paragraphs(HTMLParser):
    """Parser of text blocks; tolerates unclosed tags."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []
        self.dropped = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.dropped += tag in _DROPPED
        if tag in _BLOCKS:
            self.end()

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        if tag in _BLOCKS:
            self.end()

    def handle_endtag(self, tag: str) -> None:
        self.dropped = max(0, self.dropped - (tag in _DROPPED))
        if tag in _BLOCKS:
            self.end()

    def handle_data(self, data: str) -> None:
        if not self.dropped:
            self.open.append(data)

    def end(self) -> None:
        """End the current block."""
        if paragraph := " ".join("".join(self.open).split()):
            self.found.append(paragraph)
        self.open.clear()


def parse(raw: bytes) -> Book:
    """Parse the bytes of a book's file.

    Raises:
        Broken: the file is damaged, encrypted, or not an EPUB.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            return _read(archive)
    except KeyError as error:
        raise Broken(f"incomplete EPUB: {str(error.args[0]).lower()}") from error
    except (*BROKEN_ZIP, ET.ParseError, LookupError, AssertionError) as error:
        raise Broken(f"not a readable EPUB ({error})") from error


def paragraphs(page: str) -> list[str]:
    """Return the text blocks of an XHTML page."""
    parser = _Paragraphs()
    parser.feed(page)
    # The parser's own end looks for the end of each open tag again: quadratic.
    for text in _TAG.split(parser.rawdata):
        parser.handle_data(unescape(text))
        parser.end()
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
        Budget(self._refused).take(parsed_size(content, _PIECES))
        return content

    def _refused(self) -> Broken:
        return Broken(f"{self.name}: too large, or referenced too often")


def _read(archive: zipfile.ZipFile) -> Book:
    members = _Members(archive)
    if "META-INF/encryption.xml" in archive.namelist() and _encrypts_text(members):
        raise Broken("encrypted (DRM)")
    root = _find(ET.fromstring(members.read("META-INF/container.xml")), "rootfile")
    if not root:
        raise Broken("META-INF/container.xml does not name a package file")
    package_path = root[0].get("full-path", "")
    package = ET.fromstring(members.read(package_path))
    items = {item.get("id", ""): item for item in _find(package, "item")}
    lines: list[str] = []
    for reference in _find(package, "itemref"):
        item = items.get(reference.get("idref", ""))
        if item is None or item.get("media-type") not in _PAGES:
            continue
        if "nav" in item.get("properties", "").split():
            continue
        base = posixpath.dirname(package_path)
        name = posixpath.normpath(posixpath.join(base, unquote(item.get("href", ""))))
        lines += paragraphs(decode(members.read(name), "en").text)
    _, kept = without_licence([line for paragraph in lines for line in (paragraph, "")])
    titles = [found.text for found in _find(package, "title") if found.text]
    return Book(" ".join(titles[0].split()) if titles else "", "\n".join(filter(None, kept)), False)


def _find(root: Element, tag: str) -> list[Element]:
    """Return the elements with a tag name, in any namespace."""
    return [found for found in root.iter() if str(found.tag).rpartition("}")[2] == tag]


def _encrypts_text(members: _Members) -> bool:
    """Return whether anything but fonts is encrypted."""
    listed = _find(ET.fromstring(members.read("META-INF/encryption.xml")), "CipherReference")
    fonts = (".otf", ".ttf", ".woff", ".woff2")
    return any(not found.get("URI", "").lower().endswith(fonts) for found in listed)
