"""The bar moves within a file and with the shards, and ends where the job does."""

import os
import pty
import re
import shlex
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from pipeline.beam import steps
from pipeline.preparation import progress
from pipeline.preparation.plan import PreparePlan, make_plan
from tests.support import preparing
from tests.support.examples import WORKERS
from tests.support.runs import configured
from tests.support.terminal import plain

DOCUMENTS = 6000


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Return the words of a command line for a corpus of one file."""
    preparing.vocabulary(tmp_path, ["words", "."])
    (tmp_path / "a.txt").write_text("\n\n".join(f"Words {n}.\nMore words." for n in range(DOCUMENTS)))
    return shlex.split(
        f"+corpus=lines corpus.path={tmp_path}/a.txt vocab={tmp_path} out={tmp_path}/out "
        "minimum_characters=0 validation_share=0.5 duplicates=3 runner.task_bytes=1"
    )


def planned(words: list[str], out: Path) -> PreparePlan:
    plan = make_plan(configured("prepare", *words), out)
    plan.scratch.mkdir(parents=True)
    return plan


def test_tasks_say_how_far_they_are(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    plan = planned(words, tmp_path / "out")
    seen = progress.Progress(plan)
    seen.look()
    assert (seen.read.done, seen.read.documents, seen.written.done, seen.reading) == (0, 0, 0, True)
    steps.run(plan)
    seen.look()
    (split,) = plan.splits
    assert (seen.read.done, seen.read.documents, seen.reading) == (split.end, DOCUMENTS, False)
    assert seen.written.done == seen.whole == plan.layout.buckets == 2
    # What the tasks say while they work.
    reading, writing = plan.report(plan.read_account(0)), plan.report(plan.write_account(0))
    progress.Report(reading)(split.end * 3 / 4, 4000)
    progress.Report(writing)(2 / 4)
    before = progress.Progress(plan)
    before.look()
    assert (before.read.done, before.read.documents, before.reading) == (split.end * 3 / 4, 4000, True)
    assert (before.written.done, before.whole) == (1 + 2 / 4, 1)
    reading.write_text("[12")  # it is just being written
    before.look()
    assert before.read.done == 0
    assert progress.start_over(plan) == "0 of 1 task had read, 1 of 2 had written"
    assert not list(plan.scratch.glob("*.progress"))


def test_a_heartbeat_follows_the_tasks_progress(words: list[str], tmp_path: Path) -> None:
    plan = planned(words, tmp_path / "out")
    beats: list[float] = []
    counts: list[int] = []

    def pause(_: float) -> bool:
        counts.append(len(beats))
        if len(counts) == 3:  # after a look without progress
            plan.report(plan.read_account(0)).write_text("[12, 1, false]")
        return len(counts) == 5

    list(progress._looks(plan, lambda: beats.append(1.0), pause))
    assert counts == [0, 0, 0, 1, 1]


def test_a_job_that_hangs_is_named_once(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(words, tmp_path / "out")
    looks = iter(range(3 * progress.STALLED))

    def pause(_: float) -> bool:
        look = next(looks, None)
        if look == progress.STALLED - 1:  # in time
            plan.report(plan.read_account(0)).write_text("[12, 1, false]")
        return look is None

    list(progress._looks(plan, lambda: None, pause))
    (line,) = capsys.readouterr().err.splitlines()
    assert "no task has made progress" in line


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS)
def test_a_terminal_shows_both_phases_to_their_end(root: Path, words: list[str], workers: int) -> None:
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (24, 100))
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline.prepare", *words, f"runner.workers={workers}"],
        cwd=root,
        stderr=end,
        stdout=subprocess.DEVNULL,
    )
    os.close(end)
    shown = b""
    while True:
        try:
            more = os.read(terminal, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not more:
            break
        shown += more
    os.close(terminal)
    assert process.wait() == 0
    lines = [part for part in plain(shown).replace("\n", "\r").split("\r") if part.strip()]
    reading = [line for line in lines if "reading" in line]
    writing = [line for line in lines if "writing" in line]
    assert lines == reading + writing
    assert all(len(line) <= 100 for line in lines)
    assert "100%" in reading[-1]
    assert f"{DOCUMENTS:,} documents" in reading[-1]
    assert re.search(r"100% 2 of 2 shards.* 2 of them whole", writing[-1])
