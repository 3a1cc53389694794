"""Runs the stages of a graph as local processes, side by side where cores allow."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from pipeline.common import screen
from pipeline.common.errors import Diverged, Exit, InputError, Restart, UserError
from pipeline.common.formatting import duration
from pipeline.common.manifest import Manifest
from pipeline.orchestration.graph import Node
from pipeline.stages.registry import STAGES

LAUNCHER = re.compile(r"\[\d{4}-\d\d-\d\d [^]]*\] \[[A-Z]+\]")  # DeepSpeed's lines
ENDING = re.compile(r"saved after step [\d,]*\d|rank-\d+ was killed[^;]*|SIG\w+ before[^;]*")
GRACE = 300.0  # seconds between SIGTERM and SIGKILL: training saves in them


class StageFailed(Exception):
    """A stage ended with an error that is not the user's; the message names its log."""


class Executor(Protocol):
    """Runs the stages of a graph that have to run, and ends when all are done."""

    def run(self, nodes: list[Node]) -> None:
        """Run them; `UserError` or `StageFailed` says which one failed and why."""


def announce_done(nodes: list[Node]) -> None:
    """One line for each stage that does not have to run."""
    width = max(len(node.name) for node in nodes)
    for node in nodes:
        if node.reason is None:
            manifest = Manifest.read(node.out)
            assert manifest is not None
            screen.say(f"{node.name:<{width}}  done before  {manifest.summary}")


@dataclass
class Running:
    """A stage's process."""

    node: Node
    process: subprocess.Popen[bytes]
    log: Path
    file: IO[bytes]
    cores: int
    began: float = field(default_factory=time.monotonic)


class LocalExecutor:
    """Stages as child processes, each in a process group and a log file of its own."""

    def __init__(self, workdir: Path, cores: int, processes: int | None):
        self.logs, self.cores, self.processes = workdir / "logs", cores, processes
        self.running: list[Running] = []
        self.live = sys.stdout.isatty()

    def run(self, nodes: list[Node]) -> None:
        """Run what has to run, in an order that respects the edges.

        Raises:
            UserError, Restart, StageFailed: what `failure` makes of a stage's end.
            KeyboardInterrupt: the user's, where no stage had anything to save.
        """
        done = {node.name for node in nodes if node.reason is None}
        waiting = [node for node in nodes if node.reason is not None]
        width = max(len(node.name) for node in nodes)
        announce_done(nodes)
        try:
            while waiting or self.running:
                for node in list(waiting):
                    if set(node.needs) <= done and self._fits(node):
                        waiting.remove(node)
                        self._start(node)
                time.sleep(0.1)
                self._show()
                for child in list(self.running):
                    if child.process.poll() is not None:
                        self.running.remove(child)
                        child.file.close()
                        self._finished(child, width)
                        done.add(child.node.name)
        except KeyboardInterrupt:
            self._interrupted()
            raise
        finally:
            self._stop()

    def _need(self, node: Node) -> int:
        return 1 if STAGES[node.kind].one_core else self.cores

    def _fits(self, node: Node) -> bool:
        free = self.cores - sum(child.cores for child in self.running)
        return self._need(node) <= free

    def _start(self, node: Node) -> None:
        log = self.logs / f"{node.name}.log"
        cores = self._need(node)
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            file = log.open("wb")
        except OSError as error:
            raise InputError(
                f"workdir={self.logs.parent}: cannot write there ({error.strerror})"
            ) from error
        process = subprocess.Popen(
            node.command(self.processes),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": str(cores), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        self.running.append(Running(node, process, log, file, cores))

    def _show(self) -> None:
        """One line that says what runs now, on a terminal."""
        if self.live and self.running:
            parts = [
                f"{child.node.name} {duration(time.monotonic() - child.began)}  "
                + (last_line(child.log) or "starts")
                for child in self.running
            ]
            columns = shutil.get_terminal_size().columns
            print(f"\r\033[K{one_line(parts, columns)}", end="", flush=True)

    def _finished(self, child: Running, width: int) -> None:
        node, manifest = child.node, Manifest.read(child.node.out)
        self._clear()
        if child.process.returncode == 0 and manifest is not None:
            seconds = time.monotonic() - child.began
            screen.say(f"{node.name:<{width}}  {seconds:8.1f} s   {manifest.summary}")
            return
        raise failure(node.name, child.process.returncode, child.log)

    def _clear(self) -> None:
        """Take the line of what runs off the terminal."""
        if self.live:
            print("\r\033[K", end="", flush=True)

    def _interrupted(self) -> None:
        """Stop what runs.

        Raises:
            Restart: one of them saved what it had.
        """
        stopped = list(self.running)
        self._clear()
        for child in stopped:
            what = "is saving" if child.node.kind == "train" else "ends"
            print(f"stopping: {child.node.name} {what} …", flush=True)
        self._stop()
        for child in stopped:
            if child.process.returncode == Exit.RESTART:
                raise failure(child.node.name, Exit.RESTART, child.log) from None

    def _stop(self) -> None:
        """End what still runs, with all its children; who asks again does not wait for them.

        Ranks of a training outlive their killed launcher until they have saved.
        """
        for sign, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, 5.0)):
            for child in self.running:
                signal_group(child.process, sign)
            until = time.monotonic() + patience
            with contextlib.suppress(KeyboardInterrupt):
                while time.monotonic() < until and any(
                    signal_group(child.process, 0) for child in self.running
                ):
                    time.sleep(0.05)
        self.running.clear()


def failure(name: str, code: int, log: Path) -> Exception:
    """What a stage's end means for the run, which ends with the same exit code but for faults.

    The user's to mend, in the stage's own words; to be started again; or a fault of the program.
    """
    lines = log.read_text(errors="replace").splitlines()
    kind = {int(Exit.USER): UserError, int(Exit.DIVERGED): Diverged}.get(code)
    # Before a line of several nodes stands the number of its task.
    found = (re.match(r"(?:\d+: )?error: (.*)", line) for line in lines)
    told = [match[1] for match in found if match]
    if kind is not None and told:
        return kind(f"stage {name}: {told[0]} (log: {log})")
    if code == Exit.RESTART:
        how = ENDING.search("\n".join(lines))
        return Restart(
            f"stage {name}: {how[0] if how else 'cut short'} (log: {log}); run the same "
            "command to resume"
        )
    return StageFailed(
        f"stage {name} ended with exit code {code}; its log is {log}, ending:\n"
        + "\n".join(lines[-15:])
    )


def signal_group(process: subprocess.Popen[bytes], sign: int) -> bool:
    """Signal a child and all of its own; False where none of them is left."""
    process.poll()  # takes the child's exit code, else its group would seem to live on
    try:
        os.killpg(process.pid, sign)
    except ProcessLookupError:
        return False
    return True


def one_line(parts: list[str], columns: int) -> str:
    """The parts side by side, cut so that a terminal of so many columns does not break the line."""
    separator = " | "
    room = max(8, (columns - 1 - len(separator) * (len(parts) - 1)) // len(parts))
    cut = [part if len(part) <= room else part[: room - 1] + "…" for part in parts]
    return separator.join(cut)[: columns - 1]


def last_line(log: Path) -> str:
    """The last line of a growing log that says anything, launchers apart."""
    start = max(0, log.stat().st_size - 2000)
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()[start > 0 :]  # the first is cut
    said = (line.strip() for line in reversed(lines) if not LAUNCHER.match(line))
    return next(filter(None, said), "")
