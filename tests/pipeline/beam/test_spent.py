"""The account of workers' time is whole, and names the code that runs."""

import json
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import prepare
from pipeline.beam import spent
from pipeline.beam.spent import ELSEWHERE, sampled
from pipeline.stages import stage
from pipeline.text import sentences
from pipeline.tokenization.wordpiece import SPECIAL, build
from tests import preparing

TEXT = "He came at 5 p.m. to see Dr. Brown. Nobody was there, he said. " * 40


def busy(seconds: float) -> None:
    """Divide text into sentences for so much processor time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sentences.split_sentences(TEXT, "en")


def test_all_time_of_the_thread_is_accounted_for_and_no_other() -> None:
    other, over = threading.Thread(target=lambda: while_not(over)), threading.Event()
    other.start()
    before = time.thread_time(), time.monotonic()
    with sampled() as found:
        busy(0.8)
        time.sleep(0.3)
    used, clock = time.thread_time() - before[0], time.monotonic() - before[1]
    over.set()
    other.join()
    assert sum(times[0] for times in found.values()) == pytest.approx(used, abs=0.05)
    assert sum(sum(times) for times in found.values()) == pytest.approx(clock, abs=0.05)
    assert found["sentences"][0] > 0.3 * used  # looks are few here
    assert found[ELSEWHERE][1] >= 0.25


def while_not(over: threading.Event) -> None:
    """Compute in another thread, with pauses."""
    while not over.wait(0.001):
        sum(range(1000))


@pytest.mark.parametrize(("name", "step"), spent.STEPS.items())
def test_a_step_is_that_of_the_innermost_code_of_a_room(name: str, step: str) -> None:
    found, thread = list[str](), threading.get_ident()

    def look() -> None:
        looking = threading.Thread(target=lambda: found.append(spent.step_of(sys._current_frames()[thread])))
        looking.start()
        looking.join()

    inner = {"__name__": f"{name}.deep.within", "look": look}
    exec("def of_room(): look()", inner)
    exec("of_room()", {"__name__": "pipeline.tokenization.wordpiece", "of_room": inner["of_room"]})
    assert found == [step]


def test_the_manifest_has_the_time_of_each_step_and_the_terminal_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "vocab").mkdir()
    (tmp_path / "vocab" / "tokenizer.json").write_text(build([*SPECIAL, "he", "came", "."]))
    (tmp_path / "a.txt").write_text("\n\n".join(f"{TEXT}\n{TEXT} {number}" for number in range(40)))
    config = preparing.settings("text", tmp_path / "a.txt", tmp_path / "vocab", validation_share=0)
    made = stage.run("prepare", replace(config, out=str(tmp_path / "made")), prepare.make)
    assert made.spent
    assert made.spent.keys() <= set(spent.ORDER)
    assert all(used >= 0 and waited >= 0 for used, waited in made.spent.values())
    assert spent.line(made.spent) in capsys.readouterr().out


def test_the_time_of_tasks_is_added_up(tmp_path: Path) -> None:
    for number, times in enumerate(({"pairs": [1.0, 0.5]}, {"read": [2.0, 0.0], "pairs": [1.0, 0.25]})):
        (tmp_path / f"{number}.spent").write_text(json.dumps(times))
    found = spent.total(tmp_path.glob("*.spent"))
    assert list(found.items()) == [("read", [2.0, 0.0]), ("pairs", [2.0, 0.75])]
    assert spent.line(found) == "4.0 s of processor time: read 50%, pairs 50%; 0.8 s of waiting"
