"""Language codes, as Wikipedia has them in its addresses.

A corpus's language may also be written with a region (`de_AT`, `zh-CN`, `sr-Latn`), in capitals, or
as ISO 639's code of three letters (`deu`). Tables of languages are read with `wikipedia_code`.
"""

from functools import lru_cache

from pipeline.common import data_files

_TABLE: dict[str, str] = data_files.of(__file__)
_OWN = frozenset(_TABLE["own"].split())
_PAIRS = (entry.split(":") for entry in _TABLE["three_letters"].split())
_THREE_LETTERS = {code: two for two, codes in _PAIRS for code in codes.split(",")}


@lru_cache(maxsize=256)
def wikipedia_code(language: str) -> str:
    """Return the code that tables of languages have: `de` for `de_AT`, `DE` and `deu`.

    Codes of Wikipedia with a hyphen are kept: `zh-yue`, `be-tarask`.
    """
    code = language.lower().replace("_", "-")
    if code in _OWN:
        return code
    base = code.partition("-")[0]
    return _THREE_LETTERS.get(base, base)


def base_code(language: str) -> str:
    """Return the first part of `wikipedia_code`: `zh` for `zh-yue`."""
    return wikipedia_code(language).partition("-")[0]
