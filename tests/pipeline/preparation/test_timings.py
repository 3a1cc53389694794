"""The account of workers' time is whole, and names the code that runs."""

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import prepare
from pipeline.preparation import timings
from pipeline.stages import stage
from tests.support import preparing

TEXT = "He came at 5 p.m. to see Dr. Brown. Nobody was there, he said. " * 40


def busy(seconds: float) -> None:
    """Use this much processor time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


def test_all_time_of_the_thread_is_counted_and_of_no_other() -> None:
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


def test_an_error_in_a_step_ends_it() -> None:
    with timings.counted("exchange") as times:
        with pytest.raises(ValueError, match="bad"), timings.on("clean"):
            raise ValueError("bad")
        busy(0.05)
    assert times["exchange"][0] >= 0.05


def test_the_manifest_has_the_time_of_each_step_and_the_terminal_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preparing.vocabulary(tmp_path / "vocab", ["he", "came", "."])
    (tmp_path / "a.txt").write_text("\n\n".join(f"{TEXT}\n{TEXT} {number}" for number in range(40)))
    config = preparing.settings("text", tmp_path / "a.txt", tmp_path / "vocab", validation_share=0, pairs="none")
    made = stage.run("prepare", replace(config, out=str(tmp_path / "made")), prepare.make)
    assert {"read", "clean", "sentences", "tokenize", "pairs", "write"} <= made.spent.keys() <= set(timings.STEPS)
    assert all(used >= 0 and waited >= 0 for used, waited in made.spent.values())
    assert timings.line(made.spent) in capsys.readouterr().out


def test_the_time_of_tasks_is_added_up(tmp_path: Path) -> None:
    for number, times in enumerate(({"pairs": [1.0, 0.5]}, {"read": [2.0, 0.0], "pairs": [1.0, 0.25]})):
        (tmp_path / f"{number}.spent").write_text(json.dumps(times))
    found = timings.total(tmp_path.glob("*.spent"))
    assert list(found.items()) == [("read", [2.0, 0.0]), ("pairs", [2.0, 0.75])]
    assert timings.line(found) == "4.0 s of processor time: read 50%, pairs 50%; 0.8 s of waiting"
