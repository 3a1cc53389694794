"""Rows of `embed` and `predict`: lines of text, or rows of a table as `evaluate` reads it.

A line feed alone ends a line, so that `wc -l` counts them.
"""

import codecs
import csv
import io
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO, cast
from unicodedata import normalize

from pipeline.common.schema import check
from pipeline.common.tables import read_table
from pipeline.config import EmbedConfig, PredictConfig
from pipeline.console import terminal
from pipeline.console.formatting import pluralize
from pipeline.errors import InputError, readable
from pipeline.evaluation import examples, table_files
from pipeline.readers import formats
from pipeline.storage.placeholders import HEAD
from pipeline.text import encodings, tables

TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
LOOKED_AT = 20  # lines, for what a header names
NAMES, ALONE, TAGGED = (frozenset(names.split()) for names in read_table(__file__, "input_rows.yaml").values())


@dataclass(frozen=True)
class Row:
    """A row of the input: a line, in which tabs may divide texts, or the columns of a table."""

    number: int  # from 1; a header is not counted
    where: str  # file and line number, from 1
    text: str  # of the line, or of the columns with tabs between
    columns: list[str] | None = None
    about: dict[str, str] = field(default_factory=dict)  # `id` and `gold`, where there are any

    def parts(self, most: int = 0) -> list[str]:
        """Return the texts of the row, `most` of a line; 0: all."""
        return self.columns or self.text.split("\t", most - 1)


def open_rows(path: str | None) -> TextIO:
    """Open a UTF-8 file, or standard input without a path; a lone CR is part of its line.

    A byte order mark at the beginning is left out.
    """
    if path:
        return open(path, encoding="utf-8-sig", newline="\n")
    if isinstance(sys.stdin, io.TextIOWrapper):  # of the locale's encoding till then
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict", newline="\n")
    return sys.stdin


def rows_of(config: PredictConfig | EmbedConfig) -> Iterator[Row]:
    """Yield the rows of the input, and say at its end how many have no text; lines are read as they are needed.

    Raises:
        InputError: raised by `_rows`.
    """
    empty = 0
    for row in _rows(config):
        empty += not "".join(row.columns or [row.text]).strip()
        yield row
    if empty:
        terminal.say(f"warning: {pluralize(empty, 'row')} without text", sys.stderr)


def _rows(config: PredictConfig | EmbedConfig) -> Iterator[Row]:
    """Yield the rows of the input.

    Raises:
        InputError: the input is unreadable, empty, malformed or no text, or which columns to read
            is not known.
    """
    place = config.input or "standard input"
    with readable(place):
        if config.input and (Path(place).is_dir() or ({*"*?["} & {*place} and not Path(place).exists())):
            cure = "name one, or leave input out and pipe several: cat FILES | python -m …"
            raise InputError(f"is not a file; {cure}", "input", place, path=place)
        if config.input and table_files.ends(place, *TABLES):
            yield from _table_rows(config, place, Path(config.input).read_bytes())
            return
        with open_rows(config.input) as stream:
            raw = cast("io.BufferedReader", stream.buffer).peek(HEAD) if config.input else b""
            if raw and (why := encodings.fault(raw, raw.decode("utf-8", "replace"))):
                raise InputError(why, path=place)
            first = list(itertools.islice(stream, LOOKED_AT))
            if not first:
                raise InputError("is empty; write one input per line", "input", place)
            if config.columns:
                yield from _table_rows(config, place, "".join([*first, *stream]).encode())
                return
            if "\n" not in first[0]:  # as of old Macintoshs: the file has no other line ends
                first = first[0].removesuffix("\r").split("\r")
            for key, value in (("id", config.id), ("label", config.label)):
                check(value is None, "is a column of a table; set columns, too", key, value)
            _refuse_header(place, first)
            for number, line in enumerate(itertools.chain(first, stream), 1):
                text = line.removesuffix("\n").removesuffix("\r")
                yield Row(number, f"{place}, line {number}", text)


def longest_of(config: PredictConfig | EmbedConfig, positions: int, own: int | None = None) -> int:
    """Return how many tokens of a row are read: as set, or as a setting of the folder says, or as it has learnt.

    Raises:
        ConfigError: the model has fewer positions.
    """
    from model.training import provenance

    learnt = provenance.learnt(config.pretrained, positions)
    longest = config.sequence_length or min(own or learnt, positions)
    check(longest <= positions, f"the model has {positions} positions", "sequence_length", longest)
    for line in provenance.beyond(config.sequence_length or 0, learnt):
        terminal.say(line, sys.stderr)
    return longest


def _table_rows(config: PredictConfig | EmbedConfig, place: str, content: bytes) -> Iterator[Row]:
    """Yield the rows of a table; indices of columns say that it has no header, as in a task.

    Raises:
        InputError: raised by `rows_of`.
    """
    header = not config.columns or not all(name.isdecimal() for name in config.columns)
    named = table_files.ends(place, *TABLES)
    # The first column of other files may be whole lines.
    kind = place if named else _kind_of(content, header or config.columns != ["0"])
    table = table_files.parse(place, content, header, needed=[*config.columns, config.id or ""], kind=kind)
    first = list(filter(None, table.rows[0])) if table.rows and not table.names else []
    if len(first) > 1 and first == list(map(str, range(len(first)))):
        table = table_files.parse(place, content, True, kind=kind)  # as evaluate reads it
    of_beir = not config.columns and {"_id", "text"} <= {*table.names}
    if not config.columns and not of_beir:
        known = ", ".join(map(repr, table.names))
        cure = f"set 'columns=[\"NAME\"]', of {known}, or columns=[0] where the first line names none"
        raise InputError(f"columns is required, those of the texts; {cure}", "columns", path=place, line=1)
    plain = bool(table.rows) and not table.names and (named or len(table.rows[0]) > 1)
    if plain and _are_names(*table.rows, divided=not table_files.ends(kind, ".tsv")):
        raise _question(place, "write names above it")
    if table.malformed or not table.rows:
        fault = table.malformed[0] if table.malformed else f"{place}: has no rows"
        raise InputError(f"{fault}; correct the file")
    whole = ["{title} {text}" if "title" in table.names else "text"]  # as BEIR reads a document
    texts = [examples.texts_of(table, column) for column in (whole if of_beir else config.columns)]
    texts = [list(map(str.strip, texts[0]))] if of_beir else texts
    about: dict[str, list[str]] = {}
    for name, column, usual in (("id", config.id, "_id" if of_beir else "id"), ("gold", config.label, "label")):
        if column is not None or usual in table.names:
            values = examples.texts_of(table, column or usual)
            about[name] = values if name == "id" else [normalize("NFC", value) for value in values]  # as labels are
    for index, line in enumerate(table.lines):
        parts = [column[index] for column in texts]
        own = {name: values[index] for name, values in about.items()}
        yield Row(index + 1, f"{place}, line {line}", "\t".join(parts), parts, own)


def _kind_of(content: bytes, has_columns: bool) -> str:
    """Return the suffix of the kind of a table, by its first line; without columns always TSV."""
    first = content.lstrip(codecs.BOM_UTF8 + b" \t\r\n").partition(b"\n")[0]
    if has_columns and first.startswith((b"{", b"[")):
        return ".jsonl" if first.startswith(b"{") else ".json"
    return ".csv" if has_columns and b"\t" not in first and (b"," in first or b";" in first) else ".tsv"


def _refuse_header(place: str, lines: list[str]) -> None:
    """Raise InputError if the first line seems to name columns, or to be JSON, as no text does."""
    lines = [line[:1000].replace("\r", "").rstrip("\n") for line in lines if line.strip()]
    if not lines:
        return
    if (lines[0].startswith("{") and {'"', ":"} <= {*lines[0]}) or lines[0].strip() in "[{":
        raise _question(place)
    if what := formats.not_lines("\n".join([*lines, ""])):
        raise InputError(f"is {what}, not texts; write one per line", path=place, line=1)
    for separator in "\t,;|":
        if _are_names(*csv.reader(lines, delimiter=separator), divided=separator != "\t"):
            raise _question(place)


def _are_names(first: list[str], *others: list[str], divided: bool) -> bool:
    """Return whether the first row seems to name the columns; if `divided`, also where these have few other values."""
    names = [name.strip().casefold() for name in first]
    short = all(0 < len(name) <= 30 and len(name.split()) <= 3 and not tables.NUMBER.fullmatch(name) for name in names)
    if not short or len(set(names)) < len(names):
        return False
    known = not NAMES.isdisjoint(names) if len(names) > 1 else names[0] in ALONE and bool(others)
    same = len(names) > 1 and {*map(len, others)} == {len(names)}
    columns = list(zip(first, *others, strict=True)) if same else []
    classes = divided and any(name not in own and 2 * len(set(own)) <= len(own) for name, *own in columns)
    return known or classes or any(all(map(tables.NUMBER.fullmatch, map(str.strip, own))) for _, *own in columns)


def _question(place: str, otherwise: str = "columns=[0]") -> InputError:
    cure = f"set columns=[NAME] to that of the texts, or {otherwise} if it is a text"
    return InputError(f"seems to name the columns of a table, not to be a text; {cure}", "columns", path=place, line=1)
