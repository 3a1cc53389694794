"""Run the stages of a graph as local processes, in parallel where cores allow."""

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.common import cores as machine
from pipeline.console import bars, terminal
from pipeline.console.formatting import duration
from pipeline.errors import Exit, writable
from pipeline.orchestration.follow import Executor, delete_forced, failure, width_of
from pipeline.orchestration.run_plan import Groups, StageRecord, StageRecords
from pipeline.records import run_file
from pipeline.stages.registry import ALL, ARRAY, NODES, ONE, placement_of

LAUNCHER = re.compile(r"\[\d{4}-\d\d-\d\d [^]]*\] \[[A-Z]+\]")  # DeepSpeed's lines
_PARENT_DEATH_SIGNAL, _LIBRARY = 1, ctypes.CDLL(None)  # of prctl
GRACE = 300.0  # seconds between SIGTERM and SIGKILL, for training to save


@dataclass
class Running:
    """A running stage: its process and log."""

    node: StageRecord
    process: subprocess.Popen[bytes]
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
        self.live = sys.stdout.isatty() and sys.stderr.isatty()

    def run(self, nodes: StageRecords) -> None:
        """Run the stages that have to run, in dependency order.

        Raises:
            UserError, Restart, StageFailed: a stage failed, see `failure`.
            KeyboardInterrupt: the user interrupted, and no stage had anything to save.
        """
        self.width = width_of(nodes)
        delete_forced(nodes)
        self.tick = "\u2713 " if self.live and "utf" in sys.stdout.encoding.lower() else ""
        try:
            self.run_loop(nodes, {node.name: [node] for node in nodes if node.reason is not None})
        except KeyboardInterrupt:
            self._interrupted()
            raise
        finally:
            self._stop()

    def refresh(self, groups: Groups) -> None:
        """Show the bars of the running stages, or else the last lines of their logs."""
        for name, child in self.running.items():
            if self.live:
                state = bars.read(self._bar(name)) or bars.State("", note=last_line(self._log(name)) or "starts")
                bars.ROWS.show(name, f"{name:<{self.width}} {duration(time.monotonic() - child.began):>9}", state)

    def advance(self, name: str, members: StageRecords, due: bool) -> bool:
        """Start a stage that is `due` when cores are free; return whether it has ended well."""
        child = self.running.get(name)
        if child is None:
            free = self.cores - sum(self._need(other.node) for other in self.running.values())
            if due and self._need(members[0]) <= free:
                self._start(members[0])
            return False
        if child.process.poll() is None:
            return False
        del self.running[name]
        self._end_bar(name)
        self.ended()
        if child.process.returncode:
            raise failure(name, child.process.returncode, self._log(name))
        return True

    def missing_output(self, name: str, members: StageRecords) -> Exception:
        """Return the error of a stage that has ended well and left no results."""
        return failure(name, Exit.DONE, self._log(name))

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def _bar(self, name: str) -> Path:
        """Return the file in which a stage says how far it is."""
        return self.logs / f".{name}.bar"

    def _need(self, node: StageRecord) -> int:
        return self.cores if placement_of(node.kind) in (ALL, NODES) else 1

    def _start(self, node: StageRecord) -> None:
        with writable(self.logs.parent, "workdir"):
            self.logs.mkdir(parents=True, exist_ok=True)
            file = self._log(node.name).open("wb")
        cores, gpu, bar = str(self._need(node)), self._gpu(node), self._bar(node.name)
        bar.unlink(missing_ok=True)  # of a start that was killed
        variables = {"OMP_NUM_THREADS": cores, "PYTHONUNBUFFERED": "1", terminal.RECORDS: "1", bars.PLACE: str(bar)}
        if gpu is not None:  # all, this one first: an evaluation's processes take one after another
            place = self.gpus.index(gpu)
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus[place:] + self.gpus[:place])
        if secrets := node.secrets():
            variables[run_file.SECRETS] = json.dumps(secrets)
        with file, defer_signals():
            process = subprocess.Popen(
                self.command(node),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | variables,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
            self.running[node.name] = Running(node, process, gpu)

    def _gpu(self, node: StageRecord) -> str | None:
        """Return the first GPU for a stage that begins with one: one of the fewest such stages."""
        if placement_of(node.kind) not in (ONE, ARRAY) or len(self.gpus) < 2:
            return None
        return min(self.gpus, key=[child.gpu for child in self.running.values()].count)

    def _end_bar(self, name: str) -> None:
        self._bar(name).unlink(missing_ok=True)
        bars.ROWS.remove(name)

    def _interrupted(self) -> None:
        """Stop the running stages.

        Raises:
            Restart: one of them saved its progress.
        """
        stopped = list(self.running.values())
        for child in stopped:
            self._end_bar(child.node.name)
            what = "is saving" if child.node.kind == "train" else "is ending"
            print(f"stopping: {child.node.name} {what} …", flush=True)
        self._stop()
        for child in stopped:
            if child.process.returncode == Exit.RESTART:
                raise failure(child.node.name, Exit.RESTART, self._log(child.node.name)) from None

    def _stop(self) -> None:
        """Stop running stages with all their children; a second Ctrl-C skips the grace period.

        The ranks of a training outlive their launcher until they have saved.
        """
        for sign, grace in ((signal.SIGTERM, GRACE), (signal.SIGKILL, 5.0)):
            children = [child.process for child in self.running.values()]
            for child in children:
                signal_group(child, sign)
            until = time.monotonic() + grace
            with contextlib.suppress(KeyboardInterrupt):
                while time.monotonic() < until and any([signal_group(child, 0) for child in children]):
                    time.sleep(0.05)
        self.running.clear()


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Handle a signal that stops the run after the block, in which it would leave a child behind."""
    came: list[int] = []
    stopping = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: handler for number in stopping if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def _end_with_parent() -> None:
    """Let this process get SIGTERM when its parent ends, be it killed (Linux)."""
    _LIBRARY.prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def signal_group(process: subprocess.Popen[bytes], sign: int) -> bool:
    """Signal the process group of a child; return False if the group has ended."""
    process.poll()  # reaps the child, which would otherwise keep its group alive
    try:
        os.killpg(process.pid, sign)
    except ProcessLookupError:
        return False
    return True


def last_line(log: Path) -> str:
    """Return the last non-empty line of a growing log, ignoring DeepSpeed's own lines."""
    start = max(0, log.stat().st_size - 2000)
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()[start > 0 :]  # the first is cut
    return next(filter(None, (line.strip() for line in reversed(lines) if not LAUNCHER.match(line))), "")
