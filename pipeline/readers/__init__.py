"""Readers: from files as users have them to documents of clean, plain text.

A reader is a module of this package with a class `Reader`. It cuts its files into splits in the
driver (`splits`), and reads one split in a worker (`read`); both are functions of the files alone,
so the same corpus gives the same documents on any engine.
"""

import glob
import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from pipeline.common import storage
from pipeline.common.errors import ConfigError, InputError
from pipeline.common.storage import File
from pipeline.config import CorpusConfig


@dataclass(frozen=True, slots=True)
class Document:
    """One article, book or module.

    `text` has one paragraph (or heading, or list item) a line, and no line breaks within one.
    """

    id: str  # where it is from, stable: for error messages and for people
    title: str
    text: str
    language: str = ""  # where it is not the corpus's
    sentence_lines: bool = False  # every line is one sentence already
    copies: int = 1  # how often it is to be learnt from


@dataclass(frozen=True, slots=True)
class FileRange:
    """The part of a file that one task reads: the documents that start in bytes [start, end)."""

    path: str
    start: int
    end: int
    stamp: str = ""  # what was there when the plan was made; a worker finds out if it changed
    part: str = ""  # of a mix of corpora: which of them


class SkipCounts(Counter[str]):
    """What a reader passed over, by reason; and beside that, what people should know of it."""

    NAMED = 100  # single documents of a kind that are named; the others are counted only

    def __init__(self, on_error: str = "fail"):
        super().__init__()
        self.on_error = on_error
        self.notes = Counter[str]()  # what was mended or guessed in documents that were read
        self.broken: list[str] = []  # what is wrong with which document

    def bad(self, where: str, why: str, *, offer_skip: bool = True) -> None:
        """Count and name a document that cannot be read, or fail, as `on_error` says.

        Without `offer_skip` the error does not say that such documents can be left out.

        Raises:
            InputError: `on_error` is fail.
        """
        if self.on_error == "fail":
            cure = "; corpus.on_error=skip leaves such documents out" if offer_skip else ""
            raise InputError(f"{where}: {why}{cure}")
        self["broken"] += 1
        if len(self.broken) < self.NAMED:
            self.broken.append(f"{where}: {why}")

    def take(self, other: "SkipCounts", prefix: str) -> None:
        """Add what a part of this corpus passed over, by reasons that begin with `prefix`."""
        for mine, more in ((self, other), (self.notes, other.notes)):
            mine.update({prefix + reason: count for reason, count in more.items()})
        self.broken = (self.broken + other.broken)[: self.NAMED]


def passed_over(counts: Mapping[str, int]) -> str:
    """Return what was passed over in words: `64 redirects, 75 other namespaces, 53 empty`."""
    return ", ".join(
        f"{count:,} {_in_words(reason, count)}"
        for reason, count in sorted(counts.items(), key=lambda item: -item[1])
        if count
    )


def _in_words(reason: str, count: int) -> str:
    part, colon, reason = reason.rpartition(": ")  # of a mix of corpora
    words = _REASONS.get(reason, reason)
    if count != 1 and words.endswith(_COUNTED):
        words += "s"
    return f"{words} ({part})" if colon else words


# What reasons to pass over a document are called, where they have no such name themselves.
_REASONS = {
    "namespace": "other namespace",
    "model": "not wikitext",
    "little prose": "with little prose",
}
_COUNTED = ("redirect", "namespace", "duplicate")  # that are nouns


class Reader(Protocol):
    """What every corpus reader offers.

    A class attribute `UNIT` says what users call a document of it, such as `page`.
    """

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Cut the corpus into parts of about `split_bytes` each, in a fixed order.

        Raises:
            InputError: no files, or files that cannot be of this corpus.
        """

    def read(self, split: FileRange, tally: SkipCounts) -> Iterator[Document]:
        """Yield the documents of a split, in order.

        What is passed over on purpose (redirects, talk pages) is counted in `tally` by reason, and
        so are single documents that are broken, where it allows them.

        Raises:
            InputError: the file is broken; the message says where.
        """


def files_of(corpus: CorpusConfig, source: str, suffixes: tuple[str, ...]) -> list[File]:
    """The corpus's files, sorted: `corpus.path` (file, folder, glob, address), else `source`.

    A folder stands for all files below it whose names end in one of `suffixes`, in capitals or not.

    Raises:
        InputError: there is no such file.
        ConfigError: the corpus has no files of its own, and nobody said where they are.
    """
    place = corpus.path or source
    top = storage.at(place)
    if storage.is_folder(top):
        found = [file for file in storage.below(top) if file.name.lower().endswith(suffixes)]
    else:
        found = storage.matching(place)
    if found:
        return found
    key = "corpus.path"
    if corpus.path is not None:
        raise InputError(f"{key}={place}: {what_is_missing(place, suffixes)}", key=key, path=place)
    if corpus.files:
        raise InputError(
            f"{place}: {what_is_missing(place, suffixes)}; run python -m pipeline.download with "
            f"this corpus first, or set {key}",
            key=key, path=place,
        )  # fmt: skip
    raise ConfigError(f"{key}: say where the files of corpus {corpus.name} are", key=key)


def what_is_missing(place: str, suffixes: tuple[str, ...]) -> str:
    """Return what is not there, of a place where no file of a corpus was found."""
    if glob.has_magic(place):
        return "no file has such a name"
    if not storage.is_folder(storage.at(place)):
        return "no such file or folder"
    plain = [end for end in suffixes if not any(end != o and end.startswith(o) for o in suffixes)]
    if not any(plain):
        return "no file in this folder"
    packed = " (plain or packed)" if len(plain) < len(suffixes) else ""
    return f"no {', '.join(plain)} file{packed} in this folder"


def open_corpus(corpus: CorpusConfig, source: str) -> Reader:
    """The reader of a corpus.

    Raises:
        ConfigError: no such reader, an option that it does not know, or one that it lacks.
        InputError: a reader that looks at its files at once finds none.
    """
    kind = reader_class(corpus.reader)
    if kind is None:
        cure = f"choose one of {', '.join(readers())}"
        if corpus.files:
            cure = "this corpus is for python -m pipeline.download alone"
        raise ConfigError(
            f"corpus.reader={corpus.reader}: no such reader; {cure}", key="corpus.reader"
        )
    signature = inspect.signature(kind)
    try:
        signature.bind(corpus, source, **corpus.options)
    except TypeError as error:
        known = ", ".join(list(signature.parameters)[2:]) or "none"
        raise ConfigError(
            f"corpus.options of {corpus.reader}: {error}; its options are: {known}",
            key="corpus.options",
        ) from error
    reader: Reader = kind(corpus, source, **corpus.options)
    return FixEncoding(reader) if corpus.mend else reader


def reader_class(name: str) -> type | None:
    """The class `Reader` of the module `name` of this package; None where there is none."""
    if name not in {module.name for module in pkgutil.iter_modules(__path__)}:
        return None
    return getattr(importlib.import_module(f"{__name__}.{name}"), "Reader", None)


def readers() -> list[str]:
    """The names of all readers."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return [name for name in names if reader_class(name) is not None]


class FixEncoding:
    """Another reader's documents, with what was decoded in a wrong encoding put right by ftfy."""

    def __init__(self, reader: Reader):
        try:
            import ftfy
        except ImportError as error:
            raise ConfigError(f"corpus.mend=true needs ftfy ({error}): pip install ftfy") from error
        self.reader = reader
        # Letters alone: no normalisation, no straight quotation marks, no ligatures taken apart.
        self.fix = ftfy.fix_encoding

    def splits(self, split_bytes: int) -> list[FileRange]:
        """As the other reader cuts."""
        return self.reader.splits(split_bytes)

    def read(self, split: FileRange, tally: SkipCounts) -> Iterator[Document]:
        """What the other reader yields, mended line by line."""
        for document in self.reader.read(split, tally):
            text = "\n".join(map(self.fix, document.text.split("\n")))
            if text != document.text:
                tally.notes["wrongly decoded letters mended by ftfy"] += 1
                document = replace(document, text=text)
            yield document
