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
from typing import IO

from pipeline.common import cores as machine
from pipeline.common import run_record, screen
from pipeline.common.errors import Exit, writable
from pipeline.common.formatting import duration
from pipeline.common.redact import redact
from pipeline.orchestration.follow import Executor, Groups, announce_done, delete_forced, failure
from pipeline.orchestration.run_document import StageRecord
from pipeline.stages.registry import STAGES

LAUNCHER = re.compile(r"\[\d{4}-\d\d-\d\d [^]]*\] \[[A-Z]+\]")  # DeepSpeed's lines
GRACE = 300.0  # seconds between SIGTERM and SIGKILL, for training to save


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


class LocalExecutor(Executor):
    """Executor of stages as child processes, each with its own process group and log file."""

    visible = 0.0

    def __init__(
        self,
        workdir: Path,
        cores: int,
        command: Callable[[StageRecord], list[str]],
        ended: Callable[[], None] = lambda: None,
    ):
        super().__init__()
        self.command = command
        self.ended = ended  # called after each stage, however it ended
        self.logs, self.cores = workdir / "logs", cores
        self.gpus = machine.gpus()
        self.running: dict[str, Running] = {}  # by stage
        self.live = sys.stdout.isatty()

    def run(self, nodes: list[StageRecord]) -> None:
        """Run the stages that have to run, in dependency order.

        Raises:
            UserError, Restart, StageFailed: a stage failed, see `failure`.
            KeyboardInterrupt: the user interrupted, and no stage had anything to save.
        """
        announce_done(nodes)
        delete_forced(nodes)
        self.tick = "\u2713 " if self.live and "utf" in sys.stdout.encoding.lower() else ""
        try:
            self.follow(nodes, {node.name: [node] for node in nodes if node.reason is not None})
        except KeyboardInterrupt:
            self._interrupted()
            raise
        finally:
            self._stop()

    def look(self, groups: Groups) -> None:
        """Print the running stages on one line, if on a terminal."""
        if self.live and self.running:
            parts = [
                f"{name} {duration(time.monotonic() - child.began)}  " + redact(last_line(child.log) or "starts")
                for name, child in self.running.items()
            ]
            columns = shutil.get_terminal_size().columns
            print(f"\r\033[K{one_line(parts, columns)}", end="", flush=True)

    def step(self, name: str, members: list[StageRecord], due: bool) -> bool:
        """Start a stage that is `due` when cores are free; return whether it has ended well."""
        child = self.running.get(name)
        if child is None:
            if due and self._fits(members[0]):
                self._start(members[0])
            return False
        if child.process.poll() is None:
            return False
        del self.running[name]
        child.file.close()
        self._clear()
        self.ended()
        if child.process.returncode:
            raise failure(name, child.process.returncode, child.log)
        return True

    def unmade(self, name: str, members: list[StageRecord]) -> Exception:
        """Return the error of a stage that has ended well and left no results."""
        return failure(name, Exit.DONE, self._log(name))

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def _need(self, node: StageRecord) -> int:
        kind = STAGES[node.kind]
        return 1 if kind.one_core or kind.shares_cores else self.cores

    def _fits(self, node: StageRecord) -> bool:
        free = self.cores - sum(child.cores for child in self.running.values())
        return self._need(node) <= free

    def _start(self, node: StageRecord) -> None:
        log = self._log(node.name)
        cores = self._need(node)
        with writable(self.logs.parent, "workdir"):
            self.logs.mkdir(parents=True, exist_ok=True)
            file = log.open("wb")
        gpu = self._gpu(node)
        ours = {}
        if gpu is not None:  # all, this one first: an evaluation's processes take one after another
            place = self.gpus.index(gpu)
            ours["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus[place:] + self.gpus[:place])
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
        self.running[node.name] = Running(node, process, log, file, cores, gpu)

    def _gpu(self, node: StageRecord) -> str | None:
        """Return the first GPU for a stage that begins with one: one of the fewest such stages."""
        if not STAGES[node.kind].one_core or len(self.gpus) < 2:
            return None
        taken = [child.gpu for child in self.running.values()]
        return min(self.gpus, key=taken.count)

    def _clear(self) -> None:
        """Clear the line of running stages from the terminal."""
        if self.live:
            print("\r\033[K", end="", flush=True)

    def _interrupted(self) -> None:
        """Stop the running stages.

        Raises:
            Restart: one of them saved its progress.
        """
        stopped = list(self.running.values())
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
            children = [child.process for child in self.running.values()]
            for child in children:
                signal_group(child, sign)
            until = time.monotonic() + patience
            with contextlib.suppress(KeyboardInterrupt):
                while time.monotonic() < until and any([signal_group(child, 0) for child in children]):
                    time.sleep(0.05)
        self.running.clear()


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
