"""A launcher (deepspeed, torchrun or plain Python) on this machine and its ranks."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from model.launching import rank_endings
from model.resilience import rank_record
from model.resilience.watchdog import stop_signals
from pipeline.errors import ConfigError, Exit

POLL = 0.1  # seconds
ORPHANED = 300.0  # seconds that ranks have to save after their launcher ended
ALONE = 1.0  # seconds that a launcher has to end by itself: a scheduler signals all processes of a job
_SET_CHILD_SUBREAPER = 36  # prctl: orphaned descendants become children of this process


def verdict(launcher: int, pids: dict[str, int], codes: dict[str, int]) -> int:
    """Merge the exit codes of the launcher (negative: a signal) and the ranks.

    A rank without an exit code was killed.
    """
    if not pids:
        return launcher if launcher > 0 else Exit.RESTART
    return merge([codes.get(rank, Exit.RESTART) for rank in pids] + [Exit.RESTART] * (launcher != 0))


def merge(codes: Iterable[int]) -> int:
    """Merge the exit codes of ranks or hosts; faults that a rerun cannot fix take precedence."""
    distinct = set(codes)
    for code in (Exit.USER, Exit.DIVERGED, Exit.BUG):
        if code in distinct:
            return code
    return Exit.DONE if distinct == {Exit.DONE} else Exit.RESTART


@dataclass
class Launch:
    """A launcher and its ranks."""

    command: list[str]
    ranks: Path  # folder, empty at first
    environment: dict[str, str] = field(default_factory=dict)  # that the launcher gets too
    launcher: int | None = None  # its exit code, when it has ended
    signals: list[int] = field(default_factory=list)  # signals that came
    running: list[int] = field(default_factory=list)  # pids of the ranks when the first signal came
    passed: dict[int, int] = field(default_factory=dict)  # pid -> number of signals passed on
    seen: float = float("inf")  # when the first signal was
    orphaned: bool = False  # the launcher ended first, and the signals are our own
    oom_before: dict[str, int] = field(default_factory=rank_endings.oom_kills)

    def run(self) -> int:
        """Run the launcher until all its descendants have ended; return the exit code."""
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        note_signals(self.signals)
        try:
            child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment, **rank_record.variables(self.ranks)},
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(
                f"cannot be started ({error.strerror}); begin with deepspeed or torchrun, in an active .venv",
                path=self.command[0],
            ) from error
        until = float("inf")
        while self._reap(child.pid):
            alive = self._alive()
            if not self.signals:
                self.running = alive
            if self.launcher is not None:
                until = min(until, time.monotonic() + ORPHANED)
                if not alive:
                    break
            if time.monotonic() > until:
                self.signals.append(signal.SIGKILL)
            if self.signals or self.launcher is not None:
                self._pass_on(child.pid, alive)
            time.sleep(POLL)
        _signal(-child.pid, signal.SIGKILL)  # leftover helper processes
        child.returncode = self.launcher
        assert self.launcher is not None
        return verdict(self.launcher, self._read("pid"), self._read("code"))

    def lost(self) -> str:
        """Return what became of the ranks that left no exit code; nothing if all of them did."""
        pids = self._read("pid")
        ranks = sorted(pids.keys() - self._read("code").keys())
        by_signals = not self.orphaned and {pids[rank] for rank in ranks} <= {*self.running, *self.passed}
        return rank_endings.describe(self.oom_before, ranks, self.signals if by_signals else [], self.launcher)

    def _reap(self, launcher: int) -> bool:
        """Reap ended processes; return whether any are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == launcher:
                self.launcher = os.waitstatus_to_exitcode(status)
            if pid == 0:
                return True

    def _alive(self) -> list[int]:
        """Return the process ids of the running ranks."""
        ended = self._read("code")
        return [pid for rank, pid in self._read("pid").items() if rank not in ended and rank_record.is_running(pid)]

    def _pass_on(self, launcher: int, ranks: list[int]) -> None:
        """Tell the ranks what came; those that outlive their launcher, to save and leave."""
        if not self.signals:
            self.orphaned = True
            self.signals.append(signal.SIGTERM)
        self.seen = min(self.seen, time.monotonic())
        if not ranks and not self.passed.keys() - {launcher}:
            if len(self.signals) == 1 and time.monotonic() < self.seen + ALONE:
                return
            # Nothing to save yet. Once for each signal: a launcher that ends others by a command
            # would start that command again.
            if self.passed.get(launcher, 0) < len(self.signals):
                _signal(-launcher, signal.SIGTERM)
            self.passed[launcher] = len(self.signals)
        for pid in ranks:
            for number in self.signals[self.passed.get(pid, 0) :]:
                _signal(pid, number)
            self.passed[pid] = len(self.signals)

    def _read(self, kind: str) -> dict[str, int]:
        numbers = {}
        for path in self.ranks.glob(f"*.{kind}"):
            with contextlib.suppress(OSError, ValueError):  # torchrun starts a rank again, which removes its code
                numbers[path.stem] = int(path.read_text())
        return numbers


def note_signals(into: list[int]) -> None:
    """Append the signals that stop training to a list as they come, and do nothing else."""
    for number in stop_signals():
        signal.signal(number, lambda number, frame: into.append(number))


def _signal(pid: int, number: int) -> None:
    """Signal a process, or the group of a negative one, if it exists."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
