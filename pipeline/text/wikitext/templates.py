"""Templates that carry text within sentences: `{{convert|5|km}}` -> 5 kilometres; drops others.

Templates are not expanded as in MediaWiki: tables give, for each name, which arguments are visible.
A name may differ in meaning between languages; most languages have a table in addition to the
common one.
"""

import itertools
import re
from collections.abc import Callable, Mapping

from pipeline.common.language_codes import base_code
from pipeline.text.wikitext import units
from pipeline.text.wikitext.brackets import TEMPLATES

Arguments = Mapping[str, str]  # by name, or number from "1"
Rule = Callable[[Arguments], str]

# Visible argument by template name. `a/b`: the first of them that is present; -1: the last unnamed
# argument.
_COMMON = """
1: nowrap, nobr, nobreak, no wrap, nowr, nwr, small, smaller, big, large, larger, smallcaps
1: sc, small caps, nq, vr, center, abbr, tooltip, em, strong, unicode, polytonic, nastaliq
1: visible anchor, vanchor, sic, typo, not a typo, as written, angbr, angle bracket, sub, sup
1: var, mvar, literal translation, nihongo2, formatnum, hebrew, asiantitle, nobold, noitalic
2/text: lang, rtl-lang, wikt-lang
2: resize, color, colour, font color, background color
-1: transl, transliteration, translit, script, bidi
lt/1: ill, interlanguage link, interlanguage link multi, illm, link-interwiki
c/s/t: zh
"""
_QUOTES = """
text/quote/1: quote, blockquote, block quote, bquote, quotation, cquote, poemquote, poem quote
2: rquote
"""
_SIGNS = {
    "nbsp": " ",
    "thinsp": " ",
    "spaces": " ",
    "space": " ",
    "zwsp": "",
    "snd": " – ",
    "snds": " – ",
    "spnd": " – ",
    "spaced ndash": " – ",
    "ndash": "–",
    "mdash": "—",
    "mdashb": "—",
    "em dash": "—",
    "etc.": "etc.",
    "'s": "'s",
    "'": "'",
    '"': '"',
    "' \"": "'\"",
    "\" '": "\"'",
    "=": "=",
    "okina": "ʻ",
    "hamza": "ʾ",
    "ayin": "ʿ",
}
_OF_LANGUAGE = {
    "fr": """
        1: latin, romain, petites capitales, pc, guil, nobr romains
        2/texte: langue, en langue
        trad/1: lien
    """,
    "de": """
        1: formatzahl, formnum, enS, frS, laS, itS, esS, ruS, plS, grcS, nlS, arS, jaS, zhS, trS
        1: latein, fremdsprache
    """,
    "es": "1: versalita, nowrap, esd\n2: idioma",
    "it": "1: maiuscoletto, tutto attaccato, bandiera nome",
    "pt": "1: versalete, nobr\nlt/1: ilc, ligação interlíngua",
    "nl": "2: taal",
    "ru": """
        2/1: нп, нп1, нп2, нп3, нп4, нп5, не переведено, не переведено 2, не переведено 3
        2/1: не переведено 4, не переведено 5, iw, iw5
        1: s, comment, подсказка, число, формат числа
    """,
    "ja": "label/1: 仮リンク\n1: enlink, ruby, ルビ, vanc",
    "zh": """
        3/1: le, link-en, link-de, link-fr, link-ja, link-ru, link-es, link-it, link-ko, link-pt
        4/3: tsl, translink, internal link helper
        1: ruby, notetag2
    """,
    "ko": "2: llang\n1: ruby\n한글/1: 임시링크",
    "ar": "1: ألمانية, إنجليزية, فرنسية, لاتينية, إسبانية, إيطالية, روسية, تركية, فارسية, يونانية",
}
_QUOTES_OF_LANGUAGE = {
    "fr": "1: citation bloc, début citation bloc, vers",
    "de": "text/1: zitat, zitat-en, zitat-fr, zitat-la, zitat-de, zitat-it, zitat-es",
    "es": "1: cita, cita destacada\n2: cquote2",
    "it": "1: citazione, quote",
    "pt": "1: citação, citação2, quote1",
    "nl": "1: citaat, quote, cquote",
    "pl": "1: cytat, cytat d",
    "ru": "текст/1: цитата, начало цитаты",
    "ja": "1: 引用文, quotation",
    "zh": "1: 引用, cquote",
}


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


_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def _as_of(arguments: Arguments) -> str:
    """Render `{{as of|2014|5|lc=y}}` as as of May 2014."""
    if arguments.get("alt"):
        return arguments["alt"]
    year, month, day = (arguments.get(key, "") for key in "123")
    if month.isdecimal() and len(month) <= units.DIGITS and 1 <= int(month) <= 12:
        month = _MONTHS[int(month) - 1]
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
        self._rules = {name: _constant(sign) for name, sign in _SIGNS.items()}
        self._rules |= _table(_COMMON) | _table(_QUOTES, _own_paragraph) | _COMPUTED
        self._rules |= _table(_OF_LANGUAGE.get(code, ""))
        self._rules |= _table(_QUOTES_OF_LANGUAGE.get(code, ""), _own_paragraph)
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
