"""Measures, in the given unit, not converted: `{{convert|5|-|10|km|mi}}` -> 5-10 kilometres."""

from collections.abc import Mapping

_NAMES = {
    "mm": "millimetre",
    "cm": "centimetre",
    "m": "metre",
    "km": "kilometre",
    "in": "inch",
    "ft": "foot",
    "foot": "foot",
    "yd": "yard",
    "mi": "mile",
    "mile": "mile",
    "nmi": "nautical mile",
    "g": "gram",
    "kg": "kilogram",
    "t": "tonne",
    "lb": "pound",
    "oz": "ounce",
    "st": "stone",
    "l": "litre",
    "ml": "millilitre",
    "s": "second",
    "min": "minute",
    "h": "hour",
    "w": "watt",
    "kw": "kilowatt",
    "mw": "megawatt",
    "hp": "horsepower",
    "acre": "acre",
    "ha": "hectare",
    "sqmi": "square mile",
    "sqkm": "square kilometre",
    "km2": "square kilometre",
    "sqm": "square metre",
    "m2": "square metre",
    "sqft": "square foot",
    "m3": "cubic metre",
    "km3": "cubic kilometre",
    "cuft": "cubic foot",
    "cumi": "cubic mile",
    "gal": "gallon",
    "usgal": "US gallon",
    "impgal": "imperial gallon",
    "ly": "light-year",
}
_PLURALS = {
    "inch": "inches",
    "foot": "feet",
    "square foot": "square feet",
    "cubic foot": "cubic feet",
    "stone": "stone",
    "horsepower": "horsepower",
}
_SYMBOLS = {
    "c": "°C",
    "f": "°F",
    "km/h": "km/h",
    "mph": "mph",
    "sqmi": "sq mi",
    "sqft": "sq ft",
    "km2": "km²",
    "m2": "m²",
    "m3": "m³",
    "km3": "km³",
    "sqkm": "km²",
    "sqm": "m²",
    "°c": "°C",
    "°f": "°F",
}
# Between two values: template argument -> visible text.
_BETWEEN = {
    "-": "–",
    "–": "–",
    "to": " to ",
    "and": " and ",
    "or": " or ",
    "x": " × ",
    "by": " by ",
    "×": " × ",
    "+/-": " ± ",
    "±": " ± ",
    "to(-)": " to ",
    "and(-)": " and ",
    "*": " × ",
    "+": " + ",
}
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
