"""Progress bar and heartbeat based on the files that a job's tasks write, for every runner."""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from pipeline.beam.carrier import ENDING
from pipeline.beam.plan import PreparePlan
from pipeline.common import heartbeat
from pipeline.common.formatting import pluralize

EVERY = 1.0  # seconds between a task's reports, and between reading them
SLOWLY = 10.0  # seconds between reading them for the heartbeat
STALLED = 60  # of these readings without progress before a line says so

FORMAT = "prepare: {desc} {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{rate_fmt}{postfix}]"


class Report:
    """Progress file of a task, rewritten at most once per second."""

    def __init__(self, path: Path):
        self.path, self.last = path, time.monotonic()

    def __call__(self, done: float, documents: int = 0) -> None:
        """Report how much is done: bytes of a split, or the share of a shard."""
        now = time.monotonic()
        if now - self.last >= EVERY:
            self.last = now
            self.write(done, documents, False)

    def finish(self, done: float, documents: int = 0) -> None:
        """Report that the task is done."""
        self.write(done, documents, True)

    def write(self, done: float, documents: int, finished: bool) -> None:
        """Write the file; a folder that this machine cannot see has no progress to show."""
        with contextlib.suppress(OSError):
            self.path.write_text(json.dumps([done, documents, finished]))


@dataclass
class Progress:
    """Progress of a job."""

    plan: PreparePlan
    bytes: float = 0  # of the corpus
    documents: int = 0
    read: dict[int, tuple[float, int]] = field(default_factory=dict)  # finished reading tasks
    written: dict[int, tuple[float, int]] = field(default_factory=dict)  # finished writing tasks
    shards: float = 0  # including fractions of unfinished ones

    def look(self) -> None:
        """Read the tasks' files."""
        try:
            there = set(os.listdir(self.plan.scratch))
        except FileNotFoundError:  # removed already
            return
        exchange = self.plan.exchange
        reports = [self.plan.report(self.plan.read_account(read)) for read in range(exchange.reads)]
        self.bytes, self.documents = _summed(reports, self.read, there)
        reports = [self.plan.report(self.plan.write_account(k)) for k in range(exchange.writes)]
        self.shards, _ = _summed(reports, self.written, there)

    @property
    def whole(self) -> int:
        """Return how many shards are written, counted when their task is done."""
        return int(sum(count for count, _ in self.written.values()))

    @property
    def reading(self) -> bool:
        """Return whether part of the corpus is still unread."""
        return len(self.read) < self.plan.exchange.reads


def start_over(plan: PreparePlan) -> str:
    """Delete what an attempt that has failed has left; return what it had done, in words."""
    progress, exchange = Progress(plan), plan.exchange
    progress.look()
    for left in (*plan.scratch.glob("*.progress"), *plan.scratch.glob(f"*{ENDING}")):
        left.unlink(missing_ok=True)
    return (
        f"{len(progress.read)} of {pluralize(exchange.reads, 'task')} had read, "
        f"{len(progress.written)} of {exchange.writes} had written"
    )


def _summed(reports: list[Path], finished: dict[int, tuple[float, int]], there: set[str]) -> tuple[float, int]:
    """Return what all tasks have done; add those that are now `finished`."""
    done, documents = 0.0, 0
    for index, report in enumerate(reports):
        if index in finished:
            found: tuple[float, int, bool] = (*finished[index], True)
        elif report.name in there:
            found = _reported(report)
            if found[2]:
                finished[index] = found[:2]
        else:
            continue
        done, documents = done + found[0], documents + found[1]
    return done, documents


def _reported(report: Path) -> tuple[float, int, bool]:
    """Return a task's last report; zeros if it is being written."""
    try:
        done, documents, finished = json.loads(report.read_text())
    except (ValueError, FileNotFoundError):
        return 0, 0, False
    return done, documents, finished


@contextlib.contextmanager
def watch(plan: PreparePlan) -> Iterator[None]:
    """Show progress bars on a terminal, and keep the heartbeat, while the body runs.

    The first bar counts the bytes read from the corpus, the second the shards written.
    """
    over, threads = threading.Event(), []
    with heartbeat.during("prepare") as alive:
        arguments = (plan, alive.beat, lambda: over.wait(SLOWLY))
        threads.append(threading.Thread(target=_beat, args=arguments, daemon=True))
        if sys.stderr.isatty():
            shown = (plan, lambda: over.wait(EVERY))
            threads.append(threading.Thread(target=_show, args=shown, daemon=True))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()


def _beat(plan: PreparePlan, beat: Callable[[], None], pause: Callable[[], bool]) -> None:
    """Call `beat` whenever the tasks have made progress, until `pause` returns True.

    Print a line when they have not for `STALLED` looks: engines may hang without an error.
    """
    progress, before, still = Progress(plan), (0.0, 0.0), 0
    while not pause():
        with contextlib.suppress(OSError):  # of a network file system: look again
            progress.look()
        seen = progress.bytes, progress.shards
        still = 0 if seen != before else still + 1
        if not still:
            beat()
            before = seen
        elif still == STALLED:
            minutes = STALLED * SLOWLY / 60
            engine = "" if plan.config.runner.name == "local" else ", and the logs of the engine"
            print(
                f"prepare: no task has made progress for {minutes:.0f} minutes; look at the load "
                f"of the workers{engine}",
                file=sys.stderr,
                flush=True,
            )


def _show(plan: PreparePlan, pause: Callable[[], bool]) -> None:
    """Draw both bars until `pause` returns True."""
    progress, over = Progress(plan), False
    size = sum(split.size for split in plan.splits)
    with tqdm(
        total=size,
        unit="B",
        unit_scale=True,
        unit_divisor=1024,
        desc="reading",
        bar_format=FORMAT.replace("{rate_fmt}", ", {rate_fmt}"),
    ) as bar:
        while progress.reading and not over:
            over = pause()
            progress.look()
            bar.set_postfix_str(pluralize(progress.documents, "document"), refresh=False)
            bar.update(max(progress.bytes - bar.n, 0))
            bar.refresh()
    if progress.reading:
        return  # it failed
    count = plan.exchange.buckets
    with tqdm(total=count, desc="writing", bar_format=FORMAT.replace("{rate_fmt}", "")) as bar:
        while True:
            progress.look()
            shown = f"{progress.whole} of {pluralize(count, 'shard')}"
            bar.set_postfix_str(shown, refresh=False)
            bar.update(max(progress.shards - bar.n, 0))
            bar.refresh()
            if over:
                return
            over = pause()
