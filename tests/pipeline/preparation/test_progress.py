"""The bar moves within a file and with the shards, and ends where the job does."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
import termios
import threading
import time
from dataclasses import replace

import pytest

from pipeline import prepare
from pipeline.beam import steps
from pipeline.config import RunnerConfig
from pipeline.preparation import estimate, progress, timings
from pipeline.preparation.plan import make_plan
from pipeline.preparation.shuffle import ShuffleLayout
from pipeline.readers import FileRange
from pipeline.stages import stage
from tests.support import preparing
from tests.support.examples import WORKERS
from tests.support.runs import configured
from tests.support.terminal import plain

DOCUMENTS = 6000


@pytest.fixture
def words(tmp_path):
    """Return the words of a command line for a corpus of one file."""
    preparing.vocabulary(tmp_path, ["words", "."])
    (tmp_path / "a.txt").write_text("\n\n".join(f"Words {n}.\nMore words." for n in range(DOCUMENTS)))
    return shlex.split(
        f"+corpus=lines corpus.path={tmp_path}/a.txt vocab={tmp_path} out={tmp_path}/out "
        "minimum_characters=0 validation_share=0.5 duplicates=3 runner.task_bytes=1"
    )


def planned(words, out):
    plan = make_plan(configured("prepare", *words), out)
    plan.scratch.mkdir(parents=True)
    return plan


def test_tasks_say_how_far_they_are(words, tmp_path, monkeypatch):
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


def test_a_heartbeat_follows_the_tasks_progress(words, tmp_path):
    plan = planned(words, tmp_path / "out")
    beats = []
    counts = []

    def pause(_):
        counts.append(len(beats))
        if len(counts) == 3:  # after a look without progress
            plan.report(plan.read_account(0)).write_text("[12, 1, false]")
        return len(counts) == 5

    list(progress._looks(plan, lambda: beats.append(1.0), pause))
    assert counts == [0, 0, 0, 1, 1]


def test_a_job_that_hangs_is_named_once(words, tmp_path, capsys):
    plan = planned(words, tmp_path / "out")
    looks = iter(range(3 * progress.STALLED))

    def pause(_):
        look = next(looks, None)
        if look == progress.STALLED - 1:  # in time
            plan.report(plan.read_account(0)).write_text("[12, 1, false]")
        return look is None

    list(progress._looks(plan, lambda: None, pause))
    (line,) = capsys.readouterr().err.splitlines()
    assert "no task has made progress" in line


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS)
def test_a_terminal_shows_both_phases_to_their_end(root, words, workers):
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (24, 100))
    words = [sys.executable, "-m", "pipeline.prepare", *words, f"runner.workers={workers}"]
    process = subprocess.Popen(words, cwd=root, stderr=end, stdout=subprocess.DEVNULL)
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


# The account of workers' time is whole, and names the code that runs.


TEXT = "He came at 5 p.m. to see Dr. Brown. Nobody was there, he said. " * 40


def busy(seconds):
    """Use this much processor time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


def test_all_time_of_the_thread_is_counted_and_of_no_other():
    other = threading.Thread(target=busy, args=(0.3,))
    outer = time.monotonic()
    before = time.thread_time()
    with timings.counted("exchange") as times:
        inner = time.monotonic()
        other.start()
        with timings.on("clean"):
            busy(0.1)
        busy(0.05)
        with timings.on("read"):
            time.sleep(0.2)
            with timings.on("write"):
                busy(0.15)
        other.join()
        inner = time.monotonic() - inner
    used, outer = time.thread_time() - before, time.monotonic() - outer
    assert sum(each[0] for each in times.values()) == pytest.approx(used, abs=0.01)
    assert inner <= sum(sum(each) for each in times.values()) <= outer
    for step, least in {"clean": 0.1, "exchange": 0.05, "write": 0.15}.items():
        assert least <= times[step][0] < least + 0.03
    assert times["read"][0] < 0.03
    assert times["read"][1] >= 0.19


def test_an_error_in_a_step_ends_it():
    with timings.counted("exchange") as times:
        with pytest.raises(ValueError, match="bad"), timings.on("clean"):
            raise ValueError("bad")
        busy(0.05)
    assert times["exchange"][0] >= 0.05


def test_the_manifest_has_the_time_of_each_step_and_the_terminal_says_it(tmp_path, capsys):
    preparing.vocabulary(tmp_path / "vocab", ["he", "came", "."])
    (tmp_path / "a.txt").write_text("\n\n".join(f"{TEXT}\n{TEXT} {number}" for number in range(40)))
    config = preparing.settings("text", tmp_path / "a.txt", tmp_path / "vocab", validation_share=0, pairs="none")
    made = stage.run("prepare", replace(config, out=str(tmp_path / "made")), prepare.make)
    assert {"read", "clean", "sentences", "tokenize", "pairs", "write"} <= made.spent.keys() <= set(timings.STEPS)
    assert all(used >= 0 and waited >= 0 for used, waited in made.spent.values())
    assert timings.line(made.spent) in capsys.readouterr().out


def test_the_time_of_tasks_is_added_up(tmp_path):
    for number, times in enumerate(({"pairs": [1.0, 0.5]}, {"read": [2.0, 0.0], "pairs": [1.0, 0.25]})):
        (tmp_path / f"{number}.spent").write_text(json.dumps(times))
    found = timings.total(tmp_path.glob("*.spent"))
    assert list(found.items()) == [("read", [2.0, 0.0]), ("pairs", [2.0, 0.75])]
    assert timings.line(found) == "4.0 s of processor time: read 50%, pairs 50%; 0.8 s of waiting"


# `dry_run=true` prints the layout that the job would use, and writes nothing.


def config(folder, **more):
    places = {"out": str(folder / "out"), "workdir": str(folder), "dry_run": True, "runner": RunnerConfig(**more)}
    return preparing.settings("lines", folder / "a.txt", folder / "no-vocabulary-yet", **places)


def row(said, name):
    found = re.search(rf"^  {name} +(.*)$", said, re.M)
    assert found is not None, said
    return found[1]


@pytest.mark.parametrize(("exchange", "carrier"), [("files", "files in out"), ("engine", "engine")])
def test_the_plan_is_printed_and_nothing_written(tmp_path, capsys, exchange, carrier):
    (tmp_path / "a.txt").write_text("\n\n".join(f"Words {n}.\nMore of them." for n in range(9000)))
    there = set(tmp_path.iterdir())
    given = config(tmp_path, exchange=exchange)
    given.split_bytes = given.shard_bytes = 50_000
    prepare.execute(given)
    said = capsys.readouterr().out
    assert "estimate" in said
    assert row(said, "splits") == "5, read in 1 tasks"
    assert row(said, "shards") == "6, written in 1 tasks"
    assert carrier in row(said, "exchange")
    assert ("engine" in row(said, "disk"), set(tmp_path.iterdir())) == (exchange == "engine", there)


@pytest.mark.slow
def test_a_large_corpus_needs_no_more_memory_per_worker(tmp_path):
    """1 TB and 10 TB, of which this machine has nothing to measure."""
    rows = {}
    for count in (15_000, 150_000):
        splits = [FileRange(str(tmp_path / "none"), k << 26, (k + 1) << 26) for k in range(count)]
        layout = ShuffleLayout.choose(count, count, count << 26, RunnerConfig().task_bytes)
        rows[count] = "\n".join(estimate.describe_plan(config(tmp_path), splits, layout))
    assert row(rows[15_000], "memory") == row(rows[150_000], "memory")
    assert "merged in" in row(rows[15_000], "exchange")
    hours = [int(re.findall(r" 1: (\d+) h", row(said, "time"))[0]) for said in rows.values()]
    assert 9 < hours[1] / hours[0] < 11
