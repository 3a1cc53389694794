"""Files that stand for others: pointers that were not fetched, and what a server says instead."""

import json
import re
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import InputError, readable

if TYPE_CHECKING:
    from pipeline.storage.places import File

HEAD = 4096  # characters that tell; a pointer or the message of an error has no more

_KINDS = (
    (
        re.compile(r"version https://(?:git-lfs|hawser)\.github\.com/spec/|# external\n"),
        "is a Git LFS pointer, not the file itself; fetch it with git lfs pull",
    ),
    (
        re.compile(r"(?:\S*/)?(?:\.git)?/?annex/objects/\S+(?:\n\S*)*\s*\Z"),
        "is a git-annex pointer, not the file itself; fetch it with git annex get",
    ),
    (
        re.compile(
            r"\s*+(?:<\?xml[^>]*+>\s*+|<!--(?:[^-]|-(?!->))*+-->\s*+)*+<(?:!doctype\s++html|html|head|body|meta|script|title)\b",
            re.IGNORECASE | re.DOTALL,
        ),
        "is an HTML page, as of a login or an error; download the file again (pages are read with +corpus=html)",
    ),
    (
        re.compile(r"\s*+(?:<\?xml[^>]*+>\s*+)?+<(?:Error|ListBucketResult|EnumerationResults)\b"),
        "is the answer of a store, as to an error; download the file again",
    ),
    (
        re.compile(r"\s*+<(h\d|center|div|a|iframe)\b[^<>]*+>(?:[^<]|<(?!\1\b))*+\.?\s*\Z"),
        "is a piece of HTML, as of an error; download the file again",
    ),
)
# What a server says, alone or in an object of JSON.
_PHRASES = (each.phrase for each in HTTPStatus if each >= HTTPStatus.BAD_REQUEST and " " in each.phrase)
_SAID = re.compile(
    r"\s*(?:error(?: code)?:? ?\(?\d{3,4}\)?|[45]\d\d:? (?-i:[A-Z])[\w ]{2,40}|Forbidden|Unauthorized"
    r"|(?:file|page|entry|repository|object|key|resource|dataset|revision|bucket) (?:was )?not found"
    r"|Access (?:is )?denied|Access to .{1,99} is restricted.*|Invalid (?:user|password|credentials|token|API key).*"
    rf"|upstream connect error.*|no healthy upstream|default backend - 404|rate limit exceeded|{'|'.join(_PHRASES)})"
    r"[.!]?\s*\Z",
    re.IGNORECASE,
)
_CAUSE = "is the error of a server; download the file again"
# Keys of errors that are one object of JSON, and others next to them: such a row of a corpus would have more.
_ERRORS = {"error", "errors", "detail", "documentation_url"}
_OTHERS = {"message", "status", "statusCode", "code", "success", "request_id", "type", "title", "traceId", "instance"}


def find_placeholder(text: str) -> str | None:
    """Return which stand-in a file's text is, or its beginning, and what to do; None for others."""
    head = text[: HEAD + 1].removeprefix("\ufeff")
    if cause := next((why for kind, why in _KINDS if kind.match(head)), None):
        return cause
    short = len(head) <= HEAD
    return _CAUSE if short and (_SAID.match(head) or (head.startswith(("{", "[{")) and _is_error(head))) else None


def file_placeholder(file: "File") -> str | None:
    """Return which stand-in a file is; None for others."""
    with file.open("rb") as opened:
        return find_placeholder(opened.read(4 * HEAD).decode("utf-8", "replace"))


def error_of(file: "File", why: str) -> InputError:
    """Return the error of a file that cannot be read: which stand-in it is, or else `why`."""
    stand_in = file_placeholder(file) if file.is_file() else None
    return InputError(stand_in or why, path=file)


def refuse(path: Path) -> None:
    """Raise InputError if a file is a stand-in, or cannot be read."""
    with readable(path):
        if why := file_placeholder(path):
            raise InputError(why, path=path)


def _is_error(head: str) -> bool:
    """Return whether JSON is one object that tells of an error."""
    try:
        answer = json.loads(head)
    except (ValueError, RecursionError):
        return False
    answer = answer[0] if isinstance(answer, list) and len(answer) == 1 else answer
    if not isinstance(answer, dict) or answer.keys() - _ERRORS - _OTHERS:
        return False
    return bool(_ERRORS & answer.keys()) or any(
        _SAID.match(f"{said}{value}") for value in answer.values() for said in ("", "error ")
    )
