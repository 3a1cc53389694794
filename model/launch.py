"""`python -m model.launch deepspeed … model/train.py …`: the first process of a training container.

It runs a launcher (deepspeed, torchrun, or plain Python) and does what these do not: it passes
SIGTERM on to the ranks alone, so that they save and nobody kills them after 30 seconds; it ends
ranks that their launcher left behind; and it says with one exit code, the same for all launchers,
what became of the ranks of this node (`pipeline.common.errors.Exit`).
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from pipeline.common.atomic import atomic_path
from pipeline.common.errors import Exit

RANKS = "TRAIN_RANKS"  # environment: folder where this node's ranks leave their ids and exit codes
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
POLL = 0.1  # seconds
ORPHANED = 300.0  # seconds that ranks without a launcher have for saving
_SET_CHILD_SUBREAPER = 36  # prctl: orphans below this process become its children


def begin_rank() -> None:
    """Tell `launch` of this rank, where it is the launcher's parent."""
    if RANKS in os.environ:
        _leave("pid", os.getpid())


def end_rank(code: int) -> None:
    """Tell `launch` how this rank ended."""
    if RANKS in os.environ:
        _leave("code", code)


def _leave(kind: str, number: int) -> None:
    path = Path(os.environ[RANKS], f"rank-{os.environ.get('RANK', '0')}.{kind}")
    with atomic_path(path) as temporary:
        temporary.write_text(str(number))


def verdict(launcher: int, pids: dict[str, int], codes: dict[str, int]) -> int:
    """One exit code from the launcher's (negative: a signal) and those that the ranks left.

    A rank without one was killed. What a person must look at outweighs what a restart mends.
    """
    if not pids:
        return launcher if launcher > 0 else Exit.RESTART
    for code in (Exit.USER, Exit.DIVERGED, Exit.BUG):
        if code in codes.values():
            return code
    done = launcher == 0 and all(codes.get(rank) == Exit.DONE for rank in pids)
    return Exit.DONE if done else Exit.RESTART


@dataclass
class Launch:
    """A launcher and the ranks below it."""

    command: list[str]
    ranks: Path  # folder, empty at first
    launcher: int | None = None  # its exit code, when it has ended
    told: list[int] = field(default_factory=list)  # signals that came
    passed: dict[int, int] = field(default_factory=dict)  # rank's pid -> how many it was told of

    def run(self) -> int:
        """Start the launcher, and wait until nothing below it is left; the exit code."""
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in FORWARDED:
            signal.signal(number, self._hear)
        child = subprocess.Popen(
            self.command, env={**os.environ, RANKS: str(self.ranks)}, start_new_session=True
        )
        until = float("inf")
        while self._reap(child.pid):
            alive = self._alive()
            if self.launcher is not None:
                until = min(until, time.monotonic() + ORPHANED)
                if not alive:
                    break
            if time.monotonic() > until:
                self.told.append(signal.SIGKILL)
            if self.told or self.launcher is not None:
                self._pass_on(child.pid, alive)
            time.sleep(POLL)
        _signal_group(child.pid, signal.SIGKILL)  # helpers that nobody needs any more
        child.returncode = self.launcher
        assert self.launcher is not None
        return verdict(self.launcher, self._read("pid"), self._read("code"))

    def killed(self) -> list[str]:
        """The ranks that ended without a word."""
        return sorted(self._read("pid").keys() - self._read("code").keys())

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.told.append(number)

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
        if not self.told:
            self.told.append(signal.SIGTERM)
        if not ranks and not self.passed:
            _signal_group(launcher, signal.SIGTERM)  # nothing to save yet
        for pid in ranks:
            for number in self.told[self.passed.get(pid, 0) :]:
                _signal(pid, number)
            self.passed[pid] = len(self.told)

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


def main() -> NoReturn:
    """The command."""
    if sys.argv[1:2] in (["--help"], ["-h"]):
        print(__doc__, end="")
        sys.exit(Exit.DONE)
    if len(sys.argv) < 2:
        print(
            "error: no command; add one: python -m model.launch deepspeed model/train.py …",
            file=sys.stderr,
        )
        sys.exit(Exit.USER)
    with tempfile.TemporaryDirectory(prefix="train-ranks-") as folder:
        launch = Launch(sys.argv[1:], Path(folder))
        code = launch.run()
        lost = "".join(f"{rank} was killed (memory?); " for rank in launch.killed())
    if code == Exit.RESTART:
        told = f"restart: {lost}start the same command again; it goes on"
        print(told, file=sys.stderr, flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
