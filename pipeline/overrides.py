"""Words of a command line as Hydra's override grammar reads them."""

import re
from typing import Any

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
