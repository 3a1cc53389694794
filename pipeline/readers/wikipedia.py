"""Wikipedia dumps (pages-articles XML, plain, .gz or .bz2) -> articles as plain text.

MediaWiki's export format, versions 0.3 to 0.11, is read from the bytes of any part of a dump.
Source: https://www.mediawiki.org/wiki/Help:Export#Export_format
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from unicodedata import normalize
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

from pipeline.common.schema import check
from pipeline.config import CorpusConfig
from pipeline.errors import InputError
from pipeline.readers import formats
from pipeline.readers.base import Document, Documents, FileRange, FileRanges, ReadLog
from pipeline.readers.files import files_of
from pipeline.readers.io.compressed import CompressedFile
from pipeline.readers.io.xml_prose import MALFORMED, events, local
from pipeline.records.manifest import enclosing_manifest
from pipeline.storage import budget, placeholders
from pipeline.storage.budget import Budget
from pipeline.storage.places import File
from pipeline.text.wikitext import Extractor
from pipeline.text.wikitext.holes import PAGE

# A folder of dumps also has indices, lists of titles and database tables.
_OTHER = re.compile(r"index\d*\.txt|\.sql\.gz$|all-titles|md5sums|sha1sums")

_ROOT, _OPEN, _CLOSE, _END = b"<mediawiki>", b"<page>", b"</page>", b"</mediawiki>"
Pieces = Iterator[bytes]  # of a document
_READ_ON = 64  # chunks of at most 1 MB: more than a bzip2 block holds
_DATE = re.compile(r"(?<!\d)(20\d{6})(?!\d)")
_TRANSCLUDES = re.compile(r"<pages\s[^<>]*\bindex\s*=", re.IGNORECASE)  # ProofreadPage's
_SCAN = re.compile(r"\s*<noinclude>\s*<pagequality\b", re.IGNORECASE)  # a page of it
_AROUND_SCAN = re.compile(r"<noinclude>.*?(?:</noinclude>|\Z)", re.IGNORECASE | re.DOTALL)
_HELD = 64  # bytes held back at the end of a chunk: more than the longest tag above


@dataclass(frozen=True, slots=True)
class Site:
    """Header of a dump: the wiki's properties."""

    namespaces: dict[int, str] = field(default_factory=dict)  # number -> local name
    utf8: bool = True  # required for reading it from the middle
    host: str = ""  # en.wikipedia.org


@dataclass(slots=True)
class Page:
    """One page with its newest revision."""

    id: str = ""
    title: str = ""
    namespace: int | None = None  # None in old dumps, where only the title shows it
    redirect: bool = False
    timestamp: str = ""  # ISO 8601: sorts as a string
    model: str = "wikitext"
    text: str = ""


class Reader:
    """Reader of the articles of one language's Wikipedia, or of any other MediaWiki.

    Skip reasons in the tally: `namespace` (talk, categories, templates ...), `redirect`, `model`
    (CSS, JSON, Lua), `transcluded` (the text is in pages of a scan, which are documents of their own),
    `empty` (no text at all, or none left after removing the markup). `holes=keep` keeps sentences
    without what was markup in them.
    """

    UNIT = "page"
    members = (".xml", ".xml.bz2", ".xml.gz")

    def __init__(self, corpus: CorpusConfig, source: str, *, holes: str = "leave_out") -> None:
        self.name = corpus.name
        self.language = corpus.language
        self.keep = keeps(holes)
        self.files = files_of(corpus, source, (".xml", ".bz2", ".gz"), dumps)
        self._extractors: dict[str, tuple[Site, Extractor]] = {}

    def splits(self, split_bytes: int) -> FileRanges:
        """Cut every dump into byte ranges; a dump that is not seekable is one split."""
        parts, dumps = list[FileRange](), Counter[str]()
        for path in self.files:
            file = CompressedFile(path)
            site = header(file)
            parts += file.ranges(split_bytes, seekable_text=site.utf8)
            dumps.update([f"dumps of {site.host}{date_of(path)}"] if site.host else [])
        ranges = self.files.cut(parts)
        ranges.notes.update(dumps)
        return ranges

    def read(self, split: FileRange, tally: ReadLog) -> Documents:
        """Yield the articles whose pages start in the split."""
        file = CompressedFile(split.path)
        site, extractor = self._site(file)
        for page in pages(file, split, tally):
            reason = skip_reason(page, site, extractor)
            # NFC, as MediaWiki stores it
            text = "" if reason else extractor.text(normalize("NFC", wikitext(page)), tally.notes)
            if text:
                yield Document(f"{self.name}:{page.id}", text, title=page.title)
            else:
                tally[reason or ("transcluded" if _TRANSCLUDES.search(page.text) else "empty")] += 1

    def _site(self, file: CompressedFile) -> tuple[Site, Extractor]:
        path = str(file.file)
        if path not in self._extractors:
            site = header(file)
            names = site.namespaces
            extractor = Extractor(self.language, files=names.get(6), categories=names.get(14), keep=self.keep)
            self._extractors[path] = site, extractor
        return self._extractors[path]


def keeps(holes: str) -> bool:
    """Return whether sentences with holes are kept; raise ConfigError for another value."""
    check(holes in ("leave_out", "keep"), "must be leave_out or keep", "corpus.options.holes", holes)
    return holes == "keep"


def wikitext(page: Page) -> str:
    """Return the wikitext of an article, or of a page of a scan: its sentences may continue on another page."""
    if _SCAN.match(page.text):
        return f"{PAGE}{_AROUND_SCAN.sub('', page.text).strip()}{PAGE}"
    return page.text.replace("{{PAGENAME}}", page.title)


def dumps(found: list[File]) -> list[File]:
    """Return the files that are dumps of pages.

    Raises:
        InputError: none is.
    """
    kept = [path for path in found if not _OTHER.search(path.name)]
    if not kept:
        raise InputError(f"no dump of pages found, only {found[0].name}; download pages-articles", path=found[0].parent)
    return kept


def date_of(path: File) -> str:
    """Return the date of a dump: in its name, else in the address that `download` had it from; empty: not known."""
    made = enclosing_manifest(str(path)) if "latest" in path.name else None
    names = [path.name, *(file["url"] for file in (made.figures.get("files", []) if made else []))]
    own = path.name.partition("latest")[2]
    dates = [date[1] for name in names if name.endswith(own) and (date := _DATE.search(name))]
    return f", {dates[0]}" if dates else ""


def skip_reason(page: Page, site: Site, extractor: Extractor) -> str | None:
    """Return why a page is neither an article nor a page of a scan, or None if it is one."""
    if _SCAN.match(page.text):
        return None
    namespace = page.namespace
    if namespace is None:
        prefix, colon, _ = page.title.partition(":")
        named = {name: number for number, name in site.namespaces.items() if name}
        namespace = named.get(prefix, 0) if colon else 0
    if namespace != 0:
        return "namespace"
    if page.redirect or extractor.is_redirect(page.text):
        return "redirect"
    if page.model != "wikitext":
        return "model"
    return None


def header(file: CompressedFile) -> Site:
    """Read the header of a dump.

    Raises:
        InputError: the file is damaged or not a dump.
    """
    namespaces, host, root = dict[int, str](), "", None
    chunks = (data for data, _ in file.read())
    head = next(chunks, b"")
    declared = head[:100].partition(b"encoding=")[2][1:6].lower()
    utf8 = b"<" in head[:64] and b"\0" not in head[:64] and declared in (b"", b"utf-8")
    try:
        for event, element in events(itertools.chain([head], chunks), _budget(file)):
            tag = local(element)
            if root is None:
                root = _check_root(file, tag)
            if (event, tag) == ("end", "namespace"):
                namespaces[int(element.get("key", "0"))] = element.text or ""
            elif (event, tag) == ("end", "base"):
                host = urlsplit(element.text or "").hostname or ""
            elif (event, tag) in (("end", "siteinfo"), ("start", "page")):
                return Site(namespaces, utf8, host)
    except MALFORMED as error:
        if why := placeholders.file_placeholder(file.file):
            raise InputError(why, path=file.file) from error
        raise malformed(file, chunks, str(error)) from error
    return Site(namespaces, utf8)


def pages(file: CompressedFile, split: FileRange, tally: ReadLog) -> Iterator[Page]:
    """Yield the pages that start in a split, in order; `tally` counts those that are not well-formed.

    Raises:
        InputError: the file is damaged, truncated, not well-formed, or not a dump.
    """
    chunks = _document(file, split, tally)
    start = f" counted from the first page after byte {split.start}" if split.start else ""
    read = b""

    def remembered() -> Pieces:
        nonlocal read
        for data in chunks:
            read = data
            yield data

    document, last = remembered(), ""
    while True:
        try:
            for page in _parsed(file, document, last):
                last = page.id
                yield page
            return
        except MALFORMED as error:
            why = f"{error}{start}{_after(last)}"
            while tally.on_error == "skip" and not read.endswith(_CLOSE) and (more := next(chunks, b"")):
                read = more
            if tally.on_error != "skip" or not read.endswith(_CLOSE):
                raise malformed(file, chunks, why) from error
            tally.reject(f"not well-formed XML: {why}", file.file)
            document, start = itertools.chain([_ROOT], remembered()), " counted from there"


def _parsed(file: CompressedFile, chunks: Pieces, last: str) -> Iterator[Page]:
    """Yield the pages of a document; `last` is the id of the one before."""
    if not (head := next(chunks, b"")):
        return
    root: Element | None = None
    element: Element | None = None
    page = Page()
    room = _budget(file, lambda: last)
    for event, child in events(itertools.chain([head], chunks), room):
        tag = local(child)
        if event == "start":
            if root is None:
                root = child
                _check_root(file, tag)
            elif tag == "page":
                element, page = child, Page()
        elif tag == "revision" and element is not None:
            _revise(page, child)
            _complete(page, element)
            element.clear()  # a page may have a million revisions
            room.left = budget.DOCUMENT
        elif tag == "page" and element is not None and root is not None:
            _complete(page, child)
            root.clear()
            element = None
            last = page.id
            room.left = budget.DOCUMENT
            yield page


def _budget(file: CompressedFile, last: Callable[[], str] = str) -> Budget:
    """Return the budget of a page or a revision; `last` returns the id of the page before."""
    why = f"a page larger than {budget.DOCUMENT:,} bytes"
    return Budget(lambda: InputError(f"{why}{_after(last())}; remove it", path=file.file))


def _after(last: str) -> str:
    return f", after the page with id {last}" if last else ""


def malformed(file: CompressedFile, rest: Iterator[object], why: str) -> InputError:
    """Return the error for malformed XML, unless draining `rest` reveals a damaged archive.

    A damaged block decompresses to garbage, and its checksum is only compared at its end.

    Raises:
        InputError: the compressed file is damaged.
    """
    for _ in itertools.islice(rest, _READ_ON):
        pass
    if other := formats.name_file(file, "wiki"):
        return InputError(other, path=file.file)
    hint = f"; run `{file.kind} -t {file.file}` to check the file for damage" if file.kind != "plain" else ""
    return InputError(f"not well-formed XML: {why}{hint}", path=file.file)


def _revise(page: Page, revision: Element) -> None:
    """Copy a revision into `page` if it is newer than the present one."""
    parts = {local(part): part.text or "" for part in revision}
    if (timestamp := parts.get("timestamp", "")) >= page.timestamp:
        page.timestamp = timestamp
        page.model = parts.get("model") or "wikitext"  # the only model before version 0.6
        page.text = parts.get("text", "")


def _complete(page: Page, element: Element) -> None:
    """Copy the fields outside the revisions into `page`."""
    parts = {local(part): part.text or "" for part in element}
    page.title, page.id = parts.get("title", page.title), parts.get("id", page.id)
    page.namespace = int(parts["ns"]) if "ns" in parts else page.namespace
    page.redirect = page.redirect or "redirect" in parts


def _check_root(file: CompressedFile, tag: str) -> str:
    if tag != "mediawiki":
        if why := placeholders.file_placeholder(file.file) or formats.name_file(file):
            raise InputError(why, path=file.file)
        why = f"the root element is <{tag}>, not <mediawiki>; use a complete dump of a wiki's pages"
        raise InputError(why, path=file.file, line=1)
    return tag


def _document(file: CompressedFile, split: FileRange, tally: ReadLog) -> Pieces:
    """Yield the pages that start in the split, within a root: a well-formed document.

    `<` is always escaped in the text of a page, so page tags are found without parsing. Where a page
    ends, a piece ends.
    """
    held, mine = b"", 0  # what may end within a tag, and how many of its bytes the split owns
    begun = split.start == 0 and split.end >= file.file.stat().st_size  # something was yielded
    inside = False  # a page
    for data, owned in file.read(split, tally):
        held, mine, place = held + data, mine + owned * len(data), 0
        while (at := held.find(_CLOSE if inside else _OPEN, place)) >= 0 and (inside or at < mine):
            if inside:
                end = at + len(_CLOSE)
                yield held[place:end]
                place = end
            elif split.start and not begun:  # the first split has the dump's own root
                yield _ROOT
                place = at
            begun, inside = True, not inside
        if inside or (begun and owned):
            if (end := len(held) - _HELD) > place:
                yield held[place:end]
                place = end
        elif not owned and len(held) >= mine + len(_OPEN):  # no other page starts in the split
            held = _END
            break
        elif owned and split.start:
            place = max(0, len(held) - _HELD)
        held, mine = held[place:], mine - place
    if begun:
        yield held
    elif held and not (last := held.rstrip()).endswith(_END) and not (split.start and _END.endswith(last)):
        raise InputError(f"truncated, does not end in {_END.decode()}; download the file again", path=split.path)
