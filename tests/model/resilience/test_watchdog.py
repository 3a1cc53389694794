"""Signals to a rank, before and after there is a state to save; ranks that do nothing."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


def rank(number: int, start_timeout: float, state: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", RANK, str(number), str(start_timeout), state]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_is_noted_where_there_is_a_state_to_save(number: signal.Signals) -> None:
    done = rank(number, 60.0, "training")
    assert (done.returncode, done.stdout.strip()) == (0, number.name)


@pytest.mark.parametrize("number", STOPPING)
def test_before_that_it_ends_the_rank_which_asks_for_a_restart(number: signal.Signals) -> None:
    done = rank(number, 60.0, "starting")
    assert done.returncode == Exit.RESTART
    assert f"rank 3: {number.name} " in done.stderr


def test_a_rank_that_does_nothing_shows_where_it_stands_and_leaves() -> None:
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


def test_other_ranks_leave_rank_0_the_time_for_its_alert() -> None:
    """A launcher ends all ranks, and W&B's service with them, when the first one exits."""
    words = [sys.executable, "-c", STALLED]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.RESTART, done.stderr
    assert float(done.stdout) >= 1.0
