"""JSON that others wrote: any of it is parsed, or refused in a line; and what this program noted."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from pipeline.errors import InputError, readable
from pipeline.storage import budget

if TYPE_CHECKING:
    from pipeline.storage.places import Remote

Json = dict[str, Any]  # an object
DEEPEST = 100  # levels of lists and objects; what walks through them calls itself for each


def parse(text: str, hook: Callable[[list[tuple[str, Any]]], Any] | None = None, most: int | None = None) -> Any:
    """Return the value in a text; `hook` makes its objects of their pairs, as in `json.loads`.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or takes more than `most` bytes (None: a document's).
    """
    most = budget.DOCUMENT if most is None else most
    if budget.parsed_size(text, ",:[{") > most:
        raise ValueError(f"has too many values for {most:,} bytes")
    try:
        value = json.loads(text, object_pairs_hook=hook)
    except ValueError as error:
        raise ValueError(f"not valid JSON ({error})") from error
    except RecursionError as error:
        raise ValueError("not valid JSON (nested too deeply)") from error
    level: list[Any] = [[value]]
    for _ in range(DEEPEST + 1):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for some in inner for one in some if isinstance(one, list | dict)]
        if not level:
            return value
    raise ValueError(f"nested more than {DEEPEST} levels deep")


def parse_line(line: str, hook: Callable[[list[tuple[str, Any]]], Any] | None = None, most: int | None = None) -> Any:
    """Return the value in a line of its own, which RFC 7464 begins with a record separator; as `parse`."""
    return parse(line.lstrip("\x1e"), hook, most)


def by_name(pairs: list[tuple[str, Any]]) -> Json:
    """Return the object of its pairs, with names in NFC, for `parse`.

    Raises:
        ValueError: two have one name.
    """
    values = {normalize("NFC", name): value for name, value in pairs}
    if len(values) < len(pairs):
        raise ValueError(f"two keys of one name among {', '.join(map(repr, values))}")
    return values


def read(path: Path) -> Any:
    """Return the value in a file in UTF-8.

    Raises:
        InputError: it cannot be read, or is not JSON.
    """
    try:
        with readable(path):
            if path.stat().st_size > budget.DOCUMENT:
                raise ValueError(f"larger than {budget.DOCUMENT:,} bytes")
            return parse(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{error}", path=path) from error


def own(path: "Path | Remote") -> Json:
    """Return the object in a file that this program wrote; an empty one if it is missing or damaged."""
    with contextlib.suppress(OSError):
        return object_in(path.read_bytes())
    return {}


def object_in(text: bytes) -> Json:
    """Return the object that this program wrote as a text; an empty one if it is damaged."""
    with contextlib.suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    return {}


def read_object(path: Path) -> Json:
    """Return the object in a file in UTF-8.

    Raises:
        InputError: it cannot be read, or is not an object.
    """
    content = read(path)
    if not isinstance(content, dict):
        raise InputError("must be a JSON object", path=path)
    return content
