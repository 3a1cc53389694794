"""Lines break where a reader would break them, and nowhere for a program."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.console import terminal

COLOUR = re.compile(r"\x1b\[[\d;]*m")
LINE = (
    "error: vocab=work/vocab: no vocabulary there; run python -m pipeline.vocab corpus=books "
    "corpus.path=/data/a/rather/long/path/to/some/books first, or type 'task.labels=[no, yes]'"
)


def test_commands_paths_and_quoted_values_stay_whole() -> None:
    lines = terminal.wrap(LINE, 60).split("\n")
    assert len(lines) > 2
    assert all(line.startswith("      ") for line in lines[1:])
    command = "python -m pipeline.vocab corpus=books corpus.path=/data/a/rather/long/path/to/some/books"
    assert any(command in line for line in lines)
    assert any("'task.labels=[no, yes]'" in line for line in lines)


@given(st.lists(st.text("abc,.=/-", min_size=1, max_size=30), min_size=1), st.integers(40, 80))
def test_nothing_is_lost_and_no_line_is_too_long(words: list[str], columns: int) -> None:
    text = terminal.wrap(" ".join(words), columns)
    assert text.split() == words
    assert all(len(line) <= columns for line in text.split("\n"))


def test_what_a_program_reads_is_not_wrapped() -> None:
    stream = io.StringIO()
    terminal.say(LINE, stream)
    assert stream.getvalue() == LINE + "\n"


@pytest.mark.parametrize("columns", [50, 200])
def test_a_mistake_fits_the_terminal(root: Path, columns: int) -> None:
    main, side = pty.openpty()
    words = ["-m", "pipeline.prepare", "+corpus=boks"]
    subprocess.run(
        [sys.executable, *words],
        cwd=root,
        stdout=side,
        stderr=side,
        check=False,
        env=os.environ | {"COLUMNS": str(columns)},
    )
    os.close(side)
    lines = os.read(main, 10_000).decode().splitlines()
    assert COLOUR.sub("", lines[0]).startswith("error: corpus=boks: ")
    assert max(len(COLOUR.sub("", line)) for line in lines) <= min(120, columns)
