"""Document filters, with a reason for each document that they drop.

A filter sees one document at a time: its verdict does not depend on other documents. Near
duplicates are the exception, found between the two phases of `prepare`
(`pipeline.filtering.minhash`).
"""

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.common import counter_rng
from pipeline.config import FiltersConfig
from pipeline.console.formatting import pluralize
from pipeline.errors import ConfigError, InputError, readable
from pipeline.filtering import ngrams
from pipeline.readers.io import compressed
from pipeline.storage import budget, file_search, places, strict_json
from pipeline.storage.budget import Budget
from pipeline.text import clean, encodings, tables

REMOVED = "removed"  # the sub-count of `filters.remove`
NEAR = "near duplicate"  # the sub-count of `pipeline.filtering.minhash`

SHORT = "evaluation files without an n-gram"  # the files that no document can match

# Of evaluation files in a folder, also compressed.
KINDS = (".tsv", ".json", ".jsonl", ".txt", ".conll", ".conllu")
# Files of a data set that are about it: they hold nothing to evaluate on.
ABOUT = re.compile(r"(readme|licen[cs]e|copying|notice)\b.*|.*\.(md|rst|pdf|py|sh)", re.IGNORECASE)
NOT_READ = "train"  # beginning of names of training data
# Of files of one word a line with labels in columns, as CoNLL's.
_SAME = 0.95  # share of rows with as many columns; others are marks of documents
_NUMBER = re.compile(r"\d+(?:[-.]\d+)?")  # of a word in its sentence (CoNLL-U, CoNLL-2012)
_BEFORE = 3  # columns that may stand before the word: of the document, its part, the word's number


class Drop(NamedTuple):
    """Why a filter drops a document."""

    reason: str
    file: str = ""  # of an evaluation, which has the passage too
    passage: str = ""


@dataclass
class Rule:
    """A filter that looks at the text alone."""

    short: ClassVar[dict[str, int]] = {}
    reason: str
    broken: Callable[[str], object]

    def check(self, text: str) -> Drop | None:
        """Return the reason to drop a text that breaks the rule."""
        return Drop(self.reason) if self.broken(text) else None


@cache
def _is_letter() -> npt.NDArray[np.bool_]:
    """Return which characters are letters or marks on them."""
    kept = (c for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c))[0] in "LM")
    letters = np.zeros(sys.maxunicode + 1, np.bool_)
    letters[list(kept)] = True
    return letters


def non_letter_share(text: str) -> float:
    """Return the share of non-letters among characters other than spaces: of numbers, code, tables.

    Combining marks count as letters.
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    written = len(codes) - text.count(" ") - text.count("\n")
    letters = int(np.count_nonzero(_is_letter()[codes]))
    return 1 - letters / written if written else 1.0


class Decontamination:
    """Filter of documents sharing an n-gram with an evaluation file (Brown et al. 2020, app. C).

    `short` has the files whose texts all have fewer than `n` words, with the most that one has.
    """

    def __init__(self, files: list[Path], n: int, language: str):
        self.n = n
        self.files = [str(path) for path in files]
        self.short: dict[str, int] = {}
        grams = []
        for path in files:
            unique, most = grams_of(path, n, language)
            grams.append(unique)
            if 0 < most < n:
                self.short[str(path)] = most
        # An n-gram in several files is attributed to the first.
        self.grams, first = np.unique(np.concatenate(grams), return_index=True)
        if not len(self.grams):
            why = f"no text of {n} words there; correct the paths, or reduce filters.ngram"
            raise InputError(why, "filters.decontaminate", ", ".join(self.files))
        self.owners = np.repeat(np.arange(len(files)), list(map(len, grams)))[first]

    def check(self, text: str) -> Drop | None:
        """Return the file and passage if any n-gram of a text occurs in an evaluation file."""
        hashes = ngrams.hashes(ngrams.numbers_of([text])[0], self.n)
        rows = np.minimum(np.searchsorted(self.grams, hashes), len(self.grams) - 1)
        shared = np.flatnonzero(self.grams[rows] == hashes)
        if not len(shared):
            return None
        passage = " ".join(ngrams.words(text)[shared[0] : shared[0] + self.n])
        return Drop("contaminated", self.files[self.owners[rows[shared[0]]]], passage)


Filter = Rule | Decontamination  # a reason to drop a document


def grams_of(path: Path, n: int, language: str) -> tuple[counter_rng.Bits, int]:
    """Return the hashes of an evaluation file's n-grams, and the words of its longest text."""
    grams, most = [np.zeros(0, np.uint64)], 0
    for text in evaluation_texts(path, language):
        # Documents are compared after cleaning, which joins what a ZWNJ or soft hyphen divides.
        (words,) = ngrams.numbers_of([clean.clean(text)])
        grams.append(ngrams.hashes(words, n))
        most = max(most, len(words))
    return np.unique(np.concatenate(grams)), most


def compiled(pattern: str, path: str | None = None, line: int | None = None) -> re.Pattern[str]:
    """Compile a regular expression of `filters.banned`, or of a line of `filters.banned_file`.

    Raises:
        ConfigError: it is invalid.
    """
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error as error:
        key = "filters.banned" if path is None else "filters.banned_file"
        raise ConfigError(
            f"invalid regular expression {pattern!r} ({error}); fix or remove it", key, path=path, line=line
        ) from error


def listed(path: str, language: str) -> Iterator[re.Pattern[str]]:
    """Yield the patterns in a file: one per line; skip blank lines and comments (`#`).

    Raises:
        InputError: the file cannot be read.
        ConfigError: a line is not a valid regular expression.
    """
    for number, line in enumerate(tables.lines_of(text_of(Path(path), language)), 1):
        if line.strip() and not line.startswith("#"):
            yield compiled(line, path, number)


def removed(path: str | None) -> frozenset[str]:
    """Return the lines of `filters.remove`, ids and hashes of documents.

    Raises:
        InputError: the file cannot be read.
    """
    return frozenset(line for line in tables.lines_of(text_of(Path(path))) if line.strip()) if path else frozenset()


def named(removed: frozenset[str], name: str, digest: bytes) -> frozenset[str]:
    """Return the lines of `filters.remove` that name a document: by its id, or by the hash of its text."""
    return removed & {name, digest.hex()}


def evaluation_files(patterns: list[str]) -> list[Path]:
    """Return the evaluation files; of a folder all texts and tables, but training and hidden data.

    Raises:
        InputError: a path has no such files or cannot be read, or a folder has files of other
            types, whose text would not be found.
    """
    chosen: list[Path] = []
    for place in patterns:
        top = Path(place)
        if file_search.is_folder(top):
            # The files that the fingerprint covers: a change of any other would go unnoticed.
            all_files = sorted(Path(str(path)) for path in places.below(top))
            files = [path for path in all_files if not path.name.startswith(NOT_READ) and is_read(place, path)]
        else:
            files = file_search.files_matching(place)
        if not files:
            raise InputError("no evaluation files found; correct the path", "filters.decontaminate", place)
        chosen += files
    return list(dict.fromkeys(chosen))


def kind_of(path: Path) -> str:
    """Return the suffix of a file's name, of a compressed file the one before: `.tsv`."""
    return Path(compressed.plain_name(path.name.lower())).suffix


def is_read(place: str, path: Path) -> bool:
    """Return whether a file in an evaluation folder is read.

    Raises:
        InputError: it is not, and may hold text.
    """
    if kind_of(path) in KINDS:
        return True
    if not ABOUT.fullmatch(path.name) and path.stat().st_size:
        why = f"{path} is not one of {', '.join(KINDS)} (plain or compressed), so its text might not be found"
        cure = "convert or delete it, or name the files instead of the folder to compare it as plain text"
        raise InputError(f"{why}; {cure}", "filters.decontaminate", place, path=path)
    return False


def evaluation_texts(path: Path, language: str = "en") -> Iterator[str]:
    """Yield the texts of an evaluation file: table cells, JSON strings, tagged sentences, or all.

    Words in a column, or in a list, are a text, too.

    Raises:
        InputError: the file cannot be read.
    """
    text, kind = text_of(path, language), kind_of(path)
    if kind in (".json", ".jsonl"):
        pieces = tables.lines_of(text) if kind == ".jsonl" or is_json_lines(text) else [text]
        for number, piece in enumerate(pieces, 1):
            try:
                yield from strings(strict_json.parse_line(piece, most=budget.FIELDS)) if piece.strip() else ()
            except ValueError as error:
                why = f"{error}; fix the file, or remove it from filters.decontaminate"
                raise InputError(why, "filters.decontaminate", path=path, line=number) from error
        return
    lines = tables.lines_of(text)
    if kind == ".tsv":
        for _, row in tables.tsv_rows(path, text):
            yield from row
    else:
        yield text
    yield " ".join(words_of_columns(lines))


def is_json_lines(text: str) -> bool:
    """Return whether the first of several lines is JSON by itself, in a file of any name."""
    first, _, others = text.strip().partition("\n")
    if not others:  # one value, which need not be parsed twice
        return False
    try:
        strict_json.parse_line(first)
    except ValueError:
        return False
    return True


def text_of(path: Path, language: str = "en") -> str:
    """Return the text of a small file, plain or compressed, in Unicode or in an old encoding of the language.

    Raises:
        InputError: it cannot be read, is damaged, or is not text.
    """
    with readable(path):
        size = path.stat().st_size
    raw = b""
    if size or path.name.lower().endswith(compressed.PACKED):
        large = f"larger than {budget.TABLE:,} bytes when decompressed; split it"
        room = Budget(lambda: InputError(large, path=path), max(size, budget.TABLE))
        raw = room.gathered(chunk for chunk, _ in compressed.CompressedFile(path).read())
    text = encodings.decode(raw, language).text
    if why := encodings.fault(raw, text):
        raise InputError(why, path=path)
    return text


def strings(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value, and the words of a list as one."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        if isinstance(value, list) and all(is_word(inner) for inner in value):
            yield " ".join(value)
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


def is_word(value: Any) -> bool:
    """Return whether a JSON value is a string without a space."""
    return isinstance(value, str) and not re.search(r"\s", value)


def short_warning(config: FiltersConfig, short: dict[str, int]) -> str:
    """Return the warning of the `short` files of `Decontamination`."""
    count, few = len(evaluation_files(config.decontaminate)), list(short)[:3]
    more = f" and {len(short) - len(few):,} more" if len(short) > len(few) else ""
    return (
        f"filters.decontaminate: {len(short):,} of {pluralize(count, 'file')} have no "
        f"{config.ngram} words in a row, so no document can match them: {', '.join(few)}{more}; a "
        f"smaller filters.ngram compares more (their longest texts have {min(short.values())} to "
        f"{max(short.values())} words)"
    )


def build(config: FiltersConfig, language: str = "en") -> list[Filter]:
    """Return the enabled filters of a corpus in a language, fastest first.

    Raises:
        ConfigError, InputError: a pattern is invalid, or a file cannot be read.
    """
    chosen: list[Filter] = []
    if (longest := config.maximum_characters) is not None:  # lists, logs, data
        chosen.append(Rule("long", lambda text: len(text) > longest))
    if (most := config.maximum_non_letters) is not None:
        chosen.append(Rule("non-letters", lambda text: non_letter_share(text) > most))
    patterns = [compiled(pattern) for pattern in config.banned]
    if config.banned_file is not None:
        patterns += listed(config.banned_file, language)
    if patterns:
        chosen.append(Rule("banned", lambda text: any(pattern.search(text) for pattern in patterns)))
    if config.decontaminate:
        chosen.append(Decontamination(evaluation_files(config.decontaminate), config.ngram, language))
    return chosen


def words_of_columns(lines: list[str]) -> list[str]:
    """Return the column of words; nothing if the lines are no rows of columns.

    It is the first one, or the one after the last number in front.
    """
    rows = [line.split() for line in lines if line.strip() and not line.startswith("# ")]
    if not rows:
        return []
    ((width, count),) = Counter(map(len, rows)).most_common(1)
    if width < 2 or count < _SAME * len(rows):
        return []
    rows = [row for row in rows if len(row) == width]
    before = [index for index in range(min(_BEFORE, width - 1)) if all(_NUMBER.fullmatch(row[index]) for row in rows)]
    column = before[-1] + 1 if before else 0
    return [row[column] for row in rows]
