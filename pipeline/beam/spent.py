"""Where the workers of `prepare` spend their time: a thread looks at the stack of a task's thread.

Nothing is measured per document, so that it costs the same for documents of any length. The
processor time and the waits since the last look belong to the step whose code is running now.
"""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

EVERY = 0.02  # seconds between looks: 0.2 % of the time
ENDING = ".spent"

# The step of the innermost frame that is of one of these modules, or of a module in it.
STEPS = {
    "pipeline.readers": "read",
    "pipeline.text": "clean",
    "pipeline.text.sentences": "sentences",
    "pipeline.beam.documents": "filter",
    "pipeline.filtering.filters": "filter",
    "pipeline.filtering.minhash": "near duplicates",
    "pipeline.tokenization": "tokenize",
    "pipeline.beam": "exchange",
    "pipeline.beam.writing": "pairs",
    "pipeline.shards.full_sentences": "pairs",
    "pipeline.shards.sentence_pairs": "pairs",
    "pipeline.shards": "write",
}
ORDER = list(dict.fromkeys(STEPS.values()))
ELSEWHERE = "exchange"  # Beam hands on what a task has left

Spent = dict[str, list[float]]  # by step: seconds of the processor, and seconds of waiting


@contextlib.contextmanager
def sampled() -> Iterator[Spent]:
    """Yield the account of the time that this thread spends in the body; it is whole after it."""
    thread, over, spent = threading.get_ident(), threading.Event(), Spent()

    def look() -> None:
        step, before = ELSEWHERE, clocks(thread)
        while True:
            ended = over.wait(EVERY)
            step = step if ended else step_of(sys._current_frames().get(thread))
            now = clocks(thread)
            used, passed = (one - other for one, other in zip(now, before, strict=True))
            times, before = spent.setdefault(step, [0.0, 0.0]), now
            times[:] = times[0] + used, times[1] + max(passed - used, 0.0)
            if ended:
                return

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield spent
    finally:
        over.set()
        looking.join()


def clocks(thread: int) -> tuple[float, float]:
    """Return the processor seconds of a thread, and the seconds of the clock."""
    if sys.platform == "darwin":  # has no such clock; a worker there has one task at a time
        return time.process_time(), time.monotonic()
    return time.clock_gettime(time.pthread_getcpuclockid(thread)), time.monotonic()


def step_of(frame: FrameType | None) -> str:
    """Return the step that a thread is in."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        while name.startswith("pipeline"):
            if name in STEPS:
                return STEPS[name]
            name = name.rpartition(".")[0]
        frame = frame.f_back
    return ELSEWHERE


def total(files: Iterable[Path]) -> Spent:
    """Return the time of all tasks, which have left it in `files`, in the order of the steps."""
    found: Spent = {}
    for path in files:
        for step, times in json.loads(path.read_text(encoding="utf-8")).items():
            found[step] = [a + b for a, b in zip(found.get(step, [0.0, 0.0]), times, strict=True)]
    return {step: [round(each, 2) for each in found[step]] for step in ORDER if step in found}


def line(spent: Spent) -> str:
    """Return the processor time and what it went into, in one line."""
    whole, waits = (sum(times[k] for times in spent.values()) for k in (0, 1))
    shares = ", ".join(f"{step} {times[0] / max(whole, 0.01):.0%}" for step, times in spent.items())
    return f"{whole:,.1f} s of processor time: {shares}; {waits:,.1f} s of waiting"
