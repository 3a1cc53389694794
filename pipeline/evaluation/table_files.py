"""Readers for task files: TSV, CSV, JSON, JSON lines and Parquet, also inside zips."""

import contextlib
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
from pipeline.readers.io import columns, compressed
from pipeline.storage import budget, strict_json
from pipeline.storage.budget import Budget, parsed_size, unzipped
from pipeline.storage.placeholders import find_placeholder
from pipeline.storage.places import BROKEN_ZIP
from pipeline.text import encodings, tables

FIELD = re.compile(r"\{([^{}]+)\}")  # a column within a sentence
Content = tuple[str, bytes]  # where a file is, and what is in it
Objects = tuple[list[dict[str, Any]], list[int]]  # rows by column, and their lines or numbers
JSON = re.compile(r"\s*(\[\s*)?\{\s*[\"}]")  # how objects begin, or a list of them


@dataclass(frozen=True)
class Table:
    """The N valid rows of a file."""

    place: str
    names: list[str]  # of the columns; empty: the file has no header
    rows: list[list[str]]
    lines: list[int]  # (N,) line numbers, from 1
    malformed: list[str] = field(default_factory=list)  # skipped rows: location and reason

    @property
    def known(self) -> list[str]:
        """Return the columns by their names, or else by their numbers."""
        return self.names or list(map(str, range(len(self.rows[0]) if self.rows else 0)))


def find(data: Path | str, folder: str, name: str) -> Content | None:
    """Return path and content of a task's file in a folder or a zip file; None if not found.

    Raises:
        InputError: the file is unreadable, or `data` is a file other than a zip file.
    """
    data = Path(data)
    if data.is_file() and data.suffix != ".zip" and not zipfile.is_zipfile(data):
        raise InputError(
            f"must be a folder; set data={data.parent} {named('task.train')}={data.name} {named('task.dev')}=FILE",
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


def decode(place: str, content: bytes, cure: str = "export it as CSV") -> str:
    """Decode a file, plain or compressed, without its byte-order mark; `cure` is that of another format.

    Raises:
        InputError: it is not UTF-8, or empty, or not whole, or a stand-in.
    """
    if place.lower().endswith(compressed.PACKED):
        content = compressed.decompressed(place, content, budget_of(place))
    if encodings.FORMATS.match(content):
        raise InputError(f"of another format, as a spreadsheet, not text; {cure}", path=place)
    with readable(place):
        text = content.decode("utf-8-sig")
    if not text.strip():
        raise InputError("is empty", path=place)
    if why := find_placeholder(text):
        raise InputError(why, path=place)
    text = text if "\n" in text else text.replace("\r", "\n")  # which alone ended lines once
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
    kind: str = "",
    label: str | None = None,
) -> Table:
    """Parse a file by its content; text by the suffix of its name, before that of a compression, or by that of `kind`.

    `needed`, `label`: see `table_of`.

    Raises:
        InputError: the file is malformed.
    """
    kind = kind or place
    if (rows := objects_of(place, content, key, kind)) is not None:
        return table_of(place, *rows, needed, label)
    text = decode(place, content)
    if ends(kind, ".csv") or (header and names_in_csv(text, needed)):
        found = tables.csv_rows(place, text, tables.separator_of(text, header))
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


def names_in_csv(text: str, needed: Collection[str]) -> bool:
    """Return whether the first line of a text names all that is `needed` and more, divided as CSV."""
    mark = tables.separator_of(text)
    named = [normalize("NFC", name.strip(' "')) for name in text.lstrip("\r\n ").partition("\n")[0].split(mark)]
    wanted = {name for column in needed for name in FIELD.findall(column) or [column] if name}
    return mark != "\t" and len(named) > 1 and bool(wanted) and wanted <= {*named}


def objects_of(
    place: str,
    content: bytes,
    key: str | None = None,
    kind: str | None = None,
    cure: str = "export it as CSV",
    hook: Callable[[list[tuple[str, Any]]], dict[str, Any]] = strict_json.by_name,
) -> Objects | None:
    """Return the rows of Parquet, or the objects of JSON, by content or name; None of a file of another form.

    Objects are one a line, or in a list; with `key` that list may be an entry of one object.

    Raises:
        InputError: the file is malformed or has no objects.
    """
    if content.startswith(b"PAR1"):
        objects = parquet_rows(place, content)
        return objects, list(range(1, len(objects) + 1))
    text, kind = decode(place, content, cure), kind or place
    if not ends(kind, ".json", ".jsonl") and not JSON.match(text):
        return None
    first, _, rest = text.strip().partition("\n")
    whole = strict_json.object_in(first.encode("utf-8", "surrogatepass"))
    rows = whole and key not in whole and (rest or not ends(kind, ".json"))
    found = json_objects(
        place, text, key, not text.lstrip().startswith("[") and bool(rows or ends(kind, ".jsonl")), hook
    )
    if not found[0]:
        raise InputError("has no objects", path=place)
    return found


def json_objects(place: str, text: str, key: str | None, by_line: bool, hook: Any) -> Objects:
    """Return the objects of a text of JSON, and their lines; see `objects_of`."""
    objects: Any
    number, lines = 1, []
    try:
        if by_line:
            objects = []
            for number, line in enumerate(text.split("\n"), 1):
                if line.strip():
                    objects.append(strict_json.parse_line(line, hook))
                    lines.append(number)
        else:
            content = strict_json.parse(text, hook, budget.FIELDS)
            objects = content[key] if key is not None and isinstance(content, dict) else content
    except ValueError as error:
        raise InputError(f"{error}", path=place, line=number) from error
    except KeyError as error:
        raise InputError(f"has no key {key!r}; set task.key", "task.key", path=place) from error
    if not is_rows(objects):
        keys = [name for name, value in objects.items() if is_rows(value)] if isinstance(objects, dict) else []
        if key is not None or len(keys) != 1:
            choice = f"set task.key to one of its keys: {', '.join(keys)}"
            cure = choice if keys else "write an object of each row a line"
            raise InputError(f"is not a list of objects; {cure}", "task.key", path=place)
        objects = objects[keys[0]]
    return objects, lines or list(range(1, len(objects) + 1))


def is_rows(value: object) -> bool:
    """Return whether a value of JSON is a list of objects."""
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def parquet_rows(place: str, content: bytes) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file; a class that `datasets` has stored as a number by its name.

    Raises:
        InputError: the file is damaged, or too large.
    """
    import pyarrow as pa
    from pyarrow import parquet as pq

    objects: list[Any] = []
    room = budget_of(place, budget.FIELDS)
    try:
        file = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)
        about = strict_json.object_in((file.schema_arrow.metadata or {}).get(b"huggingface", b""))
        for batch in file.iter_batches(columns.ROWS):
            room.take(batch.nbytes + budget.KEPT * batch.num_rows * batch.num_columns)
            objects += columns.rows(batch)
        if wrong := [row for row in objects if isinstance(row, UnicodeDecodeError)]:
            raise wrong[0]
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"not a complete Parquet file ({error}); download the file again", path=place) from error
    names = {name: _classes(one) for name, one in ((about.get("info") or {}).get("features") or {}).items()}
    return [{normalize("NFC", name): _named(one, names.get(name)) for name, one in row.items()} for row in objects]


def _classes(feature: Any) -> list[str]:
    """Return the names of the classes of a feature of `datasets`, or of a list of them; [] if it has none."""
    if isinstance(feature, list):  # as before version 4
        return _classes(feature[0]) if feature else []
    return feature.get("names") or _classes(feature.get("feature")) if isinstance(feature, dict) else []


def _named(value: Any, names: list[str] | None) -> Any:
    """Return a value with the names of classes, and the text of bytes that are one: files need not say which are."""
    if isinstance(value, list):
        return [_named(one, names) for one in value]
    if isinstance(value, dict):
        return {name: _named(one, None) for name, one in value.items()}
    if isinstance(value, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode()
    return names[value] if names and isinstance(value, int) and 0 <= value < len(names) else value


def table_of(
    place: str, objects: list[dict[str, Any]], lines: list[int], needed: Collection[str], label: str | None = None
) -> Table:
    """Return objects as a table, whose columns are all of their keys.

    A row without a key that is `needed`, or in a sentence there, is malformed, also where it is null, NaN, a
    list or an object, as one whose `label` is null or NaN; another that is missing is empty.
    """
    names = list(dict.fromkeys(chain.from_iterable(objects)))
    wanted = [name for column in needed for name in (column, *FIELD.findall(column))]
    kinds: tuple[type, ...] = (type(None), list, dict, bytes)
    refused = [(name, kinds) for name in wanted if name in names]
    refused += [(label, kinds[:1])] if label in names else []
    table = Table(place, names, [], [])
    for number, row in zip(lines, objects, strict=True):
        one = {name: value for name, value in row.items() if value == value}  # NaN is how pandas writes what is missing
        if wrong := [name for name, some in refused if isinstance(one.get(name), some)]:
            what = "missing" if one.get(wrong[0]) is None else "not text"
            table.malformed.append(f"{place}, row {number}: {wrong[0]!r} is {what}")
        else:
            table.rows.append([text_of(one.get(name)) for name in names])
            table.lines.append(number)
    return table


def text_of(value: Any) -> str:
    """Return text, null as an empty string, what JSON has as JSON, and a decimal or date as it is shown.

    Lone surrogates are left out: they cannot be written, and the tokenizer skips them.
    """
    if isinstance(value, int | float | list | dict):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value).encode(errors="ignore").decode()
