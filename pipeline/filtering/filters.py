"""Which documents are left out of training, and why: each filter counts what it takes.

A filter sees one document at a time, so its verdict depends on no other; near duplicates are the
exception, and found between the two phases of `prepare` (see `pipeline.filtering.minhash`).
"""

import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pipeline.common import file_search
from pipeline.common.errors import ConfigError, InputError
from pipeline.config import FiltersConfig
from pipeline.filtering import ngrams
from pipeline.readers import SkipCounts
from pipeline.text import encodings

NEAR = "near duplicate"  # the sub-count of `pipeline.filtering.minhash`


class Filter(Protocol):
    """One reason to leave a document out."""

    reason: str

    def drops(self, name: str, text: str) -> bool:
        """Whether the cleaned document goes."""


class MaxLength:
    """Documents with more characters than any real one has: lists, logs, data."""

    reason = "long"

    def __init__(self, most: int):
        self.most = most

    def drops(self, name: str, text: str) -> bool:
        """Whether it has more than `most` characters."""
        return len(text) > self.most


class NonLetterShare:
    """Documents of numbers, code, tables: what is neither letter nor mark nor space."""

    reason = "non-letters"

    def __init__(self, most: float):
        self.most = most
        kept = (c for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c))[0] in "LM")
        self._is_letter = np.zeros(sys.maxunicode + 1, np.bool_)
        self._is_letter[list(kept)] = True

    def share(self, text: str) -> float:
        """The share of characters, spaces apart, that are no letters; combining marks are."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        written = len(codes) - text.count(" ") - text.count("\n")
        letters = int(np.count_nonzero(self._is_letter[codes]))
        return 1 - letters / written if written else 1.0

    def drops(self, name: str, text: str) -> bool:
        """Whether the share is too large."""
        return self.share(text) > self.most


class BannedPatterns:
    """Documents in which a regular expression is found."""

    reason = "banned"

    def __init__(self, patterns: list[re.Pattern[str]]):
        self.patterns = patterns

    def drops(self, name: str, text: str) -> bool:
        """Whether any of the patterns is found."""
        return any(pattern.search(text) for pattern in self.patterns)


class Decontamination:
    """Documents that share `n` words in a row with an evaluation file (Brown et al. 2020, app. C).

    `found` counts them by file, and `named` says which they are and what they share.
    """

    reason = "contaminated"

    def __init__(self, files: list[Path], n: int):
        self.n = n
        self.files = [str(path) for path in files]
        parts, self.texts, self.short = [], 0, 0
        for index, path in enumerate(files):
            grams = []
            for text in evaluation_texts(path):
                found = ngrams.words(text)
                self.texts += 1
                self.short += 0 < len(found) < n
                grams.append(ngrams.hashes(found, n))
            unique = np.unique(np.concatenate([np.zeros(0, np.uint64), *grams]))
            parts.append((unique, np.full(len(unique), index)))
        values = np.concatenate([np.zeros(0, np.uint64), *(part for part, _ in parts)])
        owners = np.concatenate([np.zeros(0, np.int64), *(owner for _, owner in parts)])
        # The first file that has an n-gram answers for it.
        self.grams, first = np.unique(values, return_index=True)
        self.owners = owners[first]
        self.found = Counter[str]()
        self.named: list[str] = []

    def drops(self, name: str, text: str) -> bool:
        """Whether any n-gram is an evaluation file's."""
        words = ngrams.words(text)
        hashes = ngrams.hashes(words, self.n)
        if not len(hashes) or not len(self.grams):
            return False
        places = np.minimum(np.searchsorted(self.grams, hashes), len(self.grams) - 1)
        shared = np.flatnonzero(self.grams[places] == hashes)
        if not len(shared):
            return False
        file = self.files[self.owners[places[shared[0]]]]
        self.found[file] += 1
        if len(self.named) < SkipCounts.NAMED:
            passage = " ".join(words[shared[0] : shared[0] + self.n])
            self.named.append(f"{name}: shares with {file}: {passage}")
        return True


def compiled(pattern: str, place: str) -> re.Pattern[str]:
    """A regular expression; `place` is where it stands.

    Raises:
        ConfigError: it is none.
    """
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise ConfigError(f"{place}: {pattern!r} is no regular expression: {error}") from error


def listed(path: str) -> Iterator[re.Pattern[str]]:
    """The patterns in a file: one a line; blank lines and those that begin with `#` are none.

    Raises:
        InputError: it cannot be read.
        ConfigError: a line is no regular expression.
    """
    for number, line in enumerate(lines_of(text_of(Path(path))), 1):
        if line.strip() and not line.startswith("#"):
            yield compiled(line, f"{path}, line {number}")


def lines_of(text: str) -> list[str]:
    """The lines of a text, by line feeds alone: JSON and TSV hold other separators as text."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def evaluation_files(places: list[str]) -> list[Path]:
    """The files that are meant: of a folder all texts and tables but training data.

    Raises:
        InputError: there are none in one of the places, or it cannot be looked into.
    """
    found: list[Path] = []
    for place in places:
        top = Path(place)
        if file_search.is_folder(top):
            all_files = sorted(file_search.files_below(top, hidden=True))
            kinds = (".tsv", ".json", ".jsonl", ".txt")
            files = [p for p in all_files if p.suffix in kinds and not p.name.startswith("train")]
        else:
            files = file_search.files_matching(place)
        if not files:
            raise InputError(f"filters.decontaminate={place}: no evaluation file there")
        found += files
    return list(dict.fromkeys(found))


def evaluation_texts(path: Path) -> Iterator[str]:
    """The texts of an evaluation file: cells of a table, strings in JSON, or the file whole.

    Raises:
        InputError: it cannot be read.
    """
    text = text_of(path)
    if path.suffix == ".tsv":  # without quotes, as GLUE's are
        for line in lines_of(text):
            yield from line.split("\t")
    elif path.suffix in (".json", ".jsonl"):
        pieces = [text] if path.suffix == ".json" else lines_of(text)
        for number, piece in enumerate(pieces, 1):
            try:
                yield from strings(json.loads(piece)) if piece.strip() else ()
            except ValueError as error:
                raise InputError(f"{path}: not JSON in line {number} ({error})") from error
    else:
        yield text


def text_of(path: Path) -> str:
    """The text of a small file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return encodings.decode(path.read_bytes(), "en").text
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def strings(value: Any) -> Iterator[str]:
    """All strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


def build(config: FiltersConfig) -> list[Filter]:
    """The filters that are switched on, the quickest first.

    Raises:
        ConfigError, InputError: a pattern or a file is not what it should be.
    """
    chosen: list[Filter] = []
    if config.maximum_characters is not None:
        chosen.append(MaxLength(config.maximum_characters))
    if config.maximum_non_letters is not None:
        chosen.append(NonLetterShare(config.maximum_non_letters))
    patterns = [compiled(pattern, "filters.banned") for pattern in config.banned]
    if config.banned_file is not None:
        patterns += listed(config.banned_file)
    if patterns:
        chosen.append(BannedPatterns(patterns))
    if config.decontaminate:
        chosen.append(Decontamination(evaluation_files(config.decontaminate), config.ngram))
    return chosen
