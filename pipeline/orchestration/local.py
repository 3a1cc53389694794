"""Run the stages of a graph as local processes, in parallel where cores allow."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from pipeline.common import cores as machine
from pipeline.common import run_record, screen
from pipeline.common.errors import Exit, Restart, UserError, records_in, writable
from pipeline.common.formatting import duration
from pipeline.common.manifest import Manifest
from pipeline.common.redact import redact
from pipeline.orchestration.run_document import FORCED, StageRecord
from pipeline.stages import stage
from pipeline.stages.registry import STAGES

LAUNCHER = re.compile(r"\[\d{4}-\d\d-\d\d [^]]*\] \[[A-Z]+\]")  # DeepSpeed's lines
GRACE = 300.0  # seconds between SIGTERM and SIGKILL, for training to save


class StageFailed(Exception):
    """A stage ended with an error other than a user's mistake; the message names its log."""


class Executor(Protocol):
    """Interface for running the stages of a graph that have to run, until all are done."""

    def run(self, nodes: list[StageRecord]) -> None:
        """Run the stages; `UserError` or `StageFailed` names the one that failed and why."""


def announce_done(nodes: list[StageRecord]) -> None:
    """Print one line for each stage that is up to date."""
    width = max(len(node.name) for node in nodes)
    for node in nodes:
        if node.reason is None:
            manifest = Manifest.read(node.out)
            assert manifest is not None
            screen.say(f"{node.name:<{width}}  up to date   {manifest.summary}")


def delete_forced(nodes: list[StageRecord]) -> None:
    """Delete the results of the stages that the user has named to run again."""
    for node in nodes:
        if node.reason == FORCED:
            stage.delete(node.kind, node.config, node.fingerprint)


@dataclass
class Running:
    """A running stage: its process and log."""

    node: StageRecord
    process: subprocess.Popen[bytes]
    log: Path
    file: IO[bytes]
    cores: int
    gpu: str | None = None  # its first one, of several; None: as the run has them
    began: float = field(default_factory=time.monotonic)


class LocalExecutor:
    """Executor of stages as child processes, each with its own process group and log file."""

    def __init__(
        self,
        workdir: Path,
        cores: int,
        command: Callable[[StageRecord], list[str]],
        ended: Callable[[], None] = lambda: None,
    ):
        self.command = command
        self.ended = ended  # called after each stage, however it ended
        self.logs, self.cores = workdir / "logs", cores
        self.gpus = machine.gpus()
        self.running: list[Running] = []
        self.live = sys.stdout.isatty()

    def run(self, nodes: list[StageRecord]) -> None:
        """Run the stages that have to run, in dependency order.

        Raises:
            UserError, Restart, StageFailed: a stage failed, see `failure`.
            KeyboardInterrupt: the user interrupted, and no stage had anything to save.
        """
        done = {node.name for node in nodes if node.reason is None}
        waiting = [node for node in nodes if node.reason is not None]
        width = max(len(node.name) for node in nodes)
        announce_done(nodes)
        delete_forced(nodes)
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

    def _need(self, node: StageRecord) -> int:
        kind = STAGES[node.kind]
        return 1 if kind.one_core or kind.shares_cores else self.cores

    def _fits(self, node: StageRecord) -> bool:
        free = self.cores - sum(child.cores for child in self.running)
        return self._need(node) <= free

    def _start(self, node: StageRecord) -> None:
        log = self.logs / f"{node.name}.log"
        cores = self._need(node)
        with writable(self.logs.parent, "workdir"):
            self.logs.mkdir(parents=True, exist_ok=True)
            file = log.open("wb")
        gpu = self._gpu(node)
        ours = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": ",".join(self._from(gpu))}
        if secrets := node.secrets():
            ours[run_record.SECRETS] = json.dumps(secrets)
        process = subprocess.Popen(
            self.command(node),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": str(cores), "PYTHONUNBUFFERED": "1", screen.RECORDS: "1", **ours},
            start_new_session=True,
        )
        self.running.append(Running(node, process, log, file, cores, gpu))

    def _gpu(self, node: StageRecord) -> str | None:
        """Return the first GPU for a stage that begins with one: one of the fewest such stages."""
        if not STAGES[node.kind].one_core or len(self.gpus) < 2:
            return None
        taken = [child.gpu for child in self.running]
        return min(self.gpus, key=taken.count)

    def _from(self, gpu: str) -> list[str]:
        """Return all GPUs, this one first: an evaluation's processes take one after another."""
        place = self.gpus.index(gpu)
        return self.gpus[place:] + self.gpus[:place]

    def _show(self) -> None:
        """Print the running stages on one line, if on a terminal."""
        if self.live and self.running:
            parts = [
                f"{child.node.name} {duration(time.monotonic() - child.began)}  "
                + redact(last_line(child.log) or "starts")
                for child in self.running
            ]
            columns = shutil.get_terminal_size().columns
            print(f"\r\033[K{one_line(parts, columns)}", end="", flush=True)

    def _finished(self, child: Running, width: int) -> None:
        node, manifest = child.node, Manifest.read(child.node.out)
        self._clear()
        self.ended()
        if child.process.returncode == 0 and manifest is not None:
            seconds = time.monotonic() - child.began
            tick = "\u2713 " if self.live and can_print("\u2713") else ""
            screen.say(f"{tick}{node.name:<{width}}  {seconds:8.1f} s   {manifest.summary}")
            return
        raise failure(node.name, child.process.returncode, child.log)

    def _clear(self) -> None:
        """Clear the line of running stages from the terminal."""
        if self.live:
            print("\r\033[K", end="", flush=True)

    def _interrupted(self) -> None:
        """Stop the running stages.

        Raises:
            Restart: one of them saved its progress.
        """
        stopped = list(self.running)
        self._clear()
        for child in stopped:
            what = "is saving" if child.node.kind == "train" else "is ending"
            print(f"stopping: {child.node.name} {what} …", flush=True)
        self._stop()
        for child in stopped:
            if child.process.returncode == Exit.RESTART:
                raise failure(child.node.name, Exit.RESTART, child.log) from None

    def _stop(self) -> None:
        """Stop running stages with all their children; a second Ctrl-C skips the grace period.

        The ranks of a training outlive their launcher until they have saved.
        """
        for sign, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, 5.0)):
            for child in self.running:
                signal_group(child.process, sign)
            until = time.monotonic() + patience
            with contextlib.suppress(KeyboardInterrupt):
                while time.monotonic() < until and any(signal_group(child.process, 0) for child in self.running):
                    time.sleep(0.05)
        self.running.clear()


def can_print(text: str) -> bool:
    """Return whether the terminal's encoding has these characters."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def failure(name: str, code: int, log: Path) -> Exception:
    """Return the exception for a stage that ended early: an error of the user, a restart or a bug.

    The run ends with the same exit code, except for bugs. The message quotes the stage's error.
    """
    text = log.read_text(errors="replace")
    found = [error for error in records_in(text) if error.code == code and error.problem]
    for error in found:
        if isinstance(error, UserError):
            return of_stage(name, error, f" (log: {log})")
    if code == Exit.RESTART:
        how = found[-1].problem if found else "interrupted"  # the launcher's comes last
        return Restart(f"stage {name}: {how} (log: {log})", "rerun the same command to resume")
    return StageFailed(
        f"stage {name} ended with exit code {code}; the end of its log {log}:\n" + "\n".join(text.splitlines()[-15:])
    )


def of_stage(name: str, error: UserError, more: str = "") -> UserError:
    """Return the error of a stage, with its name."""
    where = f"stage {name}: {error.where}" if error.where else f"stage {name}"
    return error.but(where=where, problem=f"{error.problem}{more}")


def signal_group(process: subprocess.Popen[bytes], sign: int) -> bool:
    """Signal the process group of a child; return False if the group has ended."""
    process.poll()  # reaps the child, which would otherwise keep its group alive
    try:
        os.killpg(process.pid, sign)
    except ProcessLookupError:
        return False
    return True


def one_line(parts: list[str], columns: int) -> str:
    """Join parts on one line, truncated to fit a terminal of `columns` columns."""
    separator = " | "
    room = max(8, (columns - 1 - len(separator) * (len(parts) - 1)) // len(parts))
    cut = [part if len(part) <= room else part[: room - 1] + "…" for part in parts]
    return separator.join(cut)[: columns - 1]


def last_line(log: Path) -> str:
    """Return the last non-empty line of a growing log, ignoring DeepSpeed's own lines."""
    start = max(0, log.stat().st_size - 2000)
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()[start > 0 :]  # the first is cut
    stripped = (line.strip() for line in reversed(lines) if not LAUNCHER.match(line))
    return next(filter(None, stripped), "")
