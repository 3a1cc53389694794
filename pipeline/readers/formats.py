"""What files are, by their names and by how they begin: the reader that is for them, or what converts them."""

import contextlib
import csv
import re
from collections import Counter
from pathlib import PurePosixPath
from typing import Any

from pipeline.common.tables import read_table
from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError, InputError
from pipeline.readers.io import compressed
from pipeline.storage.placeholders import find_placeholder

_KINDS = [{"named": "", "begins": "", "lines": True, **kind} for kind in read_table(__file__, "formats.yaml")]
_BEGINS = [(re.compile(kind["begins"]), kind) for kind in _KINDS if kind["begins"]]
_NUMBERED = re.compile(r"^\d+\t(?:[^\t\n]*+(\t)|(\d)++$)?", re.MULTILINE)
TABLE = "is a table of numbered rows, as of words and their counts; use corpus=tsv, or sentences"
_LOOKED_AT, _NEARLY = 20, 0.9  # lines at least, and which share of them tells
_HEAD = 1 << 14  # characters in which marks are counted
# Marks of a format at a word: <p>, (NP, \\v, *MOT:, word/NN. Texts in 400 languages have them at 13 % of words at most.
_MARK = re.compile(r"(?:[<\\(\[{@%#~&$*|/]++|[^\W_]++[_/|=<>{}\\]++)(?=\w)")
# An id, a number or a verse: GEN 1:1; a label of fastText.
_BEGUN = re.compile(r"(?:__label__|(?:[A-Za-z(]++\.? (?=\d++[:.]))?[!-/:-~]*+\d)[!-~]*+[ \t]")
# A time alone, at the end or with seconds, as of captions, chats and logs, but not John 3:16; bars of translations.
_DIVIDED = re.compile(
    r"(?:.*(?:[,(\[]\s?|[–—\d\s-]\s))?\d?\d:\d\d(?:[:.,]\d{1,3}){0,2}[)\]]?$|.*(?::\d\d ?[AP]M\W?$|\d:\d\d:\d\d|\|\|\|)"
)
# A line of its own: @highlight, = Title =, == Title, \section{Title}, .. note::, #+TITLE; but not = 2 + 3.
_ALONE = re.compile(r"(?:[@\\<]\w++(?:>|(?:\{[^{}]*+\})*+)|\.\. [\w-]++::.*|#\+\w.*|=+ (?:[^\W\d_]{2}.*|.* =+))$")
MARKED = (
    "texts in columns, or with marks of a format at many words or at lines, such as <p>, word/NN, \\v, @highlight, "
    "= Title =, 12:30 or utt-001; take these out first"
)


def by_name(name: str, reader: str = "") -> str | None:
    """Return what a file is that is not prose, and what to type; None where its name does not say.

    A file of the `reader` itself must have been packed in a way that it does not read.
    """
    plain = compressed.plain_name(name).lower()
    found = next((kind for kind in _KINDS if kind["named"] and plain.endswith(tuple(kind["named"].split()))), None)
    if found and _reads(reader, found):
        return f"is {found['what']} that is packed otherwise than usual; unpack it"
    return f"is {found['what']}; use {found['use']}" if found else None


def check_name(corpus: CorpusConfig, name: str, suffixes: tuple[str, ...]) -> None:
    """Raise ConfigError for a file whose name says that another reader is for it."""
    if not name.lower().endswith(suffixes) and (why := by_name(name, corpus.reader)):
        raise ConfigError(why, "corpus.path", corpus.path)


def cures(names: list[str]) -> str:
    """Return what to type for the most frequent kind of some files; empty where none is known."""
    ends = Counter(PurePosixPath(compressed.plain_name(name).lower()).suffix for name in names)
    ends[".json"] = min(ends[".json"], 1)  # next to files of many kinds
    known = [(count, end, why) for end, count in ends.items() if count and (why := by_name(f"a{end}"))]
    return "; {1} {2}".format(*max(known, key=lambda each: (each[0], each[1] != ".json"))) if known else ""


def not_prose(head: str, reader: str = "") -> str | None:
    """Return what a text is that is not prose, by its beginning, and what to type; None for prose, or the reader's."""
    head = head.removeprefix("\ufeff").removeprefix("\xef\xbb\xbf")  # as UTF-8 or as Latin-1
    if why := find_placeholder(head):  # an error of a server is JSON too
        return why
    found = next((kind for begins, kind in _BEGINS if begins.match(head)), None)
    return f"is {found['what']}; use {found['use']}" if found and not _reads(reader, found) else None


def not_lines(head: str) -> str | None:
    """Return what a text is of which no line is a text of its own, by its beginning; None for others."""
    return next((kind["what"] for begins, kind in _BEGINS if not kind["lines"] and begins.match(head)), None)


def _reads(reader: str, kind: dict[str, str]) -> bool:
    return kind["use"].partition(" corpus.")[0] == f"+corpus={reader}"


def name_file(file: compressed.CompressedFile, reader: str = "") -> str | None:
    """Return what a file is by its beginning, and what to type, if that is known and another than the reader's."""
    with contextlib.suppress(InputError):
        return not_prose(next(file.read(), (b"", True))[0][: 1 << 12].decode("latin-1"), reader)
    return None


def is_table(head: str) -> bool:
    """Return whether nearly all lines have a number and several fields, or another number: of words, of sources."""
    return sum(any(each) for each in _NUMBERED.findall(head)) > _NEARLY * head.count("\n")


def is_marked(text: str) -> bool:
    """Return whether a fourth of the first words or half of the lines have marks, all have columns, or all a number.

    Lines of a mark alone are several, one in twenty: code and chats have few. Lines with times are a fourth.
    """
    head = text[:_HEAD]
    words = head.split()
    if len(words) < _LOOKED_AT:
        return False
    lines = [line.strip().replace("\r", " ") for line in head.split("\n") if line.strip()]
    begun, alone, marks = (sum(1 for line in lines if has(line)) for has in (_BEGUN.match, _ALONE.match, _MARK.match))
    divided = sum(1 for line in lines if (":" in line or "|" in line) and _DIVIDED.match(line))
    numbered = begun > _NEARLY * len(lines) and len(lines) >= _LOOKED_AT
    if not numbers(head) and (numbered or any(has_columns(lines, mark) for mark in "\t,;|")):
        return True
    marked = sum(1 for word in words if not word.isalnum() and _MARK.match(word))
    return 4 * marked > len(words) or max(4 * divided, 2 * marks) > len(lines) or alone > max(1, len(lines) / 20)


def has_columns(lines: list[str], mark: str) -> bool:
    """Return whether a mark that no space follows divides nearly all lines into as many fields, the last not empty."""
    quoting: Any = csv.QUOTE_NONE if mark == "\t" else csv.QUOTE_MINIMAL
    rows = csv.reader(lines, delimiter=mark, quoting=quoting)
    first = next(rows)
    if len(lines) < _LOOKED_AT or len(first) < 2 or not first[-1]:
        return False
    alike = [first, *(row for row in rows if len(row) == len(first))]
    return sum(not any(field.startswith(" ") for field in row) for row in alike) > _NEARLY * rows.line_num


def numbers(head: str) -> str | None:
    """Return what to type for a text nearly all of whose lines begin with a number and a tab; None for others."""
    found, lines = _NUMBERED.findall(head), head.count("\n")
    if lines < _LOOKED_AT or len(found) < _NEARLY * lines:
        return None
    if is_table(head):
        return TABLE
    return (
        "nearly every line begins with its number; type +corpus=text corpus.options.document=line "
        "corpus.options.numbered=true to leave it out (false keeps it)"
    )
