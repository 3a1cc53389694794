"""Language codes, as Wikipedia has them in its addresses.

A corpus's language may also be written with a region (`de_AT`, `zh-CN`, `sr-Latn`), in capitals, or
as ISO 639's code of three letters (`deu`). Tables of languages are read with `wikipedia_code`.
"""

import re
from functools import lru_cache

from pipeline.common.tables import read_table

_CODES = read_table(__file__, "language_codes.yaml")
_OWN = frozenset(_CODES["own"].split())
_PAIRS = [entry.split(":") for entry in _CODES["iso"].split()]
_THREE_LETTERS: dict[str, str] = {code: two for two, codes in _PAIRS for code in codes.split(",")}
_OTHERWISE, _DUMPS = ({a: b for a, b in (e.split(":") for e in _CODES[k].split())} for k in ("otherwise", "dumps"))
_TWO_LETTERS = {two for two, _ in _PAIRS}.union(_OTHERWISE)
_FORM = re.compile(r"([a-z]{2,3}|simple)(-[a-z0-9]+)*")  # de, simple, zh-min-nan


def is_code(language: str) -> bool:
    """Return whether it has the form of a code and, of two letters, is one."""
    code = language.lower().replace("_", "-")
    return bool(_FORM.fullmatch(code)) and (code[2:3] not in ("", "-") or code[:2] in _TWO_LETTERS)


@lru_cache(maxsize=256)
def wikipedia_code(language: str) -> str:
    """Return the code that tables of languages have: `de` for `de_AT`, `DE` and `deu`; `no` for `nb`.

    Codes of Wikipedia with a hyphen are kept: `zh-yue`, `be-tarask`.
    """
    code = language.lower().replace("_", "-")
    if code in _OWN:
        return code
    base = _THREE_LETTERS.get(code.partition("-")[0], code.partition("-")[0])
    return str(_OTHERWISE.get(base, base))


def dump_name(language: str) -> str:
    """Return the name of a language's Wikipedia among the dumps: `zh_yuewiki` for `zh-yue`, `yue`."""
    code = wikipedia_code(language)
    return f"{_DUMPS.get(code, code)}wiki".replace("-", "_")


def base_code(language: str) -> str:
    """Return the first part of `wikipedia_code`: `zh` for `zh-yue`."""
    return wikipedia_code(language).partition("-")[0]
