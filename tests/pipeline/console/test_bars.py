"""How far a command is: what the bar says, and what a run reads of its stages' bars."""

import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from pipeline.console import bars
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


def test_a_bar_says_how_much_how_fast_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 110.0)
    state = bars.State("reading", 6e6, "B", done=3e6, started=1e6, began=100.0, note="5 documents")
    assert state.line() == "3.0 MB of 6.0 MB, 200.0 kB/s, 15 s left, 5 documents"
    assert bars.State("train", 600, "steps", 300, began=100.0).line() == "300 of 600 steps, 30/s, 10 s left"
    assert bars.State("train", 600, "steps", 300, started=300, began=100.0).line() == "300 of 600 steps"
    assert bars.State("download", None, "B", 2e6).line() == "2.0 MB"


def test_a_run_reads_how_far_its_stage_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "bar"
    monkeypatch.setenv(bars.PLACE, str(place))
    assert bars.read(place) is None
    with bars.Bar("sample", 10, "rows") as bar:
        bar.move(3, "a note")
        found = bars.read(place)
        assert found is not None
        assert (found.what, found.done, found.note) == ("sample", 3, "a note")
        bars.Bar("other", 2, silent=True)
        assert bars.read(place) == found
    assert bars.read(place) is None
    place.write_text('{"what": "cut')
    assert bars.read(place) is None
    monkeypatch.setenv(bars.PLACE, str(tmp_path / "no" / "folder"))
    assert list(bars.each("ab", "letters", "letters")) == ["a", "b"]


@pytest.mark.parametrize("columns", [40, 100])
def test_lines_stay_above_bars_which_fit_and_vanish(root: Path, columns: int) -> None:
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
