"""What a step of the plan is on a Beam worker: what it gets, leaves and notes."""

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.beam.fast_import import beam
from pipeline.errors import Restart, UserError, disk_failure
from pipeline.filtering import minhash
from pipeline.preparation import timings
from pipeline.preparation.plan import PreparePlan
from pipeline.preparation.shuffle import Blocks, ShuffleWriter, read_blocks
from pipeline.storage.atomic import write_text

# Kinds of blobs that tasks leave.
DOCUMENTS, BANDS, SIGNATURES, PAIRS, WANTED, NEAR = "documents", "bands", "signatures", "pairs", "wanted", "near"


# What a task leaves for later ones: number of that task, kind, content.
Left = Iterator[tuple[int, str, bytes | pa.Buffer]]


def divided(kind: str, rows: np.ndarray, numbers: np.ndarray, tasks: int) -> Left:
    """Yield the part of a table that each task gets, by a number of each row."""
    for task, chosen in minhash.by_task(numbers, tasks):
        yield task, kind, rows[chosen].tobytes()


class Task(beam.DoFn):
    """A step of the plan on a worker.

    A user error is written to a file for the driver and the task ends normally, because engines
    retry failed tasks and print tracebacks. The other tasks see the file and end too.
    """

    main = DOCUMENTS  # the kind of its untagged output
    step = "exchange"  # of its time that is not counted otherwise

    def __init__(self, plan: PreparePlan):
        self.plan = plan

    def work(self, number: int, inputs: Iterable[Any]) -> Left:
        """Run task `number` of the step, with what earlier ones have left."""
        raise NotImplementedError

    def process(self, element: tuple[int, Iterable[Any]]) -> Iterator[Any]:
        """Run a task, unless one has found an error; yield (later task, `Block`)."""
        self.plan.check_current()
        if self.plan.error_note.exists():
            return
        task, folder = element[0], None if self.plan.config.runner.by_engine else self.plan.scratch
        with self.noted():
            with timings.counted(self.step) as times, ShuffleWriter(folder) as carrier:
                for number, (later, kind, blob) in enumerate(self.work(*element)):
                    for piece, token in enumerate(carrier.put(blob)):
                        left = later, (kind, task, number, piece, token)
                        yield left if kind == self.main else beam.pvalue.TaggedOutput(kind, left)
            write_text(self.plan.scratch / f"{type(self).__name__}-{task}{timings.ENDING}", json.dumps(times))
            for step, (used, _) in times.items():  # an engine shows them
                beam.metrics.Metrics.counter("prepare", f"{step}, processor ms").inc(round(1000 * used))

    def blobs(self, parts: Blocks, kind: str) -> Iterator[pa.Buffer]:
        """Yield what earlier tasks have left of this kind, in their order."""
        return read_blocks(self.plan.scratch, parts, kind)

    def signatures(self, parts: Blocks) -> minhash.Signatures:
        """Return the hashes and signatures that earlier tasks have left."""
        columns = minhash.HASH + self.plan.config.filters.permutations
        return minhash.from_bytes(self.blobs(parts, SIGNATURES), columns, np.uint32)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Write a user error raised in the body to the file that the driver reads."""
        try:
            yield
        except (UserError, Restart) as error:
            write_text(self.plan.error_note, json.dumps(error.record()))
        except Exception as error:
            if disk_failure(error) is None:
                raise
            try:
                write_text(self.plan.error_note, json.dumps({"disk": str(error)}))
            except OSError:  # that disk is also the note's: an empty file needs no space
                self.plan.error_note.touch()
