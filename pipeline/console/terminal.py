"""Lines on a terminal: wrapped with an indent, figures in bold; as they are for a program."""

import json
import os
import re
import shutil
import sys
import textwrap
from typing import TextIO

from pipeline.console.bars import ROWS
from pipeline.console.output import unfiltered
from pipeline.console.redact import redact
from pipeline.errors import Restart, UserError

RECORDS = "BERT_ERRORS"  # environment: set in processes that an executor starts
WIDEST = 120  # columns; a narrower terminal has its own width
HANGING = 6  # spaces in front of what continues a line
# Commands that a reader copies: their spaces are not places to break.
_COMMAND = re.compile(r"(?:python|deepspeed|make|kubectl|pip) (?:-m )?[\w./-]+(?: [\w./+-]+=\S+)*")
_QUOTED = re.compile(r"'[^'\n]{1,60}'|`[^`\n]{1,60}`|\[[^\]\n]{1,40}\]")
_GLUE = "\x00"


def width(stream: TextIO) -> int | None:
    """Return how many columns a line may have on `stream`; None for a file or a pipe."""
    if not stream.isatty():
        return None
    return max(20, min(WIDEST, shutil.get_terminal_size().columns))


def wrap(text: str, columns: int | None, indent: int = HANGING) -> str:
    """Return `text` in lines of at most `columns`, all but the first indented.

    Paths, commands and quoted values stay whole, even where they are longer than a line.
    """
    if columns is None:
        return text
    return "\n".join(_wrapped(line, columns, indent) for line in text.split("\n"))


def _wrapped(line: str, columns: int, indent: int) -> str:
    if len(line) <= columns:
        return line
    whole = line
    for pattern in (_COMMAND, _QUOTED):
        whole = pattern.sub(lambda match: match[0].replace(" ", _GLUE), whole)
    # Columns of a table are two or more spaces apart, which textwrap would keep only in a line.
    parts = textwrap.wrap(
        whole, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(parts).replace(_GLUE, " ")


def say(text: str, stream: TextIO | None = None) -> None:
    """Print `text`, redacted; wrapped and with colours where `stream` (standard output) is a terminal."""
    stream = stream or sys.stdout
    if not stream.isatty():
        print(redact(text), file=stream, flush=True)
        return
    from rich.console import Console

    ROWS.clear()
    console = Console(file=unfiltered(stream), soft_wrap=True)
    console.print(wrap(redact(text), width(stream)), markup=False, emoji=False)


def say_line(text: str) -> None:
    """Print one line on standard output, cut where a terminal is narrower."""
    columns = width(sys.stdout)
    say(text if columns is None or len(text) <= columns else f"{text[: columns - 1]}…")


def tell(error: UserError | Restart) -> None:
    """Print an error on standard error, and its record for the executor that started this process."""
    say(f"{'error' if isinstance(error, UserError) else 'stopped'}: {error}", sys.stderr)
    if RECORDS in os.environ:
        print(json.dumps(error.record()), file=sys.stderr, flush=True)
