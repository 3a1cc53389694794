"""Schedules rise, fall and end where they should, also when two runs share one."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.config import ObjectiveConfig, ScheduleConfig, TrainConfig
from model.training.schedule import Schedule, share_at
from pipeline.cli import conf_files
from pipeline.errors import ConfigError

NAMES = conf_files.choices("schedule")
schedules = st.builds(
    ScheduleConfig,
    name=st.sampled_from(NAMES),
    warmup_share=st.floats(0, 1),
    final_share=st.floats(0, 1),
    power=st.floats(0.2, 3),
    decay_share=st.floats(0, 1),
    decay=st.sampled_from(["power", "sqrt"]),
)


@given(schedules, st.integers(1, 300))
def test_a_rate_is_a_share_that_rises_once_and_never_rises_again(schedule, steps):
    shares = [Schedule(schedule, steps).lr_factor(step) for step in range(steps)]
    assert all(0 <= share <= 1 for share in shares)
    assert shares[0] > 0
    peak = shares.index(max(shares))
    assert shares[: peak + 1] == sorted(shares[: peak + 1])
    assert shares[peak:] == sorted(shares[peak:], reverse=True)


@pytest.mark.parametrize(
    ("name", "half"), [("linear", 0.55), ("cosine", 0.55), ("constant", 1), ("polynomial", 0.325), ("wsd", 1)]
)
def test_half_way_down_stands_what_the_formula_says(name, half):
    schedule = ScheduleConfig(name=name, warmup_share=0.1, final_share=0.1, power=2)
    assert Schedule(schedule, 1000).lr_factor(99) == 1
    assert Schedule(schedule, 1000).lr_factor(550) == pytest.approx(half)


def test_wsd_is_stable_and_then_decays():
    schedule = ScheduleConfig(name="wsd", warmup_share=0.1, decay_share=0.2)
    shares = [Schedule(schedule, 100).lr_factor(step) for step in range(100)]
    assert set(shares[9:81]) == {1.0}
    assert shares[90] == pytest.approx(0.5)
    assert shares[99] == pytest.approx(0.05)


@given(schedules, st.integers(1, 100), st.integers(1, 100))
def test_two_phases_follow_one_schedule(schedule, first, second):
    total = first + second
    whole = [Schedule(schedule, total).lr_factor(step) for step in range(total)]
    schedule.total_steps = total
    phases = [Schedule(schedule, first).lr_factor(step) for step in range(first)]
    schedule.first_step = first
    phases += [Schedule(schedule, second).lr_factor(step) for step in range(second)]
    assert phases == whole
    schedule = ScheduleConfig(name="wsd", warmup_share=0.5, spread_steps=100, total_steps=1000)
    assert Schedule(TrainConfig(steps=80, schedule=schedule).schedule, 80).warmup_steps == 50, "of the first steps"


@given(st.integers(1, 64), st.integers(0, 500), st.floats(0, 1), st.integers(1, 80))
def test_a_batch_rises_from_the_first_size_to_the_full_one(first, more, share, steps):
    schedule = ScheduleConfig(name="constant", first_batch=first, batch_share=share)
    sizes = [Schedule(schedule, steps, first + more).batch_size(step) for step in range(steps + 1)]
    assert sizes == sorted(sizes)
    assert sizes[0] == (first if share * steps else first + more)
    assert sizes[-1] == first + more
    rises = [late - early for early, late in pairwise(sizes)]
    assert max(rises) - more / max(share * steps, 1) <= 1


@pytest.mark.parametrize("schedule", [{"first_step": 50, "total_steps": 149}, {"first_batch": 257}])
def test_a_run_must_fit_into_its_schedule(schedule):
    with pytest.raises(ConfigError, match=r"schedule\.(total_steps=149|first_batch=257)"):
        TrainConfig(steps=100, schedule=ScheduleConfig(name="linear", **schedule))


def test_a_decay_by_the_root_falls_fast_at_first():
    schedule = ScheduleConfig(name="wsd", decay="sqrt", decay_share=0.4, warmup_share=0.1)
    assert Schedule(schedule, 1000).lr_factor(600) == 1
    assert Schedule(schedule, 1000).lr_factor(700) == pytest.approx(0.5)  # a quarter of the decay
    assert Schedule(schedule, 1000).lr_factor(999) == pytest.approx(1 - (399 / 400) ** 0.5)


@pytest.mark.parametrize("beyond", [0, 1])
def test_batches_follow_each_other_up_to_the_last_step_or_the_end_of_the_text(beyond):
    schedule = Schedule(ScheduleConfig(name="constant", first_batch=2, batch_share=1.0), 9, 12)
    sizes = [schedule.batch_size(step) for step in range(9)]
    every = [(step, sum(sizes[:step]), sizes[step]) for step in range(2, 9)]
    assert list(schedule.batches(2, sum(sizes[:2]), 10**6)) == every
    assert list(schedule.batches(2, sum(sizes[:2]), sum(sizes[:6]) - beyond)) == every[: 4 - beyond]


def test_a_share_moves_in_straight_lines_from_the_first_step_to_the_last():
    down = ObjectiveConfig(name="test", mask_share=[0.3, 0.15]).mask_shares
    assert [share_at(down, step, 4) for step in range(4)] == pytest.approx([0.3, 0.25, 0.2, 0.15])
    bent = ObjectiveConfig(name="test", mask_share=[0.2, 0.4, 0.1]).mask_shares
    found = [share_at(bent, step, 5) for step in range(5)]
    assert found == pytest.approx([0.2, 0.3, 0.4, 0.25, 0.1])
    assert share_at(ObjectiveConfig(name="test", mask_share=0.3).mask_shares, 7, 9) == 0.3
    assert share_at(down, 0, 1) == 0.3
