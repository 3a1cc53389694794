"""Documents from rows of named fields."""

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import cached_property
from itertools import groupby
from operator import eq, ge, gt, le, lt, ne
from typing import Any
from unicodedata import normalize

from pipeline.common.schema import check
from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError, InputError
from pipeline.readers.base import Document, Documents, FileRanges, ReadLog
from pipeline.readers.io import text_lines
from pipeline.text import html_text, tables

_VALUE = r"(?:'([^']*+)'|\"([^\"]*+)\"|(?!['\"])([^\s<>=!]++(?:\s++(?!and\s)[^\s<>=!]++)*+))"  # in quotes, or no signs
_CONDITION = re.compile(rf"\s*+([^\s<>=!][^<>=!]*+)(<=|>=|==|!=|<|>)\s*+{_VALUE}\s*+(?:$|(and)\s)")
_COMPARED = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
_DATE = re.compile(r"(?:19|20)\d\d(?:[01]\d(?:[0-3]\d)?)?")
LEFT_OUT = "left out by corpus.options.where"
_HTML = re.compile(r"(?i)</(?:p|div|a|b|i|em|strong|span|li|ul|td|h[1-6])\s*+>|<br\s*+/?>|&(?:[a-z]{2,8}|#\d{2,6});")
HTML_NOTE = "texts with HTML; corpus.options.html=true reads it"


class RowReader:
    """Reader of rows: of the field `text`, or of several to concatenate.

    A dot selects a field of a nested object. A field may hold a string, a list of strings (each a
    paragraph), or null (an empty document).
    """

    def __init__(
        self,
        corpus: CorpusConfig,
        source: str,
        *,
        text: str | list[str] = "text",
        title: str | None = None,
        id: str | None = None,
        where: str | None = None,
        html: bool = False,
    ):
        """Check the names; `where` is as `date >= 2026-09 and lang == de`; `title` is part of fingerprints.

        With `html` texts are pages, or pieces of one.

        Raises:
            ConfigError: `text` is neither a field nor a list of them, `id` no name, or there is a `title`.
        """
        self.corpus, self.source = corpus, source
        self.conditions = [] if where is None else list(_conditions(where))
        check(title is None, "must be null; set corpus.options.text=[TITLE,TEXT]", "corpus.options.title", title)
        check(id is None or isinstance(id, str), "must be a field name; put it in quotes", "corpus.options.id", id)
        names = [text] if isinstance(text, str) else text
        fields = isinstance(names, list) and all(isinstance(n, str) for n in names)
        problem = "must be a field name or a list of field names, each once; put a number in quotes"
        check(fields and len({*names}) == len(names) > 0, problem, "corpus.options.text", text)
        self.text, self.id, self.html = names, id, html
        self.alike = len({name.partition(".")[0] for name in names}) < len(names)  # two may be of one list

    def names(self) -> list[str]:
        """Return the names of all fields that are read."""
        return [*self.text, *filter(None, [self.id, *(name for name, _, _ in self.conditions)])]

    def key(self, name: str) -> str:
        """Return the config key that a field was named by."""
        option = "text" if name in self.text else "id" if name == self.id else "where"
        return f"corpus.options.{option}"

    def missing(self, name: str, known: Iterable[str], place: str) -> str:
        """Return what to type for a field that is missing in a file or a row at `place`."""
        listed = [*map(str, known)]
        why = f"{name} not found among {', '.join(listed) or 'no fields'}"
        if part := re.match(f".*?/{re.escape(name)}=[^/]*", place):  # as Hive has it
            return (
                f"{why}, but in the names of folders; remove it and set corpus.path={part[0]}, or another such folder"
            )
        return f"{why}; set {self.key(name)}{f'={listed[0]}' * (len(listed) == 1 and name in self.text)}"

    def check_names(self, tops: Iterable[str], known: list[str], path: str, line: int | None = None) -> None:
        """Raise InputError unless the columns that hold the selected ones exist, each once."""
        for name, top in zip(self.names(), tops, strict=True):
            why = "" if top in known else f"column {self.missing(name, known, path)}"
            if (count := known.count(top)) > 1:
                why = f"has {count} columns named {top}; rename the others"
            if why:
                raise InputError(why, self.key(name), path=path, line=line)

    def _wants(self, row: Mapping[str, Any], place: str, name: str, sign: str, wanted: str) -> bool:
        """Return whether a row fulfils a condition: as numbers if its value is one, or its digits, else as text.

        Of null, `== null` alone, and an empty text has no order; a list does if one of its values does, or of `!=`
        if all do.

        Raises:
            ValueError: its field is missing, or is a number and compared with what is none; or it is text whose
                digits do not line up, as of 2026-09 and 2026-9.
        """
        value = self._value(row, name, place)
        if value is None:
            return (sign, wanted) == ("==", "null")
        every = all if sign == "!=" else any
        return every(self._fulfils(name, each, sign, wanted) for each in _flat([value]) if each is not None)

    def _fulfils(self, name: str, value: Any, sign: str, wanted: str) -> bool:
        compare = _COMPARED[sign]
        if wanted == "null" and sign in ("==", "!="):
            return bool(compare(str(value), wanted))
        if isinstance(value, bool) and sign in ("==", "!="):
            return bool(compare(str(value).lower(), wanted.lower()))
        if isinstance(value, list | Mapping | bool):
            raise ValueError(f"field {name} holds {value!r:.40}, of which {sign} says nothing")
        if isinstance(value, int | float | Decimal):
            if not tables.NUMBER.fullmatch(wanted):
                raise ValueError(f"field {name} holds a number, {wanted!r} is none")
            return value == value and bool(compare(Decimal(str(value)), Decimal(wanted)))  # NaN fulfils nothing
        ordered = sign not in ("==", "!=")
        if ordered and (value == "" or _are_numbers(str(value), wanted)):
            return value != "" and bool(compare(Decimal(value), Decimal(wanted)))
        if ordered and not _in_order(str(value), wanted, sign):
            raise ValueError(
                f"field {name} holds {value!r}, of which one cannot say {sign} {wanted!r}: dates are compared as text; "
                "write both in the same form and precision, such as 2026-09-01"
            )
        return bool(compare(str(value), wanted))

    def documents_of(self, row: Mapping[str, Any], place: str, log: ReadLog) -> Documents:
        """Yield the document of a row unless it is left out, and counted; `place` is its id if no field is.

        Raises:
            ValueError: a field is missing or does not hold text.
        """
        if not all(self._wants(row, place, *each) for each in self.conditions):
            log[LEFT_OUT] += 1
            return
        values = [(name, self._value(row, name, place)) for name in self.text]
        if self.alike and any(isinstance(value, list) for _, value in values):
            values = [(name, _text(value)) for name, value in _together(row, [(name, name) for name in self.text])]
        parts = [part for name, value in values if (part := prose(value, name))]
        text = "\n".join(map(html_text.text_of, parts) if self.html else parts)
        if not self.html:
            # The expression takes 5 ms a MB, the signs that it begins with 0.5.
            marked = ("<" in text or "&" in text) and _HTML.search(text)
            log.notes.update([HTML_NOTE] * bool(marked))
        name = self._value(row, self.id, place) if self.id else None
        title = str(title) if type(title := row.get("title")) in (str, int) else ""
        yield Document(place if name is None else str(name), text, title=title)

    def _value(self, row: Mapping[str, Any], name: str, place: str) -> Any:
        """Return the value of a field, possibly nested (`meta.text`); of null all fields are null.

        Raises:
            ValueError: the field is missing.
        """
        try:
            return _text(reach(row, name))
        except KeyError:
            raise ValueError(f"field {self.missing(name, row, place)}") from None


class LineRows(RowReader):
    """Reader of rows that are lines of text files, whose names end in `members`."""

    members: tuple[str, ...]

    @cached_property
    def files(self) -> text_lines.TextFiles:
        """Return the files of lines."""
        return text_lines.TextFiles(self.corpus, self.source, self.members, rows=True)

    def splits(self, split_bytes: int) -> FileRanges:
        """Cut the files into byte ranges of about `split_bytes`."""
        return self.files.splits(split_bytes)


def reach(found: Any, name: str) -> Any:
    """Return what a name with dots leads to: in a list the item of that number, or that field of all its items.

    Raises:
        KeyError: nothing has such a field.
    """
    if found is None or not name:
        return found
    part, _, rest = name.partition(".")
    if isinstance(found, list) and found and all(isinstance(each, tuple) for each in found):
        found = {part: None} | dict(found)  # a map of Arrow, whose rows have any keys
    if isinstance(found, list):
        if part.isdecimal():
            return reach(found[int(part)], rest) if int(part) < len(found) else None
        if found and not any(_has(item, part) for item in found):
            raise KeyError(name)
        return [reach(item, name) if _has(item, part) else None for item in found]
    if not isinstance(found, Mapping):
        raise KeyError(name)
    if (own := _own(found, name)) in found:  # its own name may have dots
        return found[own]
    return reach(found[_own(found, part)], rest)


def _flat(values: list[Any]) -> Iterator[Any]:
    for each in values:
        if isinstance(each, list):
            yield from _flat(each)
        else:
            yield each


def _together(row: Mapping[str, Any], names: list[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    """Yield each name and what the rest of it leads to; if several lead into one list, item by item."""
    for top, group in groupby(names, lambda each: each[1].partition(".")[0]):
        alike = list(group)
        rests = [(name, rest.partition(".")[2]) for name, rest in alike]
        items = [each for each in _flat([row.get(_own(row, top))]) if isinstance(each, Mapping)]
        values = [
            each
            for item in items * (len(alike) > 1)
            for each in _together(item, [(name, rest) for name, rest in rests if _has(item, rest.partition(".")[0])])
        ]
        whole = {name for name, _ in values} == {name for name, _ in alike}
        yield from values if whole else ((name, reach(row, rest)) for name, rest in alike)


def _has(item: Any, part: str) -> bool:
    return isinstance(item, list) or (isinstance(item, Mapping) and _own(item, part) in item)


def _conditions(where: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the field, sign and value of each condition.

    Raises:
        ConfigError: it is not a text of conditions that all hold.
    """
    place, more, text = 0, True, where if isinstance(where, str) else ""
    while more:
        match = _CONDITION.match(text, place)
        if match is None:
            raise ConfigError(
                "must be a field, one of < <= > >= == != and a value, such as 'date >= 2026-09'; join several by and, "
                "and put a value with such signs, or with and, in quotes",
                "corpus.options.where",
                where,
            )
        name, sign, *values, joined = match.groups()
        yield name.strip(), sign, "".join(value or "" for value in values)
        place, more = match.end(), joined is not None


def _own(row: Mapping[str, Any], name: str) -> str:
    """Return a field's name as the row has it: names of JSON are in NFC."""
    return name if name in row else normalize("NFC", name)


def _are_numbers(value: str, wanted: str) -> bool:
    """Return whether two texts are numbers, and not dates in digits of which one is shorter."""
    both = value, wanted
    return all(map(_NUMBER.fullmatch, both)) and (len(value) == len(wanted) or not all(map(_DATE.fullmatch, both)))


def _in_order(value: str, wanted: str, sign: str) -> bool:
    """Return whether the order of two texts is that of what they say: dates of one form, or without a digit.

    One may be shorter where that decides nothing: all of 2026-09-30 is `>= 2026-09`, but not `<= 2026-09`.
    """
    if not re.search(r"\d", wanted):
        return True
    shorter, longer = sorted((re.sub(r"\d", "0", each) for each in (value, wanted)), key=len)
    alike = longer.startswith(shorter) and longer[len(shorter) :][:1] != "0"
    decided = sign in ("<", ">=") if len(value) > len(wanted) else value == wanted or not wanted.startswith(value)
    return alike and decided


def _text(value: Any) -> Any:
    """Return a value with its bytes as text: Parquet files need not say which bytes are.

    Raises:
        ValueError: bytes are not valid UTF-8.
    """
    if isinstance(value, list):
        return list(map(_text, value))
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as error:
        raise not_utf8(error) from error


def not_utf8(error: UnicodeDecodeError) -> ValueError:
    """Return the error of a row whose text is not UTF-8."""
    return ValueError(f"not valid UTF-8 ({error.reason} at byte {error.start})")


def prose(content: Any, name: str) -> str:
    """Return the text in a field's value.

    Raises:
        ValueError: the value is neither text, a list of texts nor null.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(part for item in content if (part := prose(item, name)))
    kind = type(content).__name__
    article = "an" if kind[0] in "aeiou" else "a"
    within = [key for key, value in content.items() if isinstance(value, str)] if isinstance(content, dict) else []
    cure = f"; set corpus.options.text={name}.FIELD, FIELD one of {', '.join(within)}" if within else ""
    raise ValueError(f"field {name} holds {article} {kind}, not text{cure}")
