"""Templates that carry text within sentences: `{{convert|5|km}}` -> 5 kilometres; drops others.

Templates are not expanded as in MediaWiki: tables give, for each name, which arguments are visible.
A name may differ in meaning between languages; most languages have a table in addition to the
common one.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from pipeline.common.language_codes import base_code
from pipeline.common.tables import read_table
from pipeline.text.wikitext.brackets import TEMPLATES, begins_line, is_alone
from pipeline.text.wikitext.holes import CODE, FORMULA, TEMPLATE

Arguments = Mapping[str, str]  # by name, or number from "1"
Rule = Callable[[Arguments], str]
_TABLES = read_table(__file__, "templates.yaml")
_UNITS = read_table(__file__, "units.yaml")
_NAMES, _PLURALS, _SYMBOLS, _BETWEEN = (_UNITS[kind] for kind in ("names", "plurals", "symbols", "between"))
_DATE = re.compile(r"[^ ]+|.*\d.*")  # a part of it, not what the year is of
_FIRST = re.compile(r"^1(?= \D)")
_ROMAN = re.compile("[IVXLC]+")
_CHARGE = re.compile(r"^\d*[+−-]$")
_EXPONENT = re.compile(r"(?<=[^\W\d]) (-?\d+)\b")  # of a unit
DIGITS = 4300  # of a number; Python refuses to convert longer ones


def _numbered(arguments: Arguments) -> list[str]:
    """Return the arguments without a name."""
    return [value for key, value in arguments.items() if key.isdigit()]


def _shown(keys: str, arguments: Arguments) -> str:
    """Show the first of these arguments that is present; without any of them something else is shown, a hole."""
    names = keys.split("/")
    given = _numbered(arguments)[:-2:-1] if keys == "-1" else [arguments[name] for name in names if name in arguments]
    return next(filter(None, given), "" if given or "none" in names else TEMPLATE)


_NOTHING = partial(_shown, "none")  # whatever the arguments are


def _text(text: str, arguments: Arguments) -> str:
    """Show a text: with an argument, or whatever the arguments are."""
    before, brace, rest = text.partition("{")
    keys, _, after = rest.partition("}")
    shown = _shown(keys, arguments) if brace else ""
    return before + shown + after if shown or not brace else ""


def _joined(between: str, arguments: Arguments) -> str:
    """Show arguments, one after another without `between`, else the first two."""
    return between.join(filter(None, _numbered(arguments)[: 2 if between else None]))


def _computed(name: str, arguments: Arguments) -> str:
    """Show what a function makes of the arguments."""
    return _COMPUTED[name](arguments)


def _rules(table: Mapping[str, Mapping[Any, str]]) -> dict[str, Rule]:
    """Return the rules of one language's part of the table."""
    rules: dict[str, Rule] = {name: partial(_text, text) for name, text in table.get("text", {}).items()}
    kinds = {"shown": _shown, "paragraph": _text, "joined": _joined, "computed": _computed}
    for kind, rule in kinds.items():
        for what, names in table.get(kind, {}).items():
            shown = f"\n\n{{{what}}}\n\n" if kind == "paragraph" else str(what)
            made = _NOTHING if what == "none" else partial(rule, shown)
            rules |= dict.fromkeys(map(_key, names.split(",")), made)
    return rules


@lru_cache(maxsize=4096)
def _key(name: str) -> str:
    """Normalise a template's name for lookup."""
    return name.replace("_", " ").strip().lower()


def _measure(arguments: Arguments, thousands: str = ",") -> str:
    """Render `{{convert|5|-|10|km|mi}}` as 5–10 kilometres: in the given unit, not converted."""
    given = _numbered(arguments) or [""]
    text = _number(given[0], thousands)
    at = 1
    while at + 1 < len(given) and given[at].lower() in _BETWEEN:
        text += _BETWEEN[given[at].lower()] + _number(given[at + 1], thousands)
        at += 2
    unit = given[at] if at < len(given) else ""
    if scale := _UNITS["scales"].get(unit[:2].lower()):
        text, unit = f"{text} {scale}", unit[2:]
    second = (given[at + 1], given[at + 2]) if at + 2 < len(given) and [unit, given[at + 2]] in _UNITS["second"] else ()
    if arguments.get("adj") in ("on", "mid"):
        units = "".join(f"-{_NAMES.get(part.lower(), part)}" for part in (unit, *second))
        return text + units + (given[-1] if given[-1].startswith("-") else "")
    brief = arguments.get("abbr") in ("on", "in", "values")
    text += " " + _unit(unit, text == "1", brief)
    if second:
        text += f" {second[0]} {_unit(second[1], second[0] == '1', brief)}"
    return text.strip()


def _number(value: str, thousands: str) -> str:
    """Return a number with a mark between thousands; `2+1/2` is 2 1/2."""
    whole, point, rest = value.partition(".")
    if not (whole.isascii() and whole.isdigit() and len(whole) <= DIGITS):
        return value.replace("+", " ") if "/" in value else value
    return f"{int(whole):,}".replace(",", thousands) + point + rest


def _unit(code: str, single: bool, brief: bool) -> str:
    """Return a unit's name, or its symbol."""
    name: str | None = _NAMES.get(code) or _NAMES.get(code.lower())
    if brief or name is None:
        return str(_SYMBOLS.get(code.lower(), code))
    return name if single else str(_PLURALS.get(name, f"{name}s"))


def _fraction(arguments: Arguments) -> str:
    """Render `{{frac|2|1|3}}` as 2 1/3."""
    given = _numbered(arguments)
    numbers = ["1"] * (len(given) == 1) + given
    return " ".join([*numbers[:-2], "/".join(numbers[-2:])])


def _japanese(arguments: Arguments) -> str:
    """Render `{{nihongo|tea|茶|cha}}` as tea (茶, cha)."""
    word, *rest = (arguments.get(key, "") for key in "123")
    known = ", ".join(filter(None, rest))
    return f"{word} ({known})" if word and known else word or known


def _as_of(arguments: Arguments) -> str:
    """Render `{{as of|2014|5|lc=y}}` as as of May 2014."""
    if arguments.get("alt"):
        return arguments["alt"]
    year, month, day = (arguments.get(key, "") for key in "123")
    if month.isdecimal() and len(month) <= DIGITS and 1 <= int(month) <= 12:
        month = _TABLES["common"]["months"].split()[int(month) - 1]
    since = "since" if arguments.get("since") else "as of"
    since = since if arguments.get("lc") else since.capitalize()
    return " ".join(part for part in (since, day, month, year) if part)


def _verse(arguments: Arguments) -> str:
    """Render `{{bibleverse|2|Kings|8:16|KJV}}` as 2 Kings 8:16."""
    shown = _numbered(arguments)
    end = next((at for at, word in enumerate(shown, 1) if ":" in word), 2)
    return " ".join(shown[:end])


def _hours(arguments: Arguments) -> str:
    """Render `{{heure|8|30}}` as 8 h 30."""
    given = list(filter(None, _numbered(arguments)))
    units = ("h", "min" if len(given) > 2 else "", "s")
    return " ".join(f"{number} {unit}".rstrip() for number, unit in zip(given, units, strict=False))


def _centuries(arguments: Arguments) -> str:
    """Render `{{s2|XVIII|e|XIX|e}}` as XVIIIe et XIXe siècles, `{{s|V|e|av. J.-C.}}` as Ve siècle av. J.-C."""
    given = _numbered(arguments)
    roman = list(filter(_ROMAN.fullmatch, given)) or [TEMPLATE]
    rest = [each for each in given if each not in ("e", "er", *roman)]
    named = " et ".join(each + ("er" if each == "I" else "e") for each in roman)
    return " ".join(filter(None, [named, "siècles" if len(roman) > 1 else "siècle", *rest]))


def _value(arguments: Arguments) -> str:
    """Render `{{M|6.24|e=18|ul=m}}` as 6.24×10^18 m, `{{unité|71|à=80|km|2}}` as 71 à 80 km2."""
    number, *units = [*(_numbered(arguments) or [""]), arguments.get("u") or arguments.get("ul") or ""]
    power = f"×10^{arguments['e']}" if arguments.get("e") else ""
    power += "".join(f" {word} {arguments[word]}" for word in ("à", "et", "ou", "x") if word in arguments)
    unit = _EXPONENT.sub(r"\1", " ".join(filter(None, units)))
    return f"{number}{power} {unit}".rstrip()


def _quantity(arguments: Arguments) -> str:
    """Render `{{val|5|to|9|u=km|up=h}}` as 5 to 9 km/h, `{{val|p=~|6.24|0.01|u=m}}` as ~6.24 m."""
    keys = ("p", "1", "2", "3", "s", "u", "ul", "up", "upl")
    before, number, joint, last, after, unit, linked, per, per_linked = (arguments.get(key, "") for key in keys)
    number += f"{_BETWEEN[joint]}{last}" if joint in _BETWEEN else ""
    units = "/".join(filter(None, (unit or linked, per or per_linked)))
    return _value({"1": f"{before}{number}{after}", "e": arguments.get("e", ""), "u": units})


_COMPUTED: dict[str, Rule] = {
    "convert": _measure,
    # {{convert|5000|km|adj=on}} where another language names units and marks decimals: 5000 km
    "symbols": lambda arguments: _measure({**arguments, "abbr": "on", "adj": ""}, ""),
    "words": _value,
    # {{date|14|juillet|1789|en France}}: 14 juillet 1789
    "date": lambda arguments: _FIRST.sub("1er", " ".join(filter(_DATE.fullmatch, _numbered(arguments)))),
    "hours": _hours,
    "centuries": _centuries,
    # {{chem|SO|4|2-}}: SO<sub>4</sub><sup>2-</sup>
    "formula": lambda arguments: "".join(_CHARGE.sub(r"<sup>\g<0></sup>", each) for each in _numbered(arguments)),
    "fraction": _fraction,
    "japanese": _japanese,
    "as_of": _as_of,
    "verse": _verse,
    "value": _quantity,
    # {{circa|1500|1510}}: c. 1500 – c. 1510
    "circa": lambda arguments: " – ".join(f"c. {each}" for each in _numbered(arguments) if each) or TEMPLATE,
    # XX{{e}}: XXe; M{{e|me}}: Mme
    "ordinal": lambda arguments: arguments.get("1", "e"),
    # {{siglo|II|a|s}}: siglo II a. C.
    "century": lambda arguments: (
        f"siglo {_shown('1', arguments)}{dict(a=' a. C.', d=' d. C.').get(arguments.get('2', ''), '')}"
    ),
}
_PREFIXES: dict[str, str] = _TABLES["prefixes"]


class Templates:
    """Templates of one language's wiki."""

    def __init__(self, language: str) -> None:
        self._rules = _rules(_TABLES["common"]) | _rules(_TABLES.get(base_code(language), {}))

    def expand(self, text: str) -> str:
        """Replace templates by their visible text; those within sentences that are unknown by a hole."""
        return TEMPLATES.sub(self._expand, text) if "{{" in text else text

    def shown(self, name: str, arguments: Arguments) -> str:
        """Return the visible text of a template; in `formatnum:5`, 5 is an argument."""
        if (key := _key(name)).startswith("formatnum:"):
            return name.partition(":")[2].strip()
        rule = self._rule(key)
        return rule(arguments) if rule else ""

    def _rule(self, key: str) -> Rule | None:
        """Return the rule of a name, or of its beginning."""
        if key in self._rules:
            return self._rules[key]
        prefix = next(filter(key.startswith, _PREFIXES), None)
        return None if prefix is None else self._rules[_PREFIXES[prefix]]

    def _expand(self, match: re.Match[str]) -> str:
        body = match[0][2:-2]
        name, bar, content = body.partition("|")
        if "{{" in name:
            name, bar, content = self.expand(body).partition("|")
        rule = self._rule(_key(name))
        if rule is None or rule is _NOTHING:
            return "" if rule else _placed(match)
        shown = self.shown(name, _arguments(bar + self.expand(content)))
        apart = "/" in shown and shown[0].isdigit() and match.string[match.start() - 1].isdigit()  # 5{{frac|1|2}}
        return f" {shown}" if apart else shown


def _placed(template: re.Match[str]) -> str:
    """Return what a template without a rule leaves: nothing if it is a block, else a hole."""
    if not begins_line(template.string, template.start()):
        return TEMPLATE
    if is_alone(template):
        return FORMULA if FORMULA in template[0] else CODE if CODE in template[0] else ""
    return "" if "\n" in template[0] else TEMPLATE


_LINK_WITH_BAR = re.compile(r"\[\[[^\[\]|]*+\|[^\[\]]*+\]\]")
_NAME = re.compile(r"\s*+((?:[\w.-]| ++(?=[\w.-])){1,40}+|(?<= ))\s*+=")


def _arguments(content: str) -> dict[str, str]:
    """Parse arguments, each behind a bar, by name or number; bars within links do not separate them."""
    if "[[" in content:
        content = _LINK_WITH_BAR.sub(lambda match: match[0].replace("|", "\0"), content)
    arguments: dict[str, str] = {}
    number = 0
    for part in content.split("|")[1:]:
        named = _NAME.match(part) if "=" in part else None
        number += named is None
        key = named[1] if named else str(number)
        arguments[key] = part[named.end() if named else 0 :].strip().replace("\0", "|")
    return arguments
