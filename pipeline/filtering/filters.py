"""Document filters, with a reason for each document that they drop.

A filter sees one document at a time: its verdict does not depend on other documents. Near
duplicates are the exception, found between the two phases of `prepare`
(`pipeline.filtering.minhash`).
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
    """A reason to drop a document."""

    reason: str

    def drops(self, name: str, text: str) -> bool:
        """Return whether to drop the cleaned document."""


class MaxLength:
    """Filter of overlong documents: lists, logs, data."""

    reason = "long"

    def __init__(self, most: int):
        self.most = most

    def drops(self, name: str, text: str) -> bool:
        """Return whether the document has more than `most` characters."""
        return len(text) > self.most


class NonLetterShare:
    """Filter of numbers, code and tables: too many characters that are not letters."""

    reason = "non-letters"

    def __init__(self, most: float):
        self.most = most
        kept = (c for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c))[0] in "LM")
        self._is_letter = np.zeros(sys.maxunicode + 1, np.bool_)
        self._is_letter[list(kept)] = True

    def share(self, text: str) -> float:
        """Return the share of non-letters among characters other than spaces.

        Combining marks count as letters.
        """
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        written = len(codes) - text.count(" ") - text.count("\n")
        letters = int(np.count_nonzero(self._is_letter[codes]))
        return 1 - letters / written if written else 1.0

    def drops(self, name: str, text: str) -> bool:
        """Return whether the share is larger than `most`."""
        return self.share(text) > self.most


class BannedPatterns:
    """Filter of documents that match a regular expression."""

    reason = "banned"

    def __init__(self, patterns: list[re.Pattern[str]]):
        self.patterns = patterns

    def drops(self, name: str, text: str) -> bool:
        """Return whether any pattern matches."""
        return any(pattern.search(text) for pattern in self.patterns)


class Decontamination:
    """Filter of documents sharing an n-gram with an evaluation file (Brown et al. 2020, app. C).

    `found` counts the documents by file, `named` lists them with the shared words.
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
        # An n-gram in several files is attributed to the first.
        self.grams, first = np.unique(values, return_index=True)
        self.owners = owners[first]
        self.found = Counter[str]()
        self.named: list[str] = []

    def drops(self, name: str, text: str) -> bool:
        """Return whether any n-gram occurs in an evaluation file."""
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


def compiled(pattern: str, path: str | None = None, line: int | None = None) -> re.Pattern[str]:
    """Compile a regular expression of `filters.banned`, or of a line of `filters.banned_file`.

    Raises:
        ConfigError: it is invalid.
    """
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error as error:
        key = "filters.banned" if path is None else "filters.banned_file"
        where = key if path is None else f"{path}, line {line}"
        raise ConfigError(
            f"{where}: invalid regular expression {pattern!r} ({error}); fix or remove it",
            key=key, path=path, line=line,
        ) from error  # fmt: skip


def listed(path: str) -> Iterator[re.Pattern[str]]:
    """Yield the patterns in a file: one per line; skip blank lines and comments (`#`).

    Raises:
        InputError: the file cannot be read.
        ConfigError: a line is not a valid regular expression.
    """
    for number, line in enumerate(lines_of(text_of(Path(path))), 1):
        if line.strip() and not line.startswith("#"):
            yield compiled(line, path, number)


def lines_of(text: str) -> list[str]:
    """Split a text at line feeds only: JSON and TSV may contain other line separators."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def evaluation_files(places: list[str]) -> list[Path]:
    """Return the evaluation files; of a folder, all texts and tables except training data.

    Raises:
        InputError: a path has no such files or cannot be read.
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
            raise InputError(
                f"filters.decontaminate={place}: no evaluation files found; correct the path",
                key="filters.decontaminate", path=place,
            )  # fmt: skip
        found += files
    return list(dict.fromkeys(found))


def evaluation_texts(path: Path) -> Iterator[str]:
    """Yield the texts of an evaluation file: table cells, JSON strings, or the whole file.

    Raises:
        InputError: the file cannot be read.
    """
    text = text_of(path)
    if path.suffix == ".tsv":  # without quoting, as in GLUE
        for line in lines_of(text):
            yield from line.split("\t")
    elif path.suffix in (".json", ".jsonl"):
        pieces = [text] if path.suffix == ".json" else lines_of(text)
        for number, piece in enumerate(pieces, 1):
            try:
                yield from strings(json.loads(piece)) if piece.strip() else ()
            except ValueError as error:
                raise InputError(
                    f"{path}, line {number}: not valid JSON ({error}); fix the file, or remove it "
                    "from filters.decontaminate",
                    key="filters.decontaminate", path=path, line=number,
                ) from error  # fmt: skip
    else:
        yield text


def text_of(path: Path) -> str:
    """Return the text of a small file; raise InputError if it cannot be read."""
    try:
        return encodings.decode(path.read_bytes(), "en").text
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})", path=path) from error


def strings(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


def build(config: FiltersConfig) -> list[Filter]:
    """Return the enabled filters, fastest first.

    Raises:
        ConfigError, InputError: a pattern is invalid, or a file cannot be read.
    """
    chosen: list[Filter] = []
    if config.maximum_characters is not None:
        chosen.append(MaxLength(config.maximum_characters))
    if config.maximum_non_letters is not None:
        chosen.append(NonLetterShare(config.maximum_non_letters))
    patterns = [compiled(pattern) for pattern in config.banned]
    if config.banned_file is not None:
        patterns += listed(config.banned_file)
    if patterns:
        chosen.append(BannedPatterns(patterns))
    if config.decontaminate:
        chosen.append(Decontamination(evaluation_files(config.decontaminate), config.ngram))
    return chosen
