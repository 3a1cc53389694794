"""Signals to a rank, before and after there is a state to save; ranks that do nothing."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.distributed.environment import RANKS
from model.optim.average import AVERAGE, keep_average
from model.resilience import rank_record
from model.resilience.nonfinite import Health, clip_and_skip
from model.resilience.watchdog import STOPPING
from pipeline.errors import Exit

ROOT = Path(__file__).parents[3]
RANK = """
import os, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
from model.resilience.watchdog import Watchdog
guard = Watchdog(3, start_timeout=float(sys.argv[2]), limit=60.0, heartbeat=None)
if sys.argv[3] == "training":
    guard.training()
if int(sys.argv[1]):
    os.kill(os.getpid(), int(sys.argv[1]))
until = time.monotonic() + 20
while guard.signal is None and time.monotonic() < until:
    time.sleep(0.01)
print(guard.signal)
guard.close()
"""


def rank(number, start_timeout, state):
    words = [sys.executable, "-c", RANK, str(number), str(start_timeout), state]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_is_noted_where_there_is_a_state_to_save(number):
    done = rank(number, 60.0, "training")
    assert (done.returncode, done.stdout.strip()) == (0, number.name)


@pytest.mark.parametrize("number", STOPPING)
def test_before_that_it_ends_the_rank_which_asks_for_a_restart(number):
    done = rank(number, 60.0, "starting")
    assert done.returncode == Exit.RESTART
    assert f"rank 3: {number.name} " in done.stderr


def test_a_rank_that_does_nothing_shows_where_it_stands_and_leaves():
    done = rank(0, 0.5, "starting")
    assert done.returncode == Exit.RESTART
    assert "rank 3: no progress" in done.stderr
    assert 'File "<string>"' in done.stderr, "the trace of its threads"


STALLED = """
import os, time
from model.resilience import watchdog
watchdog.ALERT = 1.0
called = []
def leave(why):
    print(time.monotonic() - called[0], flush=True)
    os._exit(75)
watchdog.exit_for_restart = leave
guard = watchdog.Watchdog(1, start_timeout=60.0, limit=0.1, heartbeat=None)
guard.stalled = lambda: called.append(time.monotonic())
guard.training()
guard.beat()
time.sleep(60)
"""


def test_other_ranks_leave_rank_0_the_time_for_its_alert():
    """A launcher ends all ranks, and W&B's service with them, when the first one exits."""
    words = [sys.executable, "-c", STALLED]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.RESTART, done.stderr
    assert float(done.stdout) >= 1.0


# What ranks of one node leave in a folder for their launcher.


def test_of_many_ranks_with_one_error_one_says_it(tmp_path, monkeypatch):
    monkeypatch.setenv(RANKS, str(tmp_path))
    ready = threading.Barrier(8)
    said = []

    def rank():
        ready.wait()
        said.append(rank_record.is_first("error: data.dir=X: not found"))

    ranks = [threading.Thread(target=rank) for _ in range(8)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    assert sorted(said) == [False] * 7 + [True]
    assert rank_record.is_first("error: data.dir=Y: not found")


def test_without_a_launcher_every_rank_says_it(monkeypatch):
    monkeypatch.delenv(RANKS, raising=False)
    assert rank_record.is_first("error: x")
    assert rank_record.is_first("error: x")


def test_a_rank_whose_launcher_is_gone_says_it(tmp_path, monkeypatch):
    monkeypatch.setenv(RANKS, str(tmp_path / "gone"))
    assert rank_record.is_first("error: x")


def test_a_rank_that_torchrun_starts_again_has_no_exit_code(tmp_path, monkeypatch):
    monkeypatch.setenv(RANKS, str(tmp_path))
    monkeypatch.setenv("RANK", "1")
    rank_record.begin_rank()
    rank_record.end_rank(75)
    rank_record.begin_rank()  # the launcher passes signals only to ranks without a code
    assert [path.name for path in tmp_path.iterdir()] == ["rank-1.pid"]


# Updates that come to nothing: skipped by the optimizer, counted, reported.


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_leaves_weights_and_moments_alone(bad):
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    clip_and_skip(optimizer, 0.0)
    weight.grad = torch.ones(3)
    optimizer.step()
    before = weight.detach().clone()
    moments = [value.clone() for value in optimizer.state[weight].values()]
    weight.grad = torch.tensor([1.0, bad, 1.0])
    optimizer.step()
    assert optimizer.overflow
    assert torch.equal(weight, before)
    for old, new in zip(moments, optimizer.state[weight].values(), strict=True):
        assert torch.equal(old, new)
    weight.grad = torch.ones(3)
    optimizer.step()
    assert not optimizer.overflow
    assert not torch.equal(weight, before)


def test_an_update_that_is_skipped_leaves_the_average_alone():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    keep_average(optimizer, 0.5)
    clip_and_skip(optimizer, 0.0)
    averages = []
    for gradient in (1.0, 1.0, float("nan")):
        weight.grad = torch.full((3,), gradient)
        optimizer.step()
        averages.append(optimizer.state[weight][AVERAGE].clone())
    assert not torch.equal(averages[0], averages[1])
    assert torch.equal(averages[1], averages[2])


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 4))
def test_only_so_many_in_a_row_end_a_run(applied, limit):
    health = Health(limit)
    for step, good in enumerate(applied, start=1):
        said = health.record(good, step, 10 * (step - 1), 10)
        assert (said is None) == good
        row = applied[max(step - limit, 0) : step]
        assert health.limit_reached == (len(row) == limit and not any(row))


def test_the_diagnosis_names_steps_samples_and_where_the_state_is():
    health = Health(2)
    health.record(False, 1041, 10_400, 10)
    health.record(False, 1042, 10_410, 10)
    error = health.divergence_error("runs/step-1042")
    assert error.code == Exit.DIVERGED
    for part in ("steps 1,041 to 1,042", "samples 10,400 to 10,419", "runs/step-1042"):
        assert part in str(error)
