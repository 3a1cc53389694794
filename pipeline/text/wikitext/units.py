"""Measures, in the given unit, not converted: `{{convert|5|-|10|km|mi}}` -> 5-10 kilometres."""

from collections.abc import Mapping

from pipeline.common import data_files

_TABLES: dict[str, dict[str, str]] = data_files.of(__file__)
_NAMES, _PLURALS, _SYMBOLS, _BETWEEN = (_TABLES[name] for name in ("names", "plurals", "symbols", "between"))
_SCALES = {"e3": "thousand", "e6": "million", "e9": "billion"}
DIGITS = 4300  # of a number; Python refuses to convert longer ones
_SECOND = {("ft", "in"), ("st", "lb"), ("lb", "oz"), ("yd", "ft"), ("mi", "yd"), ("mi", "ft")}


def convert(arguments: Mapping[str, str]) -> str:
    """Return the measure in its original unit."""
    given = [value for key, value in arguments.items() if key.isdigit()]
    if len(given) < 2:
        return " ".join(given)
    text = _number(given[0])
    at = 1
    while at + 1 < len(given) and given[at].lower() in _BETWEEN:
        text += _BETWEEN[given[at].lower()] + _number(given[at + 1])
        at += 2
    unit = given[at] if at < len(given) else ""
    if scale := _SCALES.get(unit[:2].lower()):
        text, unit = f"{text} {scale}", unit[2:]
    if arguments.get("adj") in ("on", "mid"):
        rest = given[-1] if given[-1].startswith("-") else ""
        return f"{text}-{_NAMES.get(unit.lower(), unit)}{rest}"
    brief = arguments.get("abbr") in ("on", "in", "values")
    text += " " + _unit(unit, text == "1", brief)
    if at + 2 < len(given) and (unit, given[at + 2]) in _SECOND:
        text += f" {given[at + 1]} {_unit(given[at + 2], given[at + 1] == '1', brief)}"
    return text.strip()


def _number(value: str) -> str:
    """Return a number with commas between thousands."""
    whole, point, rest = value.partition(".")
    if not (whole.isascii() and whole.isdigit() and len(whole) <= DIGITS):
        return value
    return f"{int(whole):,}{point}{rest}"


def _unit(code: str, single: bool, brief: bool) -> str:
    """Return a unit's name, or its symbol."""
    name = _NAMES.get(code.lower())
    if brief or name is None:
        return _SYMBOLS.get(code.lower(), code)
    return name if single else _PLURALS.get(name, f"{name}s")
