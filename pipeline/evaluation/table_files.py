"""Readers for task files: TSV, CSV, JSON and JSON lines, also inside zips."""

import csv
import io
import json
import re
import zipfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any
from unicodedata import normalize

from pipeline.errors import InputError, named, readable
from pipeline.readers.io import compressed
from pipeline.storage import budget, strict_json
from pipeline.storage.budget import Budget, parsed_size, unzipped
from pipeline.storage.placeholders import stand_in
from pipeline.storage.places import BROKEN_ZIP
from pipeline.text import encodings, tables

FIELD = re.compile(r"\{([^{}]+)\}")  # a column within a sentence
Content = tuple[str, bytes]  # where a file is, and what is in it


@dataclass(frozen=True)
class Table:
    """The N valid rows of a file."""

    place: str
    names: list[str]  # of the columns; empty: the file has no header
    rows: list[list[str]]
    lines: list[int]  # (N,) line numbers, from 1
    malformed: list[str] = field(default_factory=list)  # skipped rows: location and reason


def find(data: Path | str, folder: str, name: str) -> Content | None:
    """Return path and content of a task's file in a folder or a zip file; None if not found.

    Raises:
        InputError: the file is unreadable, or `data` is a file other than a zip file.
    """
    data = Path(data)
    if data.is_file() and data.suffix != ".zip" and not zipfile.is_zipfile(data):
        raise InputError(
            f"must be a folder; set data={data.parent} and name the file with {named('task.train')}= and "
            f"{named('task.dev')}= ({named('task.train')}={data.name})",
            "data",
            data,
        )
    path = data / folder / name
    if path.is_file():
        return str(path), _bytes_of(path, budget_of(path))
    wanted = f"/{folder}/{name}" if folder else f"/{name}"
    return next(_members(data, lambda member: member.endswith(wanted), budget_of), None)


def _members(data: Path, fits: Callable[[str], object], room: Callable[[str], Budget]) -> Iterator[Content]:
    """Yield place and content of the members that fit, of a zip file or all of a folder."""
    for archive in [data] if data.is_file() else sorted(data.glob("*.zip")):
        try:
            with zipfile.ZipFile(archive) as file:
                for member in sorted(file.namelist()):
                    if fits(f"/{member}") and not member.startswith("__MACOSX"):
                        place = f"{archive}:{member}"
                        yield place, unzipped(file, member, room(place))
        except BROKEN_ZIP as error:
            raise InputError(f"is not a complete zip file ({error}); download it again", path=archive) from error


def budget_of(place: object, limit: int | None = None) -> Budget:
    """Return the budget of a table (None: that of its files)."""
    limit = budget.TABLE if limit is None else limit
    return Budget(lambda: InputError(f"takes more than {limit:,} bytes; keep fewer of its rows", path=place), limit)


def _bytes_of(path: Path, room: Budget) -> bytes:
    with readable(path):
        room.take(path.stat().st_size)
        return path.read_bytes()


def decode(place: str, content: bytes) -> str:
    """Decode a file, plain or compressed, without its byte-order mark.

    Raises:
        InputError: it is not UTF-8, or empty, or not whole, or a stand-in.
    """
    if place.lower().endswith(compressed.PACKED):
        content = compressed.decompressed(place, content, budget_of(place))
    if encodings.FORMATS.match(content):
        raise InputError("of another format, as a spreadsheet, not text; export it as CSV", path=place)
    with readable(place):
        text = content.decode("utf-8-sig")
    if not text.strip():
        raise InputError("is empty", path=place)
    if why := stand_in(text):
        raise InputError(why, path=place)
    budget_of(place, budget.FIELDS).take(parsed_size(text, ",;\t\n"))
    return text


def ends(place: str, *suffixes: str) -> bool:
    """Return whether a file's name ends so, in capitals or not, before the suffix of a compression."""
    return compressed.plain_name(place).lower().endswith(suffixes)


def matching(data: Path | str, folder: str, pattern: str) -> list[Content]:
    """Return the files of a task that match a pattern and where they were, by name.

    They are in `folder` of `data`, or in `data` itself, or in zip files there.

    Raises:
        InputError: one cannot be read.
    """
    data = Path(data)
    room = budget_of(data / folder / pattern)
    if data.is_file() and data.suffix != ".zip":
        return [(str(data), _bytes_of(data, room))]
    for place in (data / folder, data):
        if paths := sorted(path for path in place.glob(pattern) if path.is_file()):
            return [(str(path), _bytes_of(path, room)) for path in paths]
    wanted = f"{folder}/{pattern}" if folder else pattern
    return list(_members(data, lambda member: PurePosixPath(member).match(wanted), lambda _: room))


def parse(
    place: str,
    content: bytes,
    header: bool,
    key: str | None = None,
    needed: Collection[str] = (),
    kind: str | None = None,
) -> Table:
    """Parse a file by the suffix of its name, before that of a compression, or by that of `kind`.

    `needed`: see `parse_json`.

    Raises:
        InputError: the file is malformed.
    """
    text = decode(place, content)
    kind = kind or place
    if ends(kind, ".json", ".jsonl"):
        return parse_json(place, text, key, needed, ends(kind, ".jsonl"))
    if ends(kind, ".csv"):
        found = tables.csv_rows(place, text, ";" if _has_semicolons(text, header) else ",")
    else:
        found = tables.tsv_rows(place, text)
    width = len(found[0][1])
    names = [normalize("NFC", name.strip()) for name in found[0][1]] if header else []
    table = Table(place, names, [], [])
    for number, row in found[header:]:
        if len(row) == width:
            table.rows.append(row)
            table.lines.append(number)
        else:
            table.malformed.append(f"{place}, line {number}: {len(row)} fields instead of {width}")
    return table


def _has_semicolons(text: str, header: bool) -> bool:
    """Return whether semicolons alone divide the fields of CSV: of its header, or else of all rows into as many."""
    first = text.lstrip().partition("\n")[0]
    if ";" not in first or "," in first or header:
        return ";" in first and "," not in first
    return len({len(row) for row in csv.reader(io.StringIO(text), delimiter=";", skipinitialspace=True) if row}) == 1


def parse_json(place: str, text: str, key: str | None, needed: Collection[str], by_line: bool) -> Table:
    """Parse objects, one `by_line` or in a list; the columns are all of their keys.

    With `key`, the file is an object and the list is its entry `key`. A row without a key that is
    `needed`, or in a sentence there, is malformed, also where it is null, a list or an object;
    another that is missing is empty.

    Raises:
        InputError: the file is malformed or has no objects.
    """
    objects: Any
    number, lines = 1, None
    try:
        if by_line:
            objects, lines = [], []
            for number, line in enumerate(text.split("\n"), 1):
                if line.strip():
                    objects.append(strict_json.parse(line, strict_json.by_name))
                    lines.append(number)
        else:
            content = strict_json.parse(text, strict_json.by_name, budget.FIELDS)
            objects = content[key] if key is not None else content
    except ValueError as error:
        raise InputError(f"{error}", path=place, line=number) from error
    except (KeyError, TypeError) as error:
        raise InputError(f"has no key {key!r}; set task.key", "task.key", path=place) from error
    if not isinstance(objects, list) or not all(isinstance(one, dict) for one in objects):
        keys = ", ".join(objects) if isinstance(objects, dict) else "none"
        raise InputError(f"is not a list of objects; set task.key to one of its keys: {keys}", "task.key", path=place)
    if not objects:
        raise InputError("has no objects", path=place)
    names = list(dict.fromkeys(chain.from_iterable(objects)))
    needed = [name for column in needed for name in (column, *FIELD.findall(column)) if name in names]
    table = Table(place, names, [], [])
    for number, one in zip(lines or range(1, len(objects) + 1), objects, strict=True):
        fault = fault_of(one, needed)
        if fault is None:
            table.rows.append([text_of(one.get(name)) for name in names])
            table.lines.append(number)
        else:
            table.malformed.append(f"{place}, row {number}: {fault}")
    return table


def fault_of(row: dict[str, Any], needed: Collection[str]) -> str | None:
    """Return what a JSON object lacks; None: nothing."""
    for name in needed:
        if row.get(name) is None:
            return f"{name!r} is missing"
        if isinstance(row[name], list | dict):
            return f"{name!r} is not text"
    return None


def text_of(value: Any) -> str:
    """Return text unchanged, null as an empty string, and anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
