"""Where the workers of `prepare` spend their time, by step.

Clocks are read once for a block of documents, so that short ones cost no more. (A thread that looks at the
stack of another sees it where that lets go of the interpreter, as in hashing, and not where it works.)
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pipeline.records.manifest import Spent

STEPS = ("read", "clean", "sentences", "filter", "tokenize", "near duplicates", "exchange", "pairs", "write")
ENDING = ".spent"


class _Clock(threading.local):
    """The account of the task of a thread."""

    def __init__(self) -> None:
        self.spent, self.step = Spent(), "exchange"
        self.last = time.thread_time(), time.monotonic()

    def switch(self, step: str) -> str:
        """Begin a step; return the one that ends, which gets the time since it began."""
        now, ended = (time.thread_time(), time.monotonic()), self.step
        used, passed = (one - other for one, other in zip(now, self.last, strict=True))
        times = self.spent.setdefault(ended, [0.0, 0.0])
        times[:] = times[0] + used, times[1] + max(passed - used, 0.0)
        self.step, self.last = step, now
        return ended


_clock = _Clock()


@contextlib.contextmanager
def on(step: str) -> Iterator[None]:
    """Count the time of the body, which must not yield to other code, as that of a step."""
    before = _clock.switch(step)
    try:
        yield
    finally:
        _clock.switch(before)


@contextlib.contextmanager
def counted(step: str) -> Iterator[Spent]:
    """Yield the account of the body's time, whole after it; what is not counted `on` a step is of this one."""
    _clock.switch(step)
    _clock.spent = spent = Spent()
    try:
        yield spent
    finally:
        _clock.switch(step)


def total(files: Iterable[Path]) -> Spent:
    """Return the time of all tasks, which have left it in `files`, in the order of the steps."""
    spent: Spent = {}
    for path in files:
        for step, times in json.loads(path.read_bytes()).items():
            spent[step] = [a + b for a, b in zip(spent.get(step, [0.0, 0.0]), times, strict=True)]
    return {step: [round(each, 2) for each in spent[step]] for step in STEPS if step in spent}


def line(spent: Spent) -> str:
    """Return the processor time and what it went into, in one line."""
    whole, waits = (sum(times[k] for times in spent.values()) for k in (0, 1))
    shares = ", ".join(f"{step} {times[0] / max(whole, 0.01):.0%}" for step, times in spent.items())
    return f"{whole:,.1f} s of processor time: {shares}; {waits:,.1f} s of waiting"
