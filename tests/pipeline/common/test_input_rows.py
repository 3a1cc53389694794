"""Rows are UTF-8 whatever the locale, and do not begin with the mark that some editors write."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.common.input_rows import open_rows

ROWS = "import sys; from pipeline.common.input_rows import open_rows as f; print(ascii([*f(None)]))"


def piped(root: Path, data: bytes, locale: str) -> "subprocess.CompletedProcess[str]":
    """Read rows from standard input in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", ROWS], input=data, cwd=root, capture_output=True, check=False,
        env={**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )  # fmt: skip
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_standard_input_is_utf_8_in_any_locale(root: Path, locale: str) -> None:
    assert piped(root, "é\r a\nb".encode(), locale).stdout == "['\\xe9\\r a\\n', 'b']\n"
    broken = piped(root, b"a\n\xff\n", locale)
    assert (broken.returncode, broken.stdout) == (1, "")
    assert "UnicodeDecodeError" in broken.stderr


def test_a_byte_order_mark_is_not_text(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_bytes(b"\xef\xbb\xbfa\nb\n")
    with open_rows(str(path)) as stream:
        assert list(stream) == ["a\n", "b\n"]
    assert piped(root, path.read_bytes(), "C").stdout == "['a\\n', 'b\\n']\n"
