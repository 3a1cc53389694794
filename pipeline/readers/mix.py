"""Several corpora in one run, each with a weight.

A weight of 0.25 keeps each document with probability 1/4; a weight of 2.5 repeats each document
twice, and every other one a third time. The choice is a function of the document's text and the
seed: it depends neither on the order of files nor on the file ranges.
"""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from types import GenericAlias
from typing import Any, get_origin, get_type_hints

import numpy as np

from pipeline import readers
from pipeline.common import counter_rng
from pipeline.common.schema import check
from pipeline.config import CorpusConfig, DownloadFile
from pipeline.errors import ConfigError, UserError
from pipeline.readers.base import Documents, FileRange, FileRanges, ReadLog, notes_of

MOST = 1000  # largest weight
TYPES = {bool: "true or false", int: "a whole number", dict: "a mapping", list: "a list"}
INHERITED = ("on_error", "language", "encoding")  # keys of the mix for parts without their own


class Reader:
    """Reader of the corpora in `corpus.parts`, ordered by name."""

    def __init__(self, corpus: CorpusConfig, source: str, *, seed: int = 0):
        check(bool(corpus.parts), "must have one; add +corpus@corpus.parts.NAME=NAME, a corpus", "corpus.parts")
        self.parts: dict[str, tuple[CorpusConfig, float, readers.CorpusReader]] = {}
        self.seed = seed
        for name in sorted(corpus.parts):
            with keys_of_part(name):
                part, weight = part_config(corpus, name)
                self.parts[name] = part, weight, readers.open_corpus(part, source)

    def splits(self, split_bytes: int) -> FileRanges:
        """Return the file ranges of all parts; a part of weight 0 has none."""
        every = FileRanges()
        for name, (_, weight, reader) in self.parts.items():
            with keys_of_part(name):
                ranges = reader.splits(split_bytes) if weight > 0 else []
            every += [dataclasses.replace(file_range, part=name) for file_range in ranges]
            every.notes.update({f"{name}: {note}": count for note, count in notes_of(ranges).items()})
        return every

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the documents of one part that its weight keeps; count by part."""
        part, weight, reader = self.parts[file_range.part]
        inner = ReadLog(part.on_error, log.progress)
        key = counter_rng.key(self.seed, "mix", file_range.part)
        try:
            for document in reader.read(file_range, inner):
                copies = repeat_count(key, document.text, weight)
                if not copies:
                    inner["sampled out"] += 1
                    continue
                inner.notes.update(documents=1, repeats=copies - 1)
                yield document._replace(
                    id=f"{file_range.part}: {document.id}", language=document.language or part.language, copies=copies
                )
        finally:
            inner.notes = +inner.notes  # without zeros
            log.take(inner, f"{file_range.part}: ")


@contextlib.contextmanager
def keys_of_part(name: str) -> Iterator[None]:
    """Make errors raised in the body name the keys of a part of the mix."""
    try:
        yield
    except UserError as error:
        own = functools.partial(re.sub, r"\bcorpus\.(?!parts\.)", lambda _: f"corpus.parts.{name}.")
        raise error.but(problem=own(error.problem), key=error.key and own(error.key)) from error


def repeat_count(key: np.uint64, text: str, weight: float) -> int:
    """Return how often to repeat a document; `weight` on average."""
    drawn = counter_rng.uniform(key, counter_rng.number_of(text))
    return int(weight) + bool(drawn < weight - int(weight))


def typed(part: str, key: str, value: Any) -> Any:
    """Return the value of a key of a part, a number where a text is wanted as text.

    Raises:
        ConfigError: the value is of another type.
    """
    wanted = get_type_hints(CorpusConfig)[key]
    kind = get_origin(wanted) if isinstance(wanted, GenericAlias) else wanted
    if isinstance("", kind) and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # a year, a code page
    what = TYPES.get(kind, "a text, in quotes if it looks like something else")
    check(isinstance(value, kind), f"must be {what}", f"{part}.{key}", value)
    return value


def part_config(corpus: CorpusConfig, name: str) -> tuple[CorpusConfig, float]:
    """Return the configuration of a part, and its weight.

    Raises:
        ConfigError: it is incomplete, has an unknown key, a value of another type, or an invalid
            weight.
    """
    key = f"corpus.parts.{name}"
    settings = corpus.parts[name]
    check(isinstance(settings, Mapping), "must be a mapping with keys such as reader, path and weight", key)
    inherited = {key: getattr(corpus, key) for key in INHERITED}
    settings = {"name": name, **inherited, **settings}
    weight = settings.pop("weight", 1.0)
    number = isinstance(weight, int | float) and 0 <= weight <= MOST
    check(number, f"must be between 0 and {MOST}", f"{key}.weight", weight)
    known = {field.name for field in dataclasses.fields(CorpusConfig)}
    if unknown := sorted(set(settings) - known):
        raise ConfigError(f"unknown key; use one of weight, {', '.join(known)}", f"{key}.{unknown[0]}")
    check("reader" in settings, "is required", f"{key}.reader")
    nested = settings["reader"] == "mix"
    check(not nested, "mixes cannot be nested; list its parts in this mix", f"{key}.reader", "mix")
    try:
        settings["files"] = [DownloadFile(**file) for file in settings.get("files") or []]
    except TypeError as error:
        raise ConfigError(f"each must have url, and sums or digest ({error})", f"{key}.files") from error
    part = CorpusConfig(**{each: typed(key, each, value) for each, value in settings.items()})
    cure = f"python -m pipeline.download with this corpus alone downloads its files to work/{part.name}/download"
    check(not part.files or part.path is not None, f"is required; {cure}", f"{key}.path")
    return part, float(weight)
