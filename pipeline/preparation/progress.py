"""Bars and heartbeat based on the files that a job's tasks write, for every runner."""

import contextlib
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pipeline.common import heartbeat
from pipeline.console import bars, terminal
from pipeline.console.bars import Bar
from pipeline.console.formatting import pluralize
from pipeline.preparation.plan import PreparePlan
from pipeline.preparation.shuffle import ENDING

EVERY = 1.0  # seconds between a task's reports, and between reading them for bars
SLOWLY = 10.0  # seconds between reading them where no bars are seen
STALLED = 60  # slow readings without progress before a line says so


class Report:
    """Progress file of a task, rewritten at most once per second."""

    def __init__(self, path: Path):
        self.path, self.last = path, time.monotonic()

    def __call__(self, done: float, documents: int = 0, ended: bool = False) -> None:
        """Report how much is done: bytes of a split, or the share of a shard; and whether that is all."""
        now = time.monotonic()
        if ended or now - self.last >= EVERY:
            self.last = now
            with contextlib.suppress(OSError):  # a folder that this machine cannot see has no progress to show
                self.path.write_text(json.dumps([done, documents, ended]))


class Tasks:
    """The tasks of a phase, by their reports."""

    def __init__(self, reports: list[Path]):
        self.reports = reports
        self.ended: dict[Path, tuple[float, int, bool]] = {}
        self.done, self.documents = 0.0, 0

    def look(self, there: set[str]) -> None:
        """Add up the reports that are among the files `there`."""
        listed = (report for report in self.reports if report in self.ended or report.name in there)
        reports = {report: self.ended.get(report) or _reported(report) for report in listed}
        self.ended = {report: one for report, one in reports.items() if one[2]}
        self.done = sum(done for done, _, _ in reports.values())
        self.documents = sum(count for _, count, _ in reports.values())


class Progress:
    """Progress of a job: the bytes that were read, and the shards that were written."""

    def __init__(self, plan: PreparePlan):
        self.plan, layout = plan, plan.layout
        self.read = Tasks([plan.report(plan.read_account(number)) for number in range(layout.reads)])
        self.written = Tasks([plan.report(plan.write_account(number)) for number in range(layout.writes)])

    def look(self) -> None:
        """Read the tasks' files."""
        with contextlib.suppress(FileNotFoundError):  # removed already
            there = set(os.listdir(self.plan.scratch))
            self.read.look(there)
            self.written.look(there)

    @property
    def whole(self) -> int:
        """Return how many shards are written, counted when their task is done."""
        return int(sum(count for count, _, _ in self.written.ended.values()))

    @property
    def reading(self) -> bool:
        """Return whether part of the corpus is still unread."""
        return len(self.read.ended) < len(self.read.reports)


def start_over(plan: PreparePlan) -> str:
    """Delete what an attempt that has failed has left; return what it had done, in words."""
    progress, layout = Progress(plan), plan.layout
    progress.look()
    for left in (*plan.scratch.glob("*.progress"), *plan.scratch.glob(f"*{ENDING}")):
        left.unlink(missing_ok=True)
    return (
        f"{len(progress.read.ended)} of {pluralize(layout.reads, 'task')} had read, "
        f"{len(progress.written.ended)} of {layout.writes} had written"
    )


def _reported(report: Path) -> tuple[float, int, bool]:
    """Return a task's last report; zeros if it is being written."""
    try:
        done, documents, finished = json.loads(report.read_text())
    except (ValueError, FileNotFoundError):
        return 0, 0, False
    return done, documents, finished


@contextlib.contextmanager
def watch(plan: PreparePlan) -> Iterator[None]:
    """Show bars, and keep the heartbeat, while the body runs."""
    over = threading.Event()
    with heartbeat.during("prepare") as alive:
        thread = threading.Thread(target=_show, args=(plan, _looks(plan, alive.beat, over.wait)), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _looks(plan: PreparePlan, beat: Callable[[], None], pause: Callable[[float], bool]) -> Iterator[Progress]:
    """Yield the progress of the tasks until `pause` returns True, and call `beat` where there is any.

    Print a line when there has been none for `STALLED` slow looks: engines may hang without an error.
    """
    progress, before, still, over = Progress(plan), (0.0, 0.0), 0, False
    every = EVERY if bars.are_seen() else SLOWLY
    while not over:
        over = pause(every)
        with contextlib.suppress(OSError):  # of a network file system: look again
            progress.look()
        seen = progress.read.done, progress.written.done
        still = 0 if seen != before else still + 1
        if not still:
            beat()
            before = seen
        elif still == STALLED * SLOWLY / every:
            minutes = STALLED * SLOWLY / 60
            engine = "" if plan.config.runner.name == "local" else ", and the logs of the engine"
            said = f"no task has made progress for {minutes:.0f} minutes; look at the load of the workers{engine}"
            terminal.say(f"prepare: {said}", sys.stderr)
        yield progress


def _show(plan: PreparePlan, looks: Iterator[Progress]) -> None:
    """Draw two bars one after the other: of the bytes read from the corpus, and of the shards written."""
    with Bar("reading", sum(split.size for split in plan.splits), "B") as bar:
        for progress in looks:
            bar.move(progress.read.done, pluralize(progress.read.documents, "document"))
            if not progress.reading:
                break
        else:
            return  # it failed
    with Bar("writing", plan.layout.buckets, "shards") as bar:
        for now in itertools.chain([progress], looks):
            bar.move(now.written.done, f"{now.whole} of them whole")
