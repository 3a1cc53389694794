"""Text for people and for other machines: secrets become stars, control characters are written out.

Secrets are `user:password@` in addresses, what signs them (`token=`, `sig=`, `X-Amz-Signature=`),
and the values of environment variables whose names end as those of secrets do.
"""

import functools
import html
import json
import os
import re
from typing import Any

HIDDEN = "***"
SHORTEST = 8  # characters; a shorter value may be an ordinary word, and is hidden as a whole one
LEAST = 4  # characters of a value that is a secret
# A quotation mark belongs to an address or a value, unless it ends a text.
_PART = r"(?:[^\s{}\"']|[\"'](?![\s,;:\]}})>|]|$))+"
# What precedes the @ of abfs://CONTAINER@ACCOUNT, once wasb://, is a name.
_ADDRESS = re.compile(r"(?i)(?<=://)(?<!\b(?:abfs|wasb)://)(?<!\b(?:abfs|wasb)s://)" + _PART.format("/") + "@")
_QUERY = re.compile(
    r"((?:[?&;]|%3f|%26|\\u0026)(?:[\w.-]*(?:signature|token|secret|passw(?:or)?d|credentials?|"
    r"apikey|accesskey|accountkey)|(?:[\w.-]*[_.-])?(?:sig|pwd|pass|auth|authorization|hmac|jwt|sas)|"
    r"[\w.-]*[_.-]key|key(?=(?:=|%3d)[\w-]{20,}(?:[^\w./-]|$)))(?:=|%3d))" + _PART.format("&#;<>"),
    re.IGNORECASE,
)
_NAME = re.compile(
    r"(?<!GOOGLE_APPLICATION)(?:PASSWORD|PASSWD|PASSPHRASE|^SSHPASS|_PWD|(?:^|_)(?:KEY|TOKEN|SECRET|"
    r"PASS|CREDENTIAL|SAS|CONNECTION_STRING))S?$",
    re.IGNORECASE,
)
_LONG = re.compile(r"[\w+/-]{32,}=*")  # of a connection string or a file of keys
_BEGIN = r"(?:(?<!\w)|(?<=%\w\w)|(?<=%25\w\w)|(?<=\\[nrt]))"  # of a word, after escapes too
# Orders to a terminal, line ends, marks that turn round the order of letters, single bytes.
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def redact(text: str) -> str:
    """Return text to show: without secrets, and with control characters but tabs and line ends."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", hide(text))


def one_line(text: str) -> str:
    """Return text to show as one line."""
    return redact(text).replace("\n", "\\n")


def without_secrets(data: Any) -> Any:
    """Return data for JSON or YAML without the secrets in its texts."""
    if isinstance(data, str):
        return hide(data)
    if isinstance(data, dict):
        return {without_secrets(key): without_secrets(value) for key, value in data.items()}
    return [without_secrets(item) for item in data] if isinstance(data, list | tuple) else data


def hide(text: str) -> str:
    """Return the text with secrets replaced by asterisks, however they are quoted."""
    values = {value.strip() for name, value in os.environ.items() if _NAME.search(name)}
    pattern = _values(frozenset(value for value in values if len(value) >= LEAST))
    return unsigned(pattern.sub(HIDDEN, text))  # values first: an address may hold a part of one


def unsigned(text: str) -> str:
    """Return the text without passwords and signatures in its addresses."""
    return _QUERY.sub(rf"\1{HIDDEN}", _ADDRESS.sub(f"{HIDDEN}@", text))


@functools.lru_cache(maxsize=4)
def _values(values: frozenset[str]) -> re.Pattern[str]:
    """Return the pattern of secrets and of their long parts; one may begin with another."""
    parts = (_LONG.findall(value.replace("\\n", "\n")) for value in values)
    words = []
    for value in sorted(values.union(*parts), key=len, reverse=True):
        word = "".join(map(_written, value))
        words.append(word if len(value) >= SHORTEST else rf"{_BEGIN}{word}(?!\w)")
    return re.compile("|".join(words) or "(?!)")


@functools.cache
def _written(letter: str) -> str:
    """Return the pattern of a letter as texts, programs, JSON, YAML, shells and URLs write it."""
    if letter.isascii() and letter.isalnum():
        return letter
    data = letter.encode("utf-8", "surrogatepass")
    ways = {letter, json.dumps(letter)[1:-1], ascii(letter)[1:-1], repr(data)[2:-1]}
    ways |= {html.escape(letter), f"&#{ord(letter)};", "".join(f"%{byte:02x}" for byte in data)}
    ways |= {r"\'", "''", "'\"'\"'", r"'\''"} if letter == "'" else set()
    # JSON in JSON has more backslashes, an address in an address more percent signs.
    patterns = [re.escape(way).replace(r"\\", r"\\{1,8}") for way in sorted(ways, key=len)[::-1]]
    patterns += [r"\s++", r"\+"] if letter.isspace() else []
    return f"(?i:{'|'.join(patterns)})".replace("%", "%(?:25)*")
