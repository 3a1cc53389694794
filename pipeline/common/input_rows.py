"""Rows of `embed` and `predict`: a line feed alone ends one, so that `wc -l` counts them."""

import io
import sys
from typing import TextIO


def open_rows(path: str | None) -> TextIO:
    """Open a UTF-8 file, or standard input without a path; a lone CR is part of its line.

    A byte order mark at the beginning is left out.
    """
    if path:
        return open(path, encoding="utf-8-sig", newline="\n")
    if isinstance(sys.stdin, io.TextIOWrapper):  # of the locale's encoding till then
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict", newline="\n")
    return sys.stdin
