"""Two phases as one run: schedule, optimizer and batch size go on where they were."""

from itertools import pairwise

import pytest

from pipeline.records.checkpoint_folder import locate
from tests.model.conftest import SMALL, losses, rows, train_many

pytestmark = pytest.mark.slow

SHARED = ("schedule.warmup_share=0.1", "schedule.total_steps=20", "evaluate_every=100")

LAMB = ("optimizer=lamb", "optimizer.learning_rate=2e-2")
GOES_ON = {"zero0": 1, "zero1": 2, "zero3": 2, "zero2_offload": 2, "zero3_offload": 1}


@pytest.fixture(scope="module")
def runs(work, tmp_path_factory):
    folder = tmp_path_factory.mktemp("phases")

    def run(name, *settings):
        return [f"workdir={work}", f"out={folder / name}", *SMALL, *settings]

    second = ("steps=8", "schedule.first_step=12", f"start={folder / 'first'}", *SHARED)
    after = ("steps=6", "schedule.first_step=6", f"start={folder / 'lamb'}", "start_optimizer=true", *SHARED)
    ramp = ("steps=10", "schedule.first_batch=3", "schedule.batch_share=0.5", "save_every=4")
    train_many(
        [
            (2, run("first", "steps=12", "deepspeed=zero3", *SHARED)),
            (1, run("weights", "deepspeed=zero1", *second)),
            (2, run("state", "deepspeed=zero2", "start_optimizer=true", *second)),
            (2, run("ramp-2", "deepspeed=zero2", *ramp)),
            (1, run("ramp-1", "deepspeed=zero0", *ramp)),
            (2, run("lamb", "deepspeed=zero2", *LAMB, "steps=6", *SHARED)),
            *(
                (processes, run(f"lamb-{name}", f"deepspeed={name}", *LAMB, *after))
                for name, processes in GOES_ON.items()
            ),
        ]
    )
    return {path.name: path for path in folder.iterdir()}


def test_the_rate_goes_on_where_the_first_phase_ended(runs):
    rates = [row["learning_rate"] for name in ("first", "state") for row in rows(runs[name])]
    assert (len(rates), rates[1]) == (20, 1e-2)
    falls = [early - late for early, late in pairwise(rates[2:])]
    assert falls == pytest.approx([1e-2 / 18] * 17)


def test_the_optimizers_state_comes_along(runs):
    state, weights = (losses(runs[name]) for name in ("state", "weights"))
    assert state[0] == pytest.approx(weights[0], abs=1e-4)  # the same weights see it
    assert abs(state[-1] - weights[-1]) > 1e-3
    _, saved = locate(runs["state"])
    assert (saved.step, saved.carried, saved.updates) == (8, 12, 20)


def test_a_rising_batch_is_the_same_on_two_processes(runs):
    samples = [row["samples"] for row in rows(runs["ramp-1"])]
    assert samples[:3] == [3, 8, 15]
    assert [late - early for early, late in pairwise(samples[5:])] == [12] * 4
    assert losses(runs["ramp-2"]) == pytest.approx(losses(runs["ramp-1"]), abs=1e-4)


@pytest.mark.parametrize("how", list(GOES_ON)[1:])
def test_lamb_goes_on_at_any_stage_offloaded_or_not(runs, how):
    assert losses(runs[f"lamb-{how}"]) == pytest.approx(losses(runs["lamb-zero0"]), abs=1e-4)
