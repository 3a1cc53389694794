"""Rows of CSV and TSV.

TSV has two dialects. In GLUE's, quotation marks are text, and often unbalanced. A writer of CSV, as
of pandas, R or Excel, writes them around fields alone, and doubles them within.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from pipeline.errors import InputError

csv.field_size_limit(2**31 - 1)  # a text may be longer than 128 KiB
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)  # float() takes 1_000 too
Rows = list[tuple[int, list[str]]]  # line number, from 1, and fields
# A text all of whose quotation marks are around a field, or doubled in one.
_STATED = re.compile('"?sep=(.)"?', re.IGNORECASE)  # what Excel begins with: it is the separator
_WRITTEN = re.compile(r'(?:(?:"(?:[^"]++|"")*+"|[^"\t\r\n]*+)(?:\t|\r?\n|\Z))*+')


def lines_of(text: str) -> list[str]:
    """Split a text at line feeds only: JSON and TSV may contain other line separators."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def separator_of(text: str, header: bool = True) -> str:
    """Return what the first line of CSV states, or is divided by: tab, semicolon or bar without commas, comma.

    Of rows without a `header`, whose first may be text, it divides all into as many.
    """
    first = text.lstrip("\ufeff\r\n ").partition("\n")[0]
    if stated := _STATED.fullmatch(first.rstrip("\r")):
        return stated[1]
    separator = "\t" if "\t" in first else next((each for each in ";|" if each in first and "," not in first), ",")
    if header or separator == ",":
        return separator
    rows = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
    return separator if len({len(row) for row in rows if row}) == 1 else ","


def fields(lines: Iterable[str], separator: str, quotes: bool) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield line number and fields of each row that is not blank; of a broken one, the error.

    A first line that states the separator counts as blank.
    """
    ahead = iter(lines)
    first = next(ahead, "")
    lines = chain(["\n" if _STATED.fullmatch(first.strip("\ufeff\r\n")) else first], ahead)
    # csv.QUOTE_MINIMAL or QUOTE_NONE
    reader = csv.reader(lines, delimiter=separator, strict=True, skipinitialspace=quotes, quoting=0 if quotes else 3)
    while True:
        try:
            if row := next(reader):
                yield reader.line_num, row
        except csv.Error as error:
            yield reader.line_num, error
        except StopIteration:
            return


def csv_rows(place: object, text: str, separator: str) -> Rows:
    """Return the rows of a text whose fields may be quoted, without blank lines.

    Raises:
        InputError: a field has no end, or text after it.
    """
    rows: Rows = []
    for number, row in fields(io.StringIO(text), separator, True):
        if isinstance(row, csv.Error):
            raise InputError(f"is not CSV ({row})", path=place, line=number) from row
        rows.append((number, row))
    return rows


def tsv_rows(place: object, text: str) -> Rows:
    """Return the rows of TSV, without blank lines at the end.

    A writer of CSV wrote it if all rows have as many fields then, and it quoted all names, or a
    field that needs it.
    """
    lines = lines_of(text)
    while lines and not lines[-1]:
        lines.pop()
    rows = [(number, line.split("\t")) for number, line in enumerate(lines, 1)]
    if '"' not in text or not _WRITTEN.fullmatch(text):
        return rows
    quoted = csv_rows(place, text, "\t")
    ragged, uneven = (len({len(row) for _, row in every}) > 1 for every in (rows, quoted))
    marked = any('"' in field for _, row in quoted for field in row) or all(name[:1] == '"' for name in rows[0][1])
    return quoted if not uneven and (ragged or marked) else rows
