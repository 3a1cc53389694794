"""Words of a command line as Hydra's override grammar reads them."""

import os
import re
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

RESERVED = ("null", "true", "false", "inf", "nan")  # words that are not read as text


def quoted(value: Any) -> str:
    """A value as Hydra's override grammar reads it back."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(quoted(item) for item in value) + "]"
    text = str(value)
    if re.fullmatch(r"[A-Za-z_./][\w./-]*", text, re.ASCII) and text.lower() not in RESERVED:
        return text
    # In Hydra's grammar a backslash is itself, unless a quotation mark follows.
    return "'" + re.sub(r"(\\*)'", r"\1\1\\'", re.sub(r"(\\+)$", r"\1\1", text)) + "'"


def parses(word: str) -> bool:
    """Whether Hydra's override grammar reads the word."""
    try:
        OverridesParser.create().parse_override(word)
    except HydraException:
        return False
    return True


def readable(word: str) -> str:
    """An override `key=value` in the grammar; as it is where it is already, or cannot be brought.

    Paths have characters that the grammar has not: a value that is nothing but text is quoted, and
    in it a leading `~/` is the user's home.
    """
    key, equals, value = word.partition("=")
    if parses(word) or not equals or re.match(r"['\"\[{(]", value) or "${" in value:
        return word
    mended = f"{key}={quoted(os.path.expanduser(value) if value.startswith('~/') else value)}"
    return mended if parses(mended) else word
