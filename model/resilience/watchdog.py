"""Per-rank watchdog thread: signals, progress timeout, heartbeat.

A separate thread can act while the main thread is blocked in a collective operation.
"""

import faulthandler
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from model.resilience import rank_record
from pipeline.common.heartbeat import Heartbeat
from pipeline.console import terminal
from pipeline.errors import Exit, Restart

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
ALERT = 5.0  # seconds that an alert about a stall may take
LEAVING = 30.0  # seconds until a rank must exit when its peers are lost


class Watchdog:
    """Watchdog of one rank, from before the rendezvous until training is done.

    Until `training` is called, a signal ends the process at once: there is nothing to save. After
    that it is only recorded in `signal`, which the trainer polls.
    """

    def __init__(self, rank: int, start_timeout: float, limit: float, heartbeat: str | None):
        self.signal: str | None = None  # name of the first signal received
        self.stalled: Callable[[], None] = lambda: None  # called after `limit` without progress
        self._rank, self._limit, self._start_timeout = rank, limit, start_timeout
        self._training, self._closed = False, threading.Event()
        self._until = time.monotonic() + start_timeout
        self._heartbeat = Heartbeat(heartbeat, f"rank-{rank}")
        self._listen, self._tell = os.pipe()
        os.set_blocking(self._tell, False)
        signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _noted) for number in stop_signals()}
        self._thread = threading.Thread(target=self._watch, name="guard", daemon=True)
        self._thread.start()

    def starting(self) -> None:
        """Record progress before training: what remains has the whole time for a start again."""
        self._until = time.monotonic() + self._start_timeout
        self._heartbeat.beat()

    def training(self) -> None:
        """Record signals from now on instead of exiting: there is a state to save."""
        self._training = True

    def beat(self) -> None:
        """Record progress."""
        self._until = time.monotonic() + self._limit
        self._heartbeat.beat()

    def leaving(self) -> None:
        """Limit the time to exit, as the peers are lost."""
        self._limit = LEAVING
        self._until = time.monotonic() + self._limit

    def close(self) -> None:
        """Stop the thread and restore the signal handlers."""
        self._closed.set()
        os.write(self._tell, b"\0")
        self._thread.join()
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._listen)
        os.close(self._tell)
        self._heartbeat.close()

    def _watch(self) -> None:
        while True:
            left = self._until - time.monotonic()
            if left <= 0:
                faulthandler.dump_traceback(all_threads=True)
                # An alert, in a thread: it may hang as the rank does.
                alert = threading.Thread(target=self.stalled, daemon=True)
                alert.start()
                alert.join(ALERT)
                if self._rank and self._training:
                    # Rank 0 sends it; once a rank exits, a launcher ends the others.
                    time.sleep(ALERT)
                exit_for_restart(f"rank {self._rank}: no progress within the time limit")
            ready, _, _ = select.select([self._listen], [], [], min(left, 1.0))
            if ready:
                for number in os.read(self._listen, 64):
                    if number in STOPPING and self.signal is None:
                        self.signal = signal.Signals(number).name
                        if not self._training:
                            exit_for_restart(f"rank {self._rank}: {self.signal} before the first step")
            if self._closed.is_set():
                return
            if self.signal is None and rank_record.is_orphan():
                os.kill(os.getpid(), signal.SIGTERM)


def stop_signals() -> list[signal.Signals]:
    """Return the signals that stop training; without SIGHUP if ignored, as under `nohup`."""
    nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in STOPPING if not (nohup and number == signal.SIGHUP)]


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: the wakeup fd passes the signal to the watchdog thread."""


def exit_for_restart(why: str) -> NoReturn:
    """End this process now, to be started again, whatever its threads are doing."""
    terminal.tell(Restart(why))
    rank_record.end_rank(Exit.RESTART)
    os._exit(Exit.RESTART)
