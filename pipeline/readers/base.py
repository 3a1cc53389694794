"""What every reader takes and gives: documents, file ranges, and the log of what was read."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pipeline.errors import InputError
from pipeline.records.metrics import NAMED


class Document(NamedTuple):  # made three times as fast as a frozen dataclass: 1.5 us of some 15 a text
    """One article, book or module.

    `text` has one paragraph (or heading, or list item) per line.
    """

    id: str  # stable source location, for error messages
    text: str
    language: str = ""  # set only if it differs from the corpus's
    sentence_lines: bool = False  # every line is one sentence
    copies: int = 1  # repetition count
    title: str = ""  # where the format has one; it need not be in the text


Documents = Iterator[Document]


@dataclass(frozen=True, slots=True)
class FileRange:
    """A part of a file, read by one task: the documents that start in bytes [start, end)."""

    path: str
    start: int
    end: int
    stamp: str = ""  # file version at planning time, lets a worker detect changes
    part: str = ""  # name of the corpus within a mix
    items: int = 0  # of many under one path, which its stamp covers; 0: a part of one file

    @property
    def size(self) -> int:
        """Return the bytes of the part."""
        return self.end - self.start

    @property
    def identity(self) -> tuple[object, ...]:
        """What determines the text: of items not where they begin, which others change."""
        return self.path, self.stamp, self.part, *(() if self.items else (self.start, self.end))


class FileRanges(list[FileRange]):
    """The file ranges of a corpus, with notes on files that none of them reads."""

    def __init__(self, ranges: Iterable[FileRange] = (), notes: Mapping[str, int] | None = None):
        super().__init__(ranges)
        self.notes = Counter(notes or {})


def notes_of(ranges: list[FileRange]) -> Counter[str]:
    """Return the notes of a corpus's file ranges; a plain list has none."""
    return ranges.notes if isinstance(ranges, FileRanges) else Counter()


class ReadLog(Counter[str]):
    """Numbers of documents that a reader skipped, by reason; notes on those that it read; how far it is."""

    def __init__(self, on_error: str = "fail", progress: Callable[[int], None] = lambda _: None):
        """Log what is read; `progress` is called with the bytes of the file range read so far."""
        super().__init__()
        self.on_error, self.progress = on_error, progress
        self.notes = Counter[str]()  # repairs and guesses in documents that were read
        self.broken: list[str] = []  # location and fault of broken documents

    def reached(self, file_range: FileRange, position: int) -> None:
        """Report that `file_range` was read up to byte `position` of its file."""
        self.progress(min(max(position, file_range.start), file_range.end) - file_range.start)

    def reject(self, why: str, path: object, line: int | None = None, *, offer_skip: bool = True) -> None:
        """Count and list a document that cannot be read, or fail, depending on `on_error`.

        With `offer_skip=False` the error does not suggest skipping such documents.

        Raises:
            InputError: `on_error` is fail.
        """
        if self.on_error == "fail":
            cure = "; set corpus.on_error=skip to skip such documents" if offer_skip else ""
            raise InputError(f"{why}{cure}", path=path, line=line)
        self["broken"] += 1
        if len(self.broken) < NAMED:
            self.broken.append(str(InputError(why, path=path, line=line)))

    def take(self, other: "ReadLog", prefix: str) -> None:
        """Add the counts of a part of this corpus, with `prefix` before each reason."""
        for mine, more in ((self, other), (self.notes, other.notes)):
            mine.update({prefix + reason: count for reason, count in more.items()})
        self.broken = (self.broken + other.broken)[:NAMED]


def passed_over(counts: Mapping[str, int]) -> str:
    """Format the skip counts: `64 redirects, 75 other namespaces, 53 empty`."""
    return ", ".join(
        f"{count:,} {_in_words(reason, count)}"
        for reason, count in sorted(counts.items(), key=lambda item: -item[1])
        if count
    )


def _in_words(reason: str, count: int) -> str:
    part, colon, reason = reason.rpartition(": ")  # name of a corpus within a mix
    words = _REASONS.get(reason, reason)
    if count != 1 and words.endswith(_COUNTED):
        words += "s"
    return f"{words} ({part})" if colon else words


# Display names of skip reasons whose key is not readable as it is.
_REASONS = {"namespace": "other namespace", "model": "not wikitext", "little prose": "with little prose"}
_REASONS["transcluded"] = "whose text is in pages of scans (namespace 104), which a dump must have too"
_COUNTED = ("redirect", "namespace", "duplicate")  # nouns: they take a plural


class CorpusReader(Protocol):
    """Interface of every corpus reader.

    An optional attribute `UNIT` names one document for users, such as `page`; an optional `members` has the ends of
    the names of files that are read from archives, too.
    """

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Cut the corpus into file ranges of about `split_bytes` each, in a fixed order.

        `FileRanges` also say what of the corpus no range reads.

        Raises:
            InputError: no files were found, or they do not belong to this corpus.
        """

    def read(self, file_range: FileRange, log: ReadLog, /) -> Documents:
        """Yield the documents of a file range, in order.

        Documents skipped on purpose (redirects, talk pages) are counted in `log` by reason, as
        are single broken documents if it allows them.

        Raises:
            InputError: the file is damaged; the message says where.
        """
