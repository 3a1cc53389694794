"""Lines of text files, plain or compressed, in byte ranges cut anywhere.

A range owns the lines that start in (start, end]; the first range also owns the line at 0. A range
skips everything before its first line end, never looks back, and each line is in one range.
"""

import codecs
import contextlib
import functools
import re
from collections.abc import Iterator
from itertools import chain, count, repeat
from typing import NamedTuple

from pipeline.config import CorpusConfig
from pipeline.errors import InputError
from pipeline.readers import formats
from pipeline.readers.base import FileRange, FileRanges, ReadLog
from pipeline.readers.files import files_of
from pipeline.readers.io import compressed
from pipeline.storage import budget, places
from pipeline.storage.budget import KEPT, Budget
from pipeline.storage.places import File
from pipeline.text import encodings

_NUMBER = re.compile(r"^\d+\t")
HEAD = 1 << 20  # bytes of a file used to detect its encoding
_NAMES = 1 << 12  # characters of a line that may name columns

# Line ends cannot be found in the bytes of these: files are decoded from the beginning.
_WIDE = ("utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "iso2022_jp_2", "iso2022_kr", "hz")


class Line(NamedTuple):
    """A line without its line end."""

    number: int  # from 1, counted from the start of the file range
    owned: bool  # false for lines after the file range
    text: str


class FileFormat(NamedTuple):
    """Encoding and line ends of a file."""

    encoding: str
    stated: bool  # by corpus.encoding; undecodable lines are then errors
    newline: bytes
    ends: str  # LF, CRLF or CR
    fault: str | None = None  # why its beginning is not text
    first: str = ""  # the beginning of its first line that is not blank
    marked: bool = False  # many words have marks of a format

    @property
    def wide(self) -> bool:
        """Return whether its bytes must be decoded to find line ends."""
        return codecs.lookup(self.encoding).name in _WIDE


class TextFiles:
    """The text files of a corpus, read as lines: `rows` of fields, or `prose`, whose lines may have numbers."""

    def __init__(
        self,
        corpus: CorpusConfig,
        source: str,
        names: tuple[str, ...],
        *,
        rows: bool = False,
        prose: bool = False,
        numbered: bool | None = None,
    ):
        self.corpus, self.source, self.members = corpus, source, names
        self.rows, self.prose, self.numbered = rows, prose, numbered
        self._forms: dict[str, FileFormat] = {}

    def of_reader(self, found: list[File]) -> list[File]:
        """Return those of the corpus's files that the reader reads."""
        return found

    def splits(self, split_bytes: int) -> FileRanges:
        """Cut the files into byte ranges; empty files have none, unless they are compressed."""
        files = files_of(self.corpus, self.source, self.members, self.of_reader, rows=self.rows)
        ranges = list[FileRange]()
        for path in files:
            size = path.stat().st_size
            if not size and not path.name.lower().endswith(compressed.PACKED):  # others are for `lines` to reject
                files.notes["empty files"] += 1
                continue
            cuttable = size > 0 and not self.form(str(path)).wide
            ranges += compressed.CompressedFile(path).ranges(split_bytes, seekable_text=cuttable)
        return files.cut(ranges)

    def form(self, path: str) -> FileFormat:
        """Return a file's format: the stated encoding, else one detected in the first megabyte."""
        if path not in self._forms:
            head = b""
            for data, _ in compressed.CompressedFile(path).read():
                head += data
                if len(head) >= HEAD:
                    break
            # A byte order mark takes precedence over the corpus's stated encoding.
            detected = encodings.detect(head, self.corpus.language, final=len(head) < HEAD)
            marked = encodings.marked(head) is not None
            name = detected if marked or not self.corpus.encoding else encodings.meant(self.corpus.encoding)
            if name != detected and detected.startswith(codecs.lookup(name).name):
                name = detected  # the order of the bytes, which utf-16 leaves open
            ends, newline = line_ends(head)
            stated = self.corpus.encoding is not None and not marked
            text = head.decode(name, "replace")
            fault = encodings.fault(head, text, None if stated else name)
            if self.prose:
                numbers = formats.numbers(text) if self.numbered is None else None
                table = formats.TABLE if self.numbered and formats.is_table(text) else None
                fault = formats.not_prose(text) or fault or numbers or table
            first = text.removeprefix("\ufeff").lstrip().partition("\n")[0][:_NAMES]
            tagged = self.prose and formats.is_marked(text)
            self._forms[path] = FileFormat(name, stated, newline, ends, fault, first, tagged)
        return self._forms[path]

    def lines(self, file_range: FileRange, log: ReadLog) -> Iterator[Line]:
        """Yield the file range's lines, and those after it until the caller stops.

        Raises:
            InputError: the file is damaged, changed, or not in the stated encoding.
        """
        if file_range.end == 0:
            log.reject(compressed.EMPTY, file_range.path)
            return
        form = self.form(file_range.path)
        if form.fault:
            self._refuse(form.fault, file_range, log)
            return
        if form.stated and (name := codecs.lookup(form.encoding).name) in ("utf-16", "utf-32"):
            why = f"has no byte order mark; set corpus.encoding to {name}-le or {name}-be"
            log.reject(why, file_range.path, offer_skip=False)
            return
        if file_range.start == 0 and form.encoding not in ("utf-8", "utf-8-sig"):
            log.notes[f"files read as {form.encoding}"] += 1
        if file_range.start == 0 and form.ends != "LF":
            log.notes[f"files with {form.ends} line ends"] += 1
        name = "utf-8" if form.wide else form.encoding
        for first, owned, others, data in _line_blocks(file_range, form, log):
            log.notes.update({formats.MARKED: data.count(form.newline) + 1} if form.marked and owned else {})
            data = data.removeprefix("\ufeff".encode(name, "ignore")) if first == 1 else data
            whole: list[str] | None = None  # unless a line of the block is in another encoding
            with contextlib.suppress(UnicodeDecodeError):
                whole = data.decode(name).split(form.newline.decode()) if form.stated or name == "utf-8" else None
            if whole is not None:  # without a step of Python a line
                texts = (_NUMBER.sub("", text, count=1) for text in whole) if self.numbered else whole
                yield from map(Line, count(first), chain([owned], repeat(others)), texts)
                continue
            for number, line in enumerate(data.split(form.newline), first):
                mine, owned = owned, others
                try:
                    text = self._in_line(line, name, form.stated, log)
                except UnicodeDecodeError as error:
                    bad_line(log, file_range, number, f"not valid {form.encoding} ({error.reason})")
                    continue
                yield Line(number, mine, _NUMBER.sub("", text, count=1) if self.numbered else text)

    def _refuse(self, fault: str, file_range: FileRange, log: ReadLog) -> None:
        if self.numbered and fault == formats.TABLE:  # next to sentences, in what Leipzig offers
            log.notes["tables of numbered rows left out"] += file_range.start == 0
        elif file_range.start == 0:
            log.reject(fault, file_range.path)

    def _in_line(self, raw: bytes, name: str, stated: bool, log: ReadLog) -> str:
        """Return the text of a line; one that is not in the encoding of its file is noted."""
        if stated:
            return raw.decode(name)
        text, encoding, whole = encodings.in_line(raw, self.corpus.language, name)
        if encoding != name:
            log.notes[f"lines not in the file's encoding, read as {encoding}"] += 1
        elif not whole:
            log.notes["lines with letters that could not be decoded"] += 1
        return text


def line_ends(head: bytes) -> tuple[str, bytes]:
    """Return the line ends of a file by its beginning, and the byte that divides its lines."""
    ends = encodings.line_ends(head.replace(b"\0", b"").decode("latin-1"))
    return ends, b"\r" if ends == "CR" else b"\n"


def _line_blocks(file_range: FileRange, form: FileFormat, log: ReadLog) -> Iterator[tuple[int, bool, bool, bytes]]:
    """Yield whole lines, as many as were read at once: the number of the first, whether it, and others, are owned.

    Raises:
        InputError: the file is damaged or was changed, or a line is larger than a document may be.
    """
    skip, owned_next, newline = file_range.start > 0, True, form.newline
    held: list[bytes] = []
    number, size = 1, 0
    for data, owned in _unpacked(file_range, form, log):
        whole, end, last = data.rpartition(newline)
        size += data.index(newline) if end else len(last)
        if size > budget.DOCUMENT:
            path, at = place(file_range, number)
            why = f"longer than {budget.DOCUMENT >> 20} MiB; split the line, or choose another corpus.reader"
            raise InputError(why, "corpus.reader", path=path, line=at)
        held.append(whole if end else last)
        if not end:
            continue
        block, held, size = b"".join(held), [last], len(last)
        if newline == b"\n":
            block = block.removesuffix(b"\r").replace(b"\r\n", b"\n")
        count = block.count(newline) + 1
        if skip:
            block, skip, owned_next = block.partition(newline)[2], False, owned
            number, count = number + 1, count - 1
        if count:
            yield number, owned_next, owned, block
        number, owned_next = number + count, owned
    if size and not skip:
        yield number, owned_next, owned_next, b"".join(held).removesuffix(b"\r")


def _unpacked(file_range: FileRange, form: FileFormat, log: ReadLog) -> Iterator[tuple[bytes, bool]]:
    chunks = compressed.CompressedFile(file_range.path).read(file_range, log)
    if not form.wide:
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(form.encoding)("replace")
    for data, owned in chunks:
        yield decoder.decode(data).encode("utf-8", "replace"), owned
    yield decoder.decode(b"", final=True).encode(), True


def place(file_range: FileRange, number: int) -> tuple[str, int | None]:
    """Return the location of a line, for errors; without its number where a file range starts in a compressed file."""
    if file_range.start == 0:
        return file_range.path, number
    if compressed.CompressedFile(file_range.path).kind != "plain":
        return f"{file_range.path}, line {number} counted from byte {file_range.start}", None
    return file_range.path, _line_ends(file_range) + number


def document_id(file_range: FileRange, number: int) -> str:
    """Return the id of the document that begins in a line of the file range."""
    part = f" counted from byte {file_range.start}" if file_range.start else ""
    return f"{file_range.path} line {number}{part}"


def bad_line(log: ReadLog, file_range: FileRange, number: int, why: str, *, offer_skip: bool = True) -> None:
    """Count a line that cannot be read, or fail: `ReadLog.reject` with the line's location."""
    log.reject(why, *place(file_range, number), offer_skip=offer_skip)


@functools.lru_cache(maxsize=64)
def _line_ends(file_range: FileRange) -> int:
    """Count the line ends before a file range; cached, as a file range may have many broken lines."""
    before = 0
    with places.at(file_range.path).open("rb") as file:
        _, newline = line_ends(file.read(HEAD))
        file.seek(0)
        while left := file_range.start - file.tell():
            before += file.read(min(left, compressed.CHUNK)).count(newline)
    return before


def document_budget(file_range: FileRange, first: Line, why: str, key: str | None = None) -> Budget:
    """Return the budget of a document that begins in a line, and does not end before `why`."""

    def refused() -> InputError:
        path, line = place(file_range, first.number)
        return InputError(f"more than {budget.DOCUMENT:,} bytes and {why}", key, path=path, line=line)

    return Budget(refused)


def memory_of(line: Line) -> int:
    """Return the bytes that a line counts for in a budget."""
    text = line.text
    return KEPT + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))


def blocks(lines: Iterator[Line], file_range: FileRange, key: str, cure: str) -> Iterator[list[Line]]:
    """Yield the owned blocks of lines between blank lines.

    A block belongs to the file range that owns the last blank line before it.

    Raises:
        InputError: a block would not fit in a worker's memory; `key` and `cure` say what to set.
    """
    block: list[Line] = []
    ours = file_range.start == 0
    for line in lines:
        blank = not line.text.strip()
        if blank and block:
            yield block
            block = []
        if blank:
            ours = line.owned
        elif ours:
            if not block:
                room = document_budget(file_range, line, f"no blank line; {cure}", key)
            room.take(memory_of(line))
            block.append(line)
        if not line.owned and not ours:
            return
    if block:
        yield block
