"""What people see of a command: bars, numbers, lines and where they go."""

import os
import pty
import re
import subprocess
import sys
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.console import bars, terminal
from pipeline.console.formatting import pluralize
from pipeline.errors import Exit
from tests.support import forked
from tests.support.terminal import plain

TWO = """
import sys
from pipeline.console import terminal
from pipeline.console.bars import Bar
with Bar("first", 4, "rows") as first, Bar("second", None, "B") as second:
    first.update()
    second.move(2_000_000, "a \\x1b[31m note")
    terminal.say("in between 12")
    first.move(2, "half")
terminal.say("done")
"""


def test_a_bar_says_how_much_how_fast_and_how_long(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 110.0)
    state = bars.State("reading", 6e6, "B", done=3e6, started=1e6, began=100.0, note="5 documents")
    assert state.line() == "3.0 MB of 6.0 MB, 200.0 kB/s, 15 s left, 5 documents"
    assert bars.State("train", 600, "steps", 300, began=100.0).line() == "300 of 600 steps, 30/s, 10 s left"
    assert bars.State("train", 600, "steps", 300, started=300, began=100.0).line() == "300 of 600 steps"
    assert bars.State("download", None, "B", 2e6).line() == "2.0 MB"


def test_a_run_reads_how_far_its_stage_is(tmp_path, monkeypatch):
    place = tmp_path / "bar"
    monkeypatch.setenv(bars.PLACE, str(place))
    assert bars.read(place) is None
    with bars.Bar("sample", 10, "rows") as bar:
        bar.move(3, "a note")
        found = bars.read(place)
        assert (found.what, found.done, found.note) == ("sample", 3, "a note")
        bars.Bar("other", 2, silent=True)
        assert bars.read(place) == found
    assert bars.read(place) is None
    place.write_text('{"what": "cut')
    assert bars.read(place) is None
    monkeypatch.setenv(bars.PLACE, str(tmp_path / "no" / "folder"))
    assert list(bars.each("ab", "letters", "letters")) == ["a", "b"]


@pytest.mark.parametrize("columns", [40, 100])
def test_lines_stay_above_bars_which_fit_and_vanish(root, columns):
    main, side = pty.openpty()
    termios.tcsetwinsize(side, (24, columns))
    environment = os.environ | {"COLUMNS": str(columns)}
    subprocess.run([sys.executable, "-c", TWO], cwd=root, stdout=side, stderr=side, check=True, env=environment)
    os.close(side)
    drawn = os.read(main, 100_000)
    os.close(main)
    rows = [row.rstrip() for row in re.split(r"[\r\n]+", plain(drawn))]
    assert max(map(len, rows)) <= columns
    assert "in between 12" in rows
    assert rows[-2:] == ["done", ""]
    assert any(row.startswith("first") and "50%" in row for row in rows)
    assert columns < 100 or any(r"a \u001b[31m note" in row for row in rows)
    assert drawn.endswith(b"done\r\n")
    assert b"\x1b[31m" not in drawn


# One is not many.


@pytest.mark.parametrize(("number", "told"), [(0, "0 rows"), (1, "1 row"), (2301, "2,301 rows")])
def test_one_is_not_many(number, told):
    assert pluralize(number, "row") == told


# A reader who leaves early, or a terminal that is closed, ends no work.


WORK = """
import sys, time
from pathlib import Path
from tqdm import tqdm
from pipeline.console import output
output.outlive_readers()
for number in range(200):
    print("line", number, flush=True)
    print("line", number, file=sys.stderr)
    tqdm.write("more")
    time.sleep(0.002)
Path(sys.argv[1]).write_text(str(output.is_gone()))
"""


@pytest.mark.parametrize("option", ["-u", "-B"])
def test_work_goes_on_when_its_pipe_has_no_reader(root, tmp_path, option):
    command = f"{sys.executable} {option} -c '{WORK}' {tmp_path}/done 2>&1 | head -3"
    script = ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"]
    done = subprocess.run(script, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("line 0\nline 0\n")
    assert (tmp_path / "done").read_text() == "True"


@pytest.mark.parametrize("coding", ["utf-8:strict", "latin-1"])
def test_a_name_of_any_bytes_can_be_said(root, coding):
    code = "from pipeline.console import output; output.outlive_readers(); print('c\\udce9 \u2588')"
    done = forked.fresh("-c", code, env=os.environ | {"PYTHONIOENCODING": coding, "PYTHONPATH": str(root)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(r"c\udce9 ")


def test_work_goes_on_when_its_terminal_is_closed(root, tmp_path):
    terminal, end = pty.openpty()
    words, env = [sys.executable, "-c", WORK, str(tmp_path / "done")], os.environ | {"PYTHONPATH": str(root)}
    process = subprocess.Popen(words, cwd=root, stdout=end, stderr=end, env=env)
    os.close(end)
    assert os.read(terminal, 10)
    os.close(terminal)
    assert (process.wait(60), (tmp_path / "done").read_text()) == (0, "True")


@pytest.mark.parametrize(
    ("closed", "gone"), [(">&-", "False"), ("2>&-", "False"), (">&- 2>&-", "False"), ("> /dev/full", "True")]
)
def test_work_goes_on_without_any_output_or_on_a_full_disk(root, tmp_path, closed, gone):
    command = f"{sys.executable} -c '{WORK}' {tmp_path}/done {closed}"
    assert subprocess.run(["bash", "-c", command], cwd=root, check=False).returncode == 0
    assert (tmp_path / "done").read_text() == gone


@pytest.mark.parametrize(("records", "code"), [("", Exit.USER), ("BERT_ERRORS=1", Exit.DONE)])
def test_a_command_whose_output_was_cut_says_so_at_its_end(root, records, code):
    work = "from pipeline.cli import entry_point; entry_point.run_guarded(lambda: print(1))"
    command = f"env {records} {sys.executable} -c '{work}' > /dev/full"
    done = subprocess.run(["bash", "-c", command], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.startswith("error: standard output: no space left" if code else "")


# Lines break where a reader would break them, and nowhere for a program.


COLOUR = re.compile(r"\x1b\[[\d;]*m")
LINE = (
    "error: vocab=work/vocab: no vocabulary there; run python -m pipeline.vocab corpus=books "
    "corpus.path=/data/a/rather/long/path/to/some/books first, or type 'task.labels=[no, yes]'"
)


def test_commands_paths_and_quoted_values_stay_whole():
    lines = terminal.wrap(LINE, 60).split("\n")
    assert len(lines) > 2
    assert all(line.startswith("      ") for line in lines[1:])
    command = "python -m pipeline.vocab corpus=books corpus.path=/data/a/rather/long/path/to/some/books"
    assert any(command in line for line in lines)
    assert any("'task.labels=[no, yes]'" in line for line in lines)


@given(st.lists(st.text("abc,.=/-", min_size=1, max_size=30), min_size=1), st.integers(40, 80))
def test_nothing_is_lost_and_no_line_is_too_long(words, columns):
    text = terminal.wrap(" ".join(words), columns)
    assert text.split() == words
    assert all(len(line) <= columns for line in text.split("\n"))


@pytest.mark.parametrize("columns", [50, 200])
def test_a_mistake_fits_the_terminal(root, columns):
    main, side = pty.openpty()
    words = ["-m", "pipeline.prepare", "+corpus=boks"]
    env = os.environ | {"COLUMNS": str(columns)}
    subprocess.run([sys.executable, *words], cwd=root, stdout=side, stderr=side, check=False, env=env)
    os.close(side)
    lines = os.read(main, 10_000).decode().splitlines()
    assert COLOUR.sub("", lines[0]).startswith("error: corpus=boks: ")
    assert max(len(COLOUR.sub("", line)) for line in lines) <= min(120, columns)
