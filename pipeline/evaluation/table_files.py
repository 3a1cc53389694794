"""Rows of the files that tasks come in: TSV as GLUE writes it, CSV, JSON and JSON lines; in zips.

TSV fields are split at tabs and nothing else: quotation marks are text, and often unbalanced.
"""

import codecs
import csv
import io
import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.common.errors import InputError
from pipeline.common.storage import BROKEN_ZIP


@dataclass(frozen=True)
class Table:
    """The whole rows of a file, N of them."""

    place: str
    names: list[str]  # of the columns; empty: the file has no header
    rows: list[list[str]]
    lines: list[int]  # (N,) where each row is, from 1
    malformed: list[str] = field(default_factory=list)  # rows left out: where and why


def find(data: Path | str, folder: str, name: str) -> tuple[str, bytes] | None:
    """Return a file of a task and where it was: in its folder, or in a zip file; None: nowhere.

    Raises:
        InputError: it is there but cannot be read, or `data` is a file that is not an archive.
    """
    data = Path(data)
    if data.is_file() and data.suffix != ".zip" and not zipfile.is_zipfile(data):
        raise InputError(
            f"data={data}: a file, and its folder is wanted; set data={data.parent} and name the "
            f"file by its task.train=, task.dev= (task.train={data.name})",
            key="data", path=data,
        )  # fmt: skip
    path = data / folder / name
    if path.is_file():
        try:
            return str(path), path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    wanted = f"/{folder}/{name}" if folder else f"/{name}"
    for archive in [data] if data.is_file() else sorted(data.glob("*.zip")):
        try:
            with zipfile.ZipFile(archive) as file:
                for member in file.namelist():
                    if f"/{member}".endswith(wanted) and not member.startswith("__MACOSX"):
                        return f"{archive}:{member}", file.read(member)
        except BROKEN_ZIP as error:
            raise InputError(f"{archive}: not a whole zip file ({error})") from error
    return None


def decode(place: str, content: bytes) -> str:
    """The text of a file without its byte-order mark.

    Raises:
        InputError: it is not UTF-8, or empty.
    """
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: not UTF-8 at byte {error.start}") from error
    if not text.strip():
        raise InputError(f"{place}: empty")
    return text


def matching(data: Path | str, folder: str, pattern: str) -> list[tuple[str, bytes]]:
    """Return the files of a task that match a pattern and where they were, by name.

    They are in `folder` of `data`, or in `data` itself, or in zip files there.

    Raises:
        InputError: one cannot be read.
    """
    data = Path(data)
    if data.is_file() and data.suffix != ".zip":
        return [(str(data), data.read_bytes())]
    for place in (data / folder, data):
        if paths := sorted(path for path in place.glob(pattern) if path.is_file()):
            try:
                return [(str(path), path.read_bytes()) for path in paths]
            except OSError as error:
                raise InputError(f"{place}: cannot be read ({error.strerror})") from error
    found = []
    for archive in [data] if data.is_file() else sorted(data.glob("*.zip")):
        try:
            with zipfile.ZipFile(archive) as file:
                for member in sorted(file.namelist()):
                    own = PurePosixPath(member).match(f"{folder}/{pattern}" if folder else pattern)
                    if own and not member.startswith("__MACOSX"):
                        found.append((f"{archive}:{member}", file.read(member)))
        except BROKEN_ZIP as error:
            raise InputError(f"{archive}: not a whole zip file ({error})") from error
    return found


def parse(
    place: str, content: bytes, header: bool, key: str | None = None, quoted: bool = False
) -> Table:
    """Return the rows of a file, by what its name ends in.

    With `quoted`, fields of TSV may be in quotation marks.

    Raises:
        InputError: it is broken.
    """
    text = decode(place, content)
    if place.endswith((".json", ".jsonl")):
        return parse_json(place, text, key)
    if place.endswith(".csv") or quoted:
        csv.field_size_limit(2**31 - 1)  # a text may be longer than 128 KiB
        kind, separator = ("CSV", ",") if place.endswith(".csv") else ("TSV", "\t")
        reader = csv.reader(io.StringIO(text), delimiter=separator)
        try:
            found = [(reader.line_num, row) for row in reader if row]  # none of a blank line
        except csv.Error as error:
            line = f"{place}, line {reader.line_num}"
            raise InputError(f"{line}: not {kind} ({error})") from error
    else:
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        while not lines[-1]:
            lines.pop()
        found = [(number, line.split("\t")) for number, line in enumerate(lines, 1)]
    width = len(found[0][1])
    names = [name.strip() for name in found[0][1]] if header else []
    table = Table(place, names, [], [])
    for number, row in found[header:]:
        if len(row) == width:
            table.rows.append(row)
            table.lines.append(number)
        else:
            fault = f"{place}, line {number}: {len(row)} fields, {width} expected"
            table.malformed.append(fault)
    return table


def parse_json(place: str, text: str, key: str | None) -> Table:
    """Objects, one a line or in a list; the columns are the keys of the first.

    With `key` the list is that entry of one object.

    Raises:
        InputError: it is not that, or there are none.
    """
    objects: Any
    number = 1
    try:
        if place.endswith(".jsonl"):
            objects = []
            for line in text.rstrip("\n").split("\n"):
                objects.append(json.loads(line))
                number += 1
        else:
            content = json.loads(text)
            objects = content[key] if key is not None else content
    except ValueError as error:
        raise InputError(f"{place}, line {number}: not JSON ({error})") from error
    except (KeyError, TypeError) as error:
        raise InputError(f"{place}: no {key!r} in it") from error
    if not isinstance(objects, list) or not all(isinstance(one, dict) for one in objects):
        keys = ", ".join(objects) if isinstance(objects, dict) else "none"
        raise InputError(f"{place}: not a list of objects; task.key chooses among its keys: {keys}")
    if not objects:
        raise InputError(f"{place}: no object in it")
    names = list(objects[0])
    table = Table(place, names, [], [])
    for number, one in enumerate(objects, 1):
        if set(names) <= set(one):
            table.rows.append([text_of(one[name]) for name in names])
            table.lines.append(number)
        else:
            lost = next(name for name in names if name not in one)
            table.malformed.append(f"{place}, row {number}: no {lost!r}")
    return table


def text_of(value: Any) -> str:
    """A text as it is, null as an empty one, anything else as JSON writes it: true, 1, [1, 2]."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
