"""Web archives: texts (WET) and pages (WARC) of Common Crawl and others, by fastwarc.

Source: https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/
"""

import contextlib
import io
import itertools
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import zstandard
from isal import igzip

from pipeline.common.schema import library
from pipeline.config import CorpusConfig
from pipeline.errors import InputError, first_line, refuse_panics
from pipeline.readers import formats
from pipeline.readers.base import Document, Documents, FileRange, ReadLog
from pipeline.readers.files import WholeFiles
from pipeline.readers.io import compressed
from pipeline.storage import budget, placeholders, places
from pipeline.text import html_text

# Written after the last byte: where a file was cut off, fastwarc ends without a word, and this is not reached.
_END_ID = "<urn:end-of-file>"
_END = f"WARC/1.0\r\nWARC-Type: metadata\r\nWARC-Record-ID: {_END_ID}\r\nContent-Length: 0\r\n\r\n\r\n\r\n".encode()
_STATUS = re.compile(rb"\A\s*+\w++(?:/[\d.]++)?[ \t]++(\d{3})[^\r\n]*+")  # as the library wants it
_HTML = ("text/html", "application/xhtml+xml")


class _Ended:
    """A packed file with `_END` after it; gzip is unpacked here, as fastwarc takes twice the time."""

    def __init__(self, file: BinaryIO, kind: str):
        zipped = kind == "gzip"
        self.file = igzip.IGzipFile(fileobj=file, mode="rb") if zipped else file
        self.rest = io.BytesIO(_END if zipped else zstandard.ZstdCompressor().compress(_END))

    def read(self, size: int) -> bytes:
        try:
            return self.file.read(size) or self.rest.read(size)
        except EOFError:  # cut off
            return b""

    def tell(self) -> int:
        return 0  # fastwarc asks once


def _is_whole(file: BinaryIO, last: Any) -> bool:
    """Return whether the last record of a file that is not packed has its header and all of its content."""
    file.seek(last.stream_pos)
    header, end, _ = file.read(compressed.CHUNK).partition(b"\r\n\r\n")
    length, begin = last.headers.get("Content-Length", ""), last.stream_pos + len(header) + len(end)
    return bool(end) and length.isdecimal() and file.seek(0, 2) >= begin + int(length)


class Reader(WholeFiles):
    """Reader of conversion records (WET), and of pages among responses and resources (WARC); one range a file.

    Skip reasons: `metadata` (headers, requests, revisits), `other media` (images, PDF), `status` (redirects, errors).
    """

    UNIT = "record"
    members = tuple(f"{end}{packed}" for end in (".warc", ".wet", ".wat") for packed in ("", ".gz", ".zst"))

    def __init__(self, corpus: CorpusConfig, source: str):
        super().__init__(corpus, source)
        self.warc = library("fastwarc.warc", "corpus.reader", corpus.reader, package="fastwarc")
        self.kinds, self.address = self.warc.WarcRecordType, self.warc.WarcHeader.WARC_TARGET_URI

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the records that are text.

        Raises:
            InputError: the file is damaged, truncated or no web archive.
        """
        path, last, record = places.at(file_range.path), "its beginning", None
        file = compressed.CompressedFile(path)
        file.check(file_range)
        try:
            with refuse_panics(str(path)), path.open("rb") as opened:
                packed = file.kind != "plain"
                source = _Ended(opened, file.kind) if packed else opened
                for number, record in enumerate(self.warc.ArchiveIterator(source, parse_http=False)):
                    if number % 16 == 0:
                        log.reached(file_range, opened.tell())
                    document = self._document(record, log, file_range.path, number)
                    if document is not None:
                        last = document.id
                        yield document
                whole = record and (record.record_id == _END_ID if packed else _is_whole(opened, record))
        except (OSError, ValueError, KeyError, OverflowError, compressed.GZIP_ERROR) as error:
            other = formats.name_file(file, "warc") if record is None else None
            why = other or f"damaged after {last} ({first_line(error)}); download the file again"
            raise placeholders.error_of(path, why) from error
        if not whole:
            raise InputError(f"truncated after {last}; download the file again", path=path)

    def _document(self, record: Any, log: ReadLog, path: str, number: int) -> Document | None:
        kind, kinds = record.record_type, self.kinds
        name = record.headers.get(self.address) or record.record_id or f"{path} record {number + 1}"
        if kind == kinds.conversion and record.content_length <= budget.DOCUMENT:
            return Document(name, record.reader.read().decode("utf-8", "replace"))
        if kind not in (kinds.conversion, kinds.response, kinds.resource):
            if record.record_id != _END_ID:
                log["metadata"] += 1
            return None
        room = budget.Budget(
            lambda: InputError(f"the record {name} is larger than {budget.DOCUMENT:,} bytes", path=path)
        )
        room.take(record.content_length if kind == kinds.conversion else 0)
        head = _STATUS.sub(rb"HTTP/1.1 \1", record.reader.read(compressed.CHUNK))
        if kind == kinds.resource:  # a file that was put into an archive: headers as if it had been sent
            head = f"HTTP/1.1 200\r\nContent-Type: {record.headers.get('Content-Type')}\r\n\r\n".encode() + head
        try:
            http = self._http(head, "none")
            status = getattr(http.http_headers, "status_code", None)
            if status != 200 or (http.http_content_type or "").lower() not in _HTML:
                log["other media" if status == 200 else "status"] += 1
                return None
            body = self._body(room.gathered(itertools.chain([head], _chunks(record))), room)
            return Document(name, html_text.decoded_text(body, self.corpus.language, http.http_charset))
        except ValueError as error:
            log.reject(f"{error}, in the page {name}", path)
            return None

    def _body(self, raw: bytes, room: budget.Budget) -> bytes:
        """Return a page as it was before it was coded for the way; crawlers also keep headers of what they decoded."""
        for coded in ("all", "content", "transfer", "none"):
            with contextlib.suppress(OSError, ValueError):
                body = room.gathered(_chunks(self._http(raw, coded)))
                if coded == "all" or b"<" in body:
                    return body
        raise ValueError("cannot be decoded, as its headers say")

    def _http(self, raw: bytes, coded: str) -> Any:
        """Return the record of a response, whose content is read with what is `coded` undone.

        Raises:
            ValueError: its headers cannot be read.
        """
        record = self.warc.WarcRecord()
        record.is_http = True
        record.set_bytes_content(raw)
        try:
            record.parse_http(coded, quirks_mode=True)
        except OSError as error:
            raise ValueError(first_line(error)) from error
        return record


def _chunks(record: Any) -> Iterator[bytes]:
    return iter(lambda: record.reader.read(compressed.CHUNK), b"")
