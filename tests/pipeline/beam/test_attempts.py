"""Engines run a task again where they believe its worker dead: attempts at once do no harm."""

import multiprocessing
import shlex
from pathlib import Path

import pytest

from pipeline.beam import steps
from pipeline.preparation import timings
from pipeline.preparation.plan import PreparePlan, make_plan, unpack
from pipeline.preparation.shuffle import ENDING
from tests.support.preparing import vocabulary
from tests.support.runs import configured

PROCESSES, ATTEMPTS = 4, 15


@pytest.fixture
def plan(tmp_path: Path) -> PreparePlan:
    """Return the plan for a corpus of one split and one bucket."""
    pytest.importorskip("rensa")
    vocabulary(tmp_path / "vocab", ["words", "."])
    (tmp_path / "a.txt").write_text("\n\n".join(f"Words {n}.\nMore words." for n in range(500)))
    words = shlex.split(
        f"+corpus=lines corpus.path={tmp_path}/a.txt vocab={tmp_path}/vocab out={tmp_path}/out "
        "minimum_characters=0 validation_share=0 filters.near_duplicates=0.9"
    )
    work = make_plan(configured("prepare", *words), tmp_path / "out")
    work.scratch.mkdir(parents=True)
    work.claim()
    return work


def attempt(plan: PreparePlan, packet: bytes, times: int) -> None:
    """Run every task of the plan, as a worker does."""
    tokenize, (element,) = steps.Tokenize(plan), unpack(packet)
    tokenize.setup()
    for _ in range(times):
        left = [each for each in tokenize.process(element) if isinstance(each, tuple)]
        assert [task for task, _ in left] == [0]
        list(steps.WriteShards(plan).process((0, [part for _, part in left])))


def content(plan: PreparePlan) -> dict[str, bytes]:
    files = [*Path(plan.out).glob("*.arrow"), *plan.scratch.iterdir()]
    shown = [
        path
        for path in files
        if not path.name.startswith(".") and path.suffix not in (".progress", ENDING, timings.ENDING)
    ]
    return {path.name: path.read_bytes() for path in shown}


@pytest.mark.slow
def test_attempts_at_once_never_show_a_reader_other_bytes(plan: PreparePlan) -> None:
    (packet,) = plan.packets()
    attempt(plan, packet, 1)
    expected = content(plan)
    assert {"train-00000-of-00001.arrow", "read-00000.json"} < set(expected)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=attempt, args=(plan, packet, ATTEMPTS)) for _ in range(PROCESSES)]
    for worker in workers:
        worker.start()
    looks = 0
    try:
        while any(worker.is_alive() for worker in workers):
            assert content(plan) == expected
            looks += 1
    finally:
        for worker in workers:
            worker.join()
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    assert looks > 10
    left = [path.name for path in (*plan.scratch.iterdir(), *Path(plan.out).iterdir())]
    assert not [name for name in left if name.endswith(".tmp")]
