"""Files that stand for others: pointers that were not fetched, and what a server says instead."""

import json
import re

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
            r"\s*+(?:<\?xml[^>]*+>\s*+|<!--(?:[^-]|-(?!->))*+-->\s*+)*+<(?:!doctype\s++html|html|head|body|meta|script)\b",
            re.IGNORECASE | re.DOTALL,
        ),
        "is an HTML page, as of a login or an error; download the file again",
    ),
    (
        re.compile(r"\s*+(?:<\?xml[^>]*+>\s*+)?+<(?:Error|ListBucketResult|EnumerationResults)\b"),
        "is the answer of a store, as to an error; download the file again",
    ),
    (
        re.compile(r"(?:[45]\d\d:? [A-Z][\w ]{2,40}|Not Found|Entry not found)\.?\s*\Z"),
        "is the error of a server; download the file again",
    ),
)
# Keys of errors that are one object of JSON: such a row of a corpus would have no others.
_ERRORS = {"error", "errors", "detail", "documentation_url"}
_WITH_ERRORS = {"message", "status", "statusCode", "code", "success", "request_id"}


def stand_in(text: str) -> str | None:
    """Return which stand-in a file's text is, or its beginning, and what to do; None for others."""
    head = text[: HEAD + 1].removeprefix("\ufeff")
    if found := next((why for kind, why in _KINDS if kind.match(head)), None):
        return found
    if len(head) <= HEAD and head.startswith("{"):
        try:
            answer = json.loads(head)
        except (ValueError, RecursionError):
            return None
        if _ERRORS & answer.keys() and not answer.keys() - _ERRORS - _WITH_ERRORS:
            return "is the error of a server; download the file again"
    return None
