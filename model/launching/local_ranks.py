"""A launcher (deepspeed, torchrun or plain Python) on this machine, and the ranks below it."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from model.launching.rank_endings import Endings
from model.resilience.rank_record import RANKS
from model.resilience.watchdog import heard
from pipeline.common.errors import Exit

POLL = 0.1  # seconds
ORPHANED = 300.0  # seconds that ranks without a launcher have for saving
_SET_CHILD_SUBREAPER = 36  # prctl: orphans below this process become its children


def verdict(launcher: int, pids: dict[str, int], codes: dict[str, int]) -> int:
    """One exit code from the launcher's (negative: a signal) and those that the ranks left.

    A rank without one was killed.
    """
    if not pids:
        return launcher if launcher > 0 else Exit.RESTART
    if launcher != 0:
        return merge([*codes.values(), Exit.RESTART])
    return merge([codes.get(rank, Exit.RESTART) for rank in pids])


def merge(codes: Iterable[int]) -> int:
    """One exit code from those of ranks or of hosts.

    What a person must look at outweighs what a restart mends.
    """
    found = set(codes)
    for code in (Exit.USER, Exit.DIVERGED, Exit.BUG):
        if code in found:
            return code
    return Exit.DONE if found == {Exit.DONE} else Exit.RESTART


@dataclass
class Launch:
    """A launcher and the ranks below it."""

    command: list[str]
    ranks: Path  # folder, empty at first
    environment: dict[str, str] = field(default_factory=dict)  # that the launcher gets too
    launcher: int | None = None  # its exit code, when it has ended
    signals: list[int] = field(default_factory=list)  # signals that came
    passed: dict[int, int] = field(default_factory=dict)  # pid -> how many it was told of
    orphaned: bool = False  # the launcher ended first, and the signals are our own
    endings: Endings = field(default_factory=Endings)

    def run(self) -> int:
        """Start the launcher, and wait until nothing below it is left; the exit code."""
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in heard():
            signal.signal(number, self._hear)
        child = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self.environment, RANKS: str(self.ranks)},
            start_new_session=True,
        )
        until = float("inf")
        while self._reap(child.pid):
            alive = self._alive()
            if self.launcher is not None:
                until = min(until, time.monotonic() + ORPHANED)
                if not alive:
                    break
            if time.monotonic() > until:
                self.signals.append(signal.SIGKILL)
            if self.signals or self.launcher is not None:
                self._pass_on(child.pid, alive)
            time.sleep(POLL)
        _signal_group(child.pid, signal.SIGKILL)  # helpers that nobody needs any more
        child.returncode = self.launcher
        assert self.launcher is not None
        return verdict(self.launcher, self._read("pid"), self._read("code"))

    def lost(self) -> str:
        """Return what became of the ranks that left no exit code; nothing if all of them did."""
        ranks = sorted(self._read("pid").keys() - self._read("code").keys())
        return self.endings.describe(ranks, [] if self.orphaned else self.signals, self.launcher)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)

    def _reap(self, launcher: int) -> bool:
        """Take the exit codes of all that ended; whether anything is left."""
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
        """The ranks that have begun and not ended."""
        ended = self._read("code")
        ranks = [pid for rank, pid in self._read("pid").items() if rank not in ended]
        return [pid for pid in ranks if _signal(pid, 0)]

    def _pass_on(self, launcher: int, ranks: list[int]) -> None:
        """Tell the ranks what came; those that outlive their launcher, to save and leave."""
        if not self.signals:
            self.orphaned = True
            self.signals.append(signal.SIGTERM)
        if not ranks and not self.passed.keys() - {launcher}:
            # Nothing to save yet. Once for each signal: a launcher that ends others by a command
            # would start that command again.
            if self.passed.get(launcher, 0) < len(self.signals):
                _signal_group(launcher, signal.SIGTERM)
            self.passed[launcher] = len(self.signals)
        for pid in ranks:
            for number in self.signals[self.passed.get(pid, 0) :]:
                _signal(pid, number)
            self.passed[pid] = len(self.signals)

    def _read(self, kind: str) -> dict[str, int]:
        return {path.stem: int(path.read_text()) for path in self.ranks.glob(f"*.{kind}")}


def _signal(pid: int, number: int) -> bool:
    """Signal a process; False where there is none."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return
