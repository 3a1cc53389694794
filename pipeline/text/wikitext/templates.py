"""Templates that carry text within sentences: `{{convert|5|km}}` -> 5 kilometres; drops others.

Templates are not expanded as in MediaWiki: tables give, for each name, which arguments are visible.
A name may differ in meaning between languages; most languages have a table in addition to the
common one.
"""

import calendar
import itertools
import re
from collections.abc import Callable, Mapping

from pipeline.common import data_files
from pipeline.common.language_codes import base_code
from pipeline.text.wikitext import units
from pipeline.text.wikitext.brackets import TEMPLATES

Arguments = Mapping[str, str]  # by name, or number from "1"
Rule = Callable[[Arguments], str]

_TABLES = data_files.of(__file__)


def _shown(keys: str) -> Rule:
    """Return a rule that shows the first of these arguments that is present."""
    names = keys.split("/")

    def rule(arguments: Arguments) -> str:
        if keys == "-1":
            return next((arguments[key] for key in reversed([*arguments]) if key.isdigit()), "")
        return next((found for name in names if (found := arguments.get(name))), "")

    return rule


def _own_paragraph(rule: Rule) -> Rule:
    """Wrap a rule so that its text becomes a separate paragraph."""

    def paragraph(arguments: Arguments) -> str:
        return f"\n\n{rule(arguments)}\n\n"

    return paragraph


def _table(lines: str, wrap: Callable[[Rule], Rule] = lambda rule: rule) -> dict[str, Rule]:
    """Parse lines of `ARGUMENT: NAME, NAME`."""
    rules: dict[str, Rule] = {}
    for line in lines.strip().splitlines():
        keys, _, names = line.partition(":")
        rules |= dict.fromkeys((_key(name) for name in names.split(",")), wrap(_shown(keys.strip())))
    return rules


def _key(name: str) -> str:
    """Normalise a template's name for lookup."""
    return name.replace("_", " ").strip().lower()


def _joined(arguments: Arguments) -> str:
    """Render `{{chem|H|2|O}}` as H2O."""
    return "".join(value for key, value in arguments.items() if key.isdigit())


def _words(arguments: Arguments) -> str:
    """Render `{{unité|71|sièges}}` as 71 sièges."""
    return " ".join(value for key, value in arguments.items() if key.isdigit() and value)


def _fraction(arguments: Arguments) -> str:
    """Render `{{frac|2|1|3}}` as 2 1/3."""
    numbers = [value for key, value in arguments.items() if key.isdigit()]
    if len(numbers) == 1:
        return f"1/{numbers[0]}"
    return " ".join([*numbers[:-2], "/".join(numbers[-2:])])


def _japanese(arguments: Arguments) -> str:
    """Render `{{nihongo|tea|茶|cha}}` as tea (茶, cha)."""
    word, *rest = (arguments.get(key, "") for key in "123")
    known = [part for part in rest if part]
    if not word:
        return ", ".join(known)
    return f"{word} ({', '.join(known)})" if known else word


def _as_of(arguments: Arguments) -> str:
    """Render `{{as of|2014|5|lc=y}}` as as of May 2014."""
    if arguments.get("alt"):
        return arguments["alt"]
    year, month, day = (arguments.get(key, "") for key in "123")
    if month.isdecimal() and len(month) <= units.DIGITS and 1 <= int(month) <= 12:
        month = calendar.month_name[int(month)]
    since = "since" if arguments.get("since") else "as of"
    since = since if arguments.get("lc") else since.capitalize()
    return " ".join(part for part in (since, day, month, year) if part)


def _verse(arguments: Arguments) -> str:
    """Render `{{bibleverse|2|Kings|8:16|KJV}}` as 2 Kings 8:16."""
    words = list(itertools.takewhile(str.isdigit, arguments))
    shown = [arguments[key] for key in words]
    end = next((at for at, word in enumerate(shown, 1) if ":" in word), 2)
    return " ".join(shown[:end])


def _old_style(arguments: Arguments) -> str:
    """Render `{{OldStyleDate|February 2|1905|January 20}}` as February 2, 1905."""
    return ", ".join(filter(None, map(arguments.get, "12")))


def _power(arguments: Arguments) -> str:
    """Render `{{e|24}}` as ×10^24."""
    return f"×10^{arguments.get('1', '')}"


def _value(arguments: Arguments) -> str:
    """Render `{{val|6.24|e=18|u=m}}` as 6.24×10^18 m."""
    power = f"×10^{arguments['e']}" if arguments.get("e") else ""
    unit = arguments.get("u") or arguments.get("ul") or ""
    return f"{arguments.get('1', '')}{power} {unit}".rstrip()


def _prefixed(prefix: str, number: int = 1) -> Rule:
    """Return a rule that shows a prefix before one argument."""

    def rule(arguments: Arguments) -> str:
        value = arguments.get(str(number), "")
        return prefix + value if value else ""

    return rule


def _around(before: str, after: str) -> Rule:
    """Return a rule that shows the first argument between two strings."""

    def rule(arguments: Arguments) -> str:
        text = arguments.get("1") or arguments.get("text") or ""
        return before + text + after if text else ""

    return rule


_COMPUTED: dict[str, Rule] = {
    "convert": units.convert,
    "cvt": units.convert,
    "chem": _joined,
    "chem2": _joined,
    "ce": _joined,
    "linktext": _joined,
    "frac": _fraction,
    "sfrac": _fraction,
    "fraction": _fraction,
    "nihongo": _japanese,
    "as of": _as_of,
    "asof": _as_of,
    "e": _power,
    "val": _value,
    "circa": _prefixed("c. "),
    "c.": _prefixed("c. "),
    "bibleverse": _verse,
    "bibleref": _verse,
    "bibleref2": _verse,
    "oldstyledate": _old_style,
    "us$": _prefixed("US$"),
    "usd": _prefixed("US$"),
    "gbp": _prefixed("£"),
    "£": _prefixed("£"),
    "eur": _prefixed("€"),
    "€": _prefixed("€"),
    "hms": _prefixed("HMS "),
    "uss": _prefixed("USS "),
    "ss": _prefixed("SS "),
    "rms": _prefixed("RMS "),
    "ussr": _prefixed("USSR "),
}
_COMPUTED_OF_LANGUAGE: dict[str, dict[str, Rule]] = {
    "fr": {
        "unité": _words,
        "nombre": _words,
        "tmp": _words,
        "date-": _words,
        "date": _words,
        "heure": lambda arguments: " h ".join(filter(None, map(arguments.get, "12"))),
        "euro": _around("", " €"),
        "euros": _around("", " €"),
        "incise": _around("– ", " –"),
        "s": _around("", "e siècle"),
        "s-": _around("", "e siècle"),
        "s2": _around("", "e siècle"),
        "ier": lambda _: "Ier",
        "1er": lambda _: "1er",
        "ire": lambda _: "Ire",
        "citation": _around("« ", " »"),
    },
    "de": {'"': _around("„", "“"), "höhe": _around("", " m")},
    "es": {"unidad": _words, "siglo": _prefixed("siglo ")},
    "it": {"m": _words},
    "pt": {"fmtn": _words},
    "pl": {"j": _words},
}


_FAMILIES = ("lang-", "لغة-", "formatnum:")  # prefixes of names that show their first argument


class Templates:
    """Templates of one language's wiki."""

    def __init__(self, language: str) -> None:
        self.language = language
        code = base_code(language)
        self._rules = {name: _constant(sign) for name, sign in _TABLES["signs"].items()}
        self._rules |= _table(_TABLES["common"]) | _table(_TABLES["quotes"], _own_paragraph) | _COMPUTED
        self._rules |= _table(_TABLES["of_language"].get(code, ""))
        self._rules |= _table(_TABLES["quotes_of_language"].get(code, ""), _own_paragraph)
        self._rules |= _COMPUTED_OF_LANGUAGE.get(code, {})

    def __reduce__(self) -> tuple[type["Templates"], tuple[str]]:
        """Pickle only the language: rules are lambdas and closures."""
        return Templates, (self.language,)

    def expand(self, text: str) -> str:
        """Replace templates by their visible text; most have none."""
        return TEMPLATES.sub(self._expand, text) if "{{" in text else text

    def shown(self, name: str, arguments: Arguments) -> str:
        """Return the visible text of a template; in `formatnum:5`, 5 is an argument."""
        key = _key(name)
        rule = self._rules.get(key)
        if rule is None and key.startswith("formatnum:"):
            return name.partition(":")[2].strip()
        if rule is None and key.startswith(_FAMILIES):
            rule = self._rules["nowrap"]
        return rule(arguments) if rule else ""

    def _expand(self, match: re.Match[str]) -> str:
        body = match[0][2:-2]
        name, _, content = body.partition("|")
        if "{{" in name:
            name, _, content = self.expand(body).partition("|")
        key = _key(name)
        if key not in self._rules and not key.startswith(_FAMILIES):
            return ""
        return self.shown(name, _arguments(self.expand(content)))


def _constant(text: str) -> Rule:
    """Return a rule that shows a text, whatever the arguments."""
    return lambda _: text


_LINK_WITH_BAR = re.compile(r"\[\[[^\[\]|]*+\|[^\[\]]*+\]\]")
_NAME = re.compile(r"\s*+((?:[\w.-]| ++(?=[\w.-])){1,40}+|(?<= ))\s*+=")


def _arguments(content: str) -> dict[str, str]:
    """Parse arguments by name or number; bars within links do not separate them."""
    if "[[" in content:
        content = _LINK_WITH_BAR.sub(lambda match: match[0].replace("|", "\0"), content)
    arguments: dict[str, str] = {}
    number = 0
    for part in content.split("|"):
        named = _NAME.match(part)
        if named is None:
            number += 1
        key = named[1] if named else str(number)
        value = part[named.end() :] if named else part
        arguments[key] = value.strip().replace("\0", "|")
    return arguments
