"""Readers: turn corpus files into documents of clean plain text.

A reader is a module of this package with a class `Reader`. It cuts its files into file ranges in the
driver (`splits`) and reads one range in a worker (`read`). Both depend on the files alone: the same
corpus gives the same documents on any runner.
"""

import contextlib
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

from pipeline.common.schema import check, library
from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError
from pipeline.readers.base import (
    CorpusReader,
    Document,
    Documents,
    FileRange,
    FileRanges,
    ReadLog,
    notes_of,
    passed_over,
)
from pipeline.readers.io import size_limit, unpacked
from pipeline.storage import places

SkipCounts = ReadLog  # the former name, which readers of users import


def check_options(corpus: CorpusConfig, kind: type) -> None:
    """Raise ConfigError for an option that the reader lacks, or requires, or that is true or false there."""
    known = list(inspect.signature(kind).parameters.values())[2:]
    names = [each.name for each in known]
    problem = f"no such option of {corpus.reader}; choose one of {', '.join(names) or 'none'}"
    for name in corpus.options:
        check(name in names, problem, f"corpus.options.{name}")
    for each in known:
        given = each.default is not each.empty or each.name in corpus.options
        check(given, f"is required by {corpus.reader}", f"corpus.options.{each.name}")
        value = corpus.options.get(each.name, each.default)
        fits = value is each.default or bool not in (each.annotation, *get_args(each.annotation))
        check(fits or isinstance(value, bool), "must be true or false", f"corpus.options.{each.name}", value)


def open_corpus(corpus: CorpusConfig, source: str) -> CorpusReader:
    """Return the reader of a corpus.

    Raises:
        ConfigError: the reader is unknown, or an option is unknown or missing.
        InputError: the reader opens its files at once and finds none.
    """
    kind = reader_class(corpus.reader)
    if kind is None:
        cure = f"choose one of {', '.join(readers())}"
        if corpus.reader in modules():
            cure = f"its module {__name__}.{corpus.reader} has no class Reader"
        elif corpus.files:
            cure = "this corpus only works with python -m pipeline.download"
        raise ConfigError(f"no such reader; {cure}", "corpus.reader", corpus.reader)
    check_options(corpus, kind)
    if corpus.path is not None:
        corpus = replace(corpus, path=places.pin_revision(corpus.path))
    reader: CorpusReader = kind(corpus, source, **corpus.options)
    if members := getattr(reader, "members", ()):
        reader = unpacked.InArchives(reader, members)
    if corpus.limit is not None:
        reader = size_limit.SizeLimit(reader, corpus, source)
    return FixEncoding(reader) if corpus.mend else reader


def modules() -> list[str]:
    """Return the names of the modules of this package."""
    return [module.name for module in pkgutil.iter_modules(__path__)]


def reader_class(name: str) -> type | None:
    """Return the class `Reader` of the module `name` of this package, or None.

    Raises:
        ConfigError: the module imports what is not installed.
    """
    if name not in modules():
        return None
    try:
        return getattr(importlib.import_module(f"{__name__}.{name}"), "Reader", None)
    except ModuleNotFoundError as error:
        problem = f"its module {__name__}.{name} imports {error.name}, which is not installed; install it"
        raise ConfigError(problem, "corpus.reader", name) from error


def readers() -> list[str]:
    """Return the names of all readers."""
    names = []
    for name in modules():
        with contextlib.suppress(ConfigError):
            names += [name] * (reader_class(name) is not None)
    return names


class FixEncoding:
    """Wrapper of a reader that repairs mojibake in its documents with ftfy."""

    def __init__(self, reader: CorpusReader):
        self.reader = reader
        # Encoding only: no normalisation, no straightened quotation marks, no split ligatures.
        self.fix: Callable[[str], str] = library("ftfy", "corpus.mend", True).fix_encoding

    def splits(self, split_bytes: int) -> list[FileRange]:
        """Return the file ranges of the wrapped reader."""
        return self.reader.splits(split_bytes)

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the documents of the wrapped reader, repaired line by line."""
        for document in self.reader.read(file_range, log):
            text = "\n".join(map(self.fix, document.text.split("\n")))
            if text != document.text:
                log.notes["wrongly decoded letters mended by ftfy"] += 1
                document = document._replace(text=text)
            yield document
