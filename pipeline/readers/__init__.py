"""Readers: turn corpus files into documents of clean plain text.

A reader is a module of this package with a class `Reader`. It cuts its files into splits in the
driver (`splits`) and reads one split in a worker (`read`). Both depend on the files alone: the same
corpus gives the same documents on any runner.
"""

import glob
import importlib
import inspect
import json
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Protocol

from pipeline.common import language_codes
from pipeline.common.schema import library
from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError, InputError
from pipeline.readers.io import size_limit
from pipeline.records.metrics import NAMED
from pipeline.storage import file_search, places
from pipeline.storage.places import File


@dataclass(frozen=True, slots=True)
class Document:
    """One article, book or module.

    `text` has one paragraph (or heading, or list item) per line.
    """

    id: str  # stable source location, for error messages
    text: str
    language: str = ""  # set only if it differs from the corpus's
    sentence_lines: bool = False  # every line is one sentence
    copies: int = 1  # repetition count


Documents = Iterator[Document]


@dataclass(frozen=True, slots=True)
class FileRange:
    """A part of a file, read by one task: the documents that start in bytes [start, end)."""

    path: str
    start: int
    end: int
    stamp: str = ""  # file version at planning time, lets a worker detect changes
    part: str = ""  # name of the corpus within a mix
    empty_files: int = 0  # files of the corpus without a byte, counted by its first split
    others: str = "{}"  # JSON: notes on files of the folder that are not read, counted as `empty_files` are
    items: int = 0  # of many under one path, which its stamp stands for; 0: a part of one file

    @property
    def size(self) -> int:
        """Return the bytes of the part."""
        return self.end - self.start

    @property
    def identity(self) -> tuple[object, ...]:
        """What determines the text: of items not where they begin, which others change."""
        place = () if self.items else (self.start, self.end)
        return self.path, self.stamp, self.part, self.empty_files, *place


class SkipCounts(Counter[str]):
    """Numbers of documents that a reader skipped, by reason, and notes on those that it read."""

    def __init__(self, on_error: str = "fail"):
        super().__init__()
        self.on_error = on_error
        self.notes = Counter[str]()  # repairs and guesses in documents that were read
        self.broken: list[str] = []  # location and fault of broken documents

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

    def note(self, split: FileRange) -> None:
        """Note the files that are not read, of which the first split of a corpus knows."""
        self.notes.update(json.loads(split.others))
        if split.empty_files:
            self.notes["empty files"] += split.empty_files

    def take(self, other: "SkipCounts", prefix: str) -> None:
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


class Reader(Protocol):
    """Interface of every corpus reader.

    An optional class attribute `UNIT` names one document for users, such as `page`.
    """

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Cut the corpus into parts of about `split_bytes` each, in a fixed order.

        Raises:
            InputError: no files were found, or they do not belong to this corpus.
        """

    def read(self, split: FileRange, tally: SkipCounts) -> Documents:
        """Yield the documents of a split, in order.

        Documents skipped on purpose (redirects, talk pages) are counted in `tally` by reason, as
        are single broken documents if it allows them.

        Raises:
            InputError: the file is damaged; the message says where.
        """


class FileList(list[File]):
    """Files of a corpus; `others` are those of its folder that it does not have."""

    def __init__(self, files: list[File], others: list[File]):
        super().__init__(files)
        endings = (PurePosixPath(file.name).suffix.lower() or "other" for file in others)
        self.others = json.dumps(Counter(f"{ending} files left out" for ending in endings), sort_keys=True)

    def noted(self, splits: list[FileRange]) -> list[FileRange]:
        """Return the splits of the files, of which the first says what the others are."""
        return [replace(split, others=self.others) for split in splits[:1]] + splits[1:]


def files_of(
    corpus: CorpusConfig, source: str, suffixes: tuple[str, ...], of_reader: Callable[[list[File]], list[File]] = list
) -> FileList:
    """Return the corpus's files, sorted: `corpus.path` (file, folder, glob, URL), else `source`.

    A folder means all files below it whose names end in one of `suffixes` (case-insensitive).
    `of_reader` returns those that the reader reads, of which there may be fewer; `corpus.limit`
    counts no others.

    Raises:
        InputError: no file was found.
        ConfigError: the corpus has no download, and `corpus.path` is not set.
    """
    place = corpus.path or source
    top = places.at(place)
    left_out, others = set[Path](), list[File]()
    if places.is_folder(top):
        files = places.below(top, left_out)
        found = [file for file in files if file.name.lower().endswith(suffixes)]
        if corpus.path is not None:  # a download has lists and licences next to its files
            others = [file for file in files if not file.name.lower().endswith(suffixes)]
    else:
        found = places.matching(place, left_out)
    file_search.say_left_out(place, len(left_out))
    if found:
        return FileList(size_limit.choose(of_reader(found), place, corpus), others)
    key = "corpus.path"
    if corpus.path is not None:
        raise InputError(what_is_missing(place, suffixes), key, place, path=place)
    if corpus.files:
        raise InputError(
            f"{what_is_missing(place, suffixes)}; run python -m pipeline.download with this corpus first, or set {key}",
            key,
            path=place,
        )
    raise ConfigError(f"is required for corpus {corpus.name}; name a file or folder", key)


def what_is_missing(place: str, suffixes: tuple[str, ...]) -> str:
    """Return why no file of a corpus was found at `place`."""
    if glob.has_magic(place):
        return "no file matches this pattern"
    if not places.is_folder(places.at(place)):
        return "no such file or folder"
    plain = [end for end in suffixes if not any(end != o and end.startswith(o) for o in suffixes)]
    if not any(plain):
        return "no file in this folder"
    packed = " (plain or compressed)" if len(plain) < len(suffixes) else ""
    ends = sorted({PurePosixPath(str(each)).suffix for each in places.below(places.at(place))})
    moses = next((end for end in ends if len(end) == 3 and language_codes.is_code(end[1:])), "")
    other = f"; for the files of a language set corpus.path='{place.rstrip('/')}/**/*{moses}'" if moses else ""
    return f"no {', '.join(plain)} file{packed} in this folder{other}"


def check_options(corpus: CorpusConfig, kind: type) -> None:
    """Raise ConfigError for an option that the reader lacks, or requires."""
    known = list(inspect.signature(kind).parameters.values())[2:]
    names = [each.name for each in known]
    for name in corpus.options:
        if name not in names:
            raise ConfigError(
                f"no such option of {corpus.reader}; choose one of {', '.join(names) or 'none'}",
                f"corpus.options.{name}",
            )
    for each in known:
        if each.default is each.empty and each.name not in corpus.options:
            raise ConfigError(f"is required by {corpus.reader}", f"corpus.options.{each.name}")


def open_corpus(corpus: CorpusConfig, source: str) -> Reader:
    """Return the reader of a corpus.

    Raises:
        ConfigError: the reader is unknown, or an option is unknown or missing.
        InputError: the reader opens its files at once and finds none.
    """
    kind = reader_class(corpus.reader)
    if kind is None:
        cure = f"choose one of {', '.join(readers())}"
        if corpus.files:
            cure = "this corpus only works with python -m pipeline.download"
        raise ConfigError(f"no such reader; {cure}", "corpus.reader", corpus.reader)
    check_options(corpus, kind)
    if corpus.path is not None:
        corpus = replace(corpus, path=places.pinned(corpus.path))
    reader: Reader = kind(corpus, source, **corpus.options)
    if corpus.limit is not None:
        reader = size_limit.SizeLimit(reader, corpus, source)
    return FixEncoding(reader) if corpus.mend else reader


def reader_class(name: str) -> type | None:
    """Return the class `Reader` of the module `name` of this package, or None."""
    if name not in {module.name for module in pkgutil.iter_modules(__path__)}:
        return None
    return getattr(importlib.import_module(f"{__name__}.{name}"), "Reader", None)


def readers() -> list[str]:
    """Return the names of all readers."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return [name for name in names if reader_class(name) is not None]


class FixEncoding:
    """Wrapper of a reader that repairs mojibake in its documents with ftfy."""

    def __init__(self, reader: Reader):
        self.reader = reader
        # Encoding only: no normalisation, no straightened quotation marks, no split ligatures.
        self.fix: Callable[[str], str] = library("ftfy", "corpus.mend", True).fix_encoding

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Return the splits of the wrapped reader."""
        return self.reader.splits(split_bytes)

    def read(self, split: FileRange, tally: SkipCounts) -> Documents:
        """Yield the documents of the wrapped reader, repaired line by line."""
        for document in self.reader.read(split, tally):
            text = "\n".join(map(self.fix, document.text.split("\n")))
            if text != document.text:
                tally.notes["wrongly decoded letters mended by ftfy"] += 1
                document = replace(document, text=text)
            yield document
