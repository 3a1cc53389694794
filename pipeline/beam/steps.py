"""The tasks of `prepare` that Beam's workers run; `pipeline.beam.transforms` joins them.

A task writes its own files atomically, and their bytes depend only on its input: retries and
concurrent attempts are harmless.
"""

import contextlib
import functools
import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.beam import writing
from pipeline.beam.buckets import BatchFile, TokenizedDocuments, batches, merge, pack_batches, places_of, unpack_batches
from pipeline.beam.documents import DocumentCounts, DocumentReader, KeptDocument
from pipeline.beam.fast_import import beam
from pipeline.beam.plan import PreparePlan, unpack
from pipeline.beam.progress import Report
from pipeline.common.atomic import atomic_path, write_text
from pipeline.common.errors import InputError, Restart, UserError, disk_failure
from pipeline.filtering import band_groups, minhash
from pipeline.readers import FileRange
from pipeline.tokenization.wordpiece import WordPiece

# Outputs of tasks where the engine carries documents.
ACCOUNTS, BANDS, SIGNATURES, WANTED = "accounts", "bands", "signatures", "wanted"
READING, WRITING = 0, 1  # phases


class Task(beam.DoFn):
    """A step of the plan on a worker.

    A user error is written to a file for the driver and the task ends normally, because engines
    retry failed tasks and print tracebacks. The other tasks see the file and end too.
    """

    def __init__(self, plan: PreparePlan):
        self.plan = plan

    def work(self, element: Any) -> Iterator[Any]:
        """Run the step."""
        raise NotImplementedError

    def process(self, element: Any) -> Iterator[Any]:
        """Run the step, unless a task has found an error."""
        if not self.plan.is_current:
            raise RuntimeError("another run is writing to this folder")
        if not self.cancelled():
            with self.noted():
                yield from self.work(element)

    def cancelled(self) -> bool:
        """Return whether a task has found an error."""
        return self.plan.error_note.exists()

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Write a user error raised in the body to the file that the driver reads."""
        try:
            yield
        except (UserError, Restart) as error:
            note = {"restart": str(error)} if isinstance(error, Restart) else error.record()
            write_text(self.plan.error_note, json.dumps(note))
        except Exception as error:
            if disk_failure(error) is None:
                raise
            try:
                write_text(self.plan.error_note, json.dumps({"disk": str(error)}))
            except OSError:  # that disk is also the note's: an empty file needs no space
                self.plan.error_note.touch()


class Unpack(beam.DoFn):
    """Before the first phase: unpack the reading tasks."""

    def process(self, element: bytes) -> Iterator[tuple[int, list[FileRange]]]:
        """Yield (reading task, splits)."""
        yield from unpack(element)


class Tokenize(Task):
    """Phase 1: read the documents of some splits, tokenize them, and sort them by bucket."""

    def setup(self) -> None:
        """Load the vocabulary and open the corpus, once per worker."""
        (self.plan.scratch / "begun").touch()
        with self.noted():
            self.intake = DocumentReader(self.plan.config)
            self.wordpiece = vocabulary(self.plan.config.vocab, self.plan.info.tokenizer)

    def work(self, element: tuple[int, list[FileRange]]) -> Iterator[Any]:
        """Read the splits of `element`; yield where its documents go, or the documents."""
        plan, account = self.plan, DocumentCounts()
        read, splits = element
        found, report = TokenizedDocuments(plan, account), Report(plan.report(plan.read_account(read)))
        carry = self.send if plan.by_engine else self.leave
        yield from carry(read, self.portions(self.intake.chunks(splits, account, report), found))
        if self.cancelled():
            return
        account.totals.update(found.coverage.counts())
        if plan.by_engine:
            yield from self.send_signatures(found)
            text = json.dumps(vars(account))
            yield beam.pvalue.TaggedOutput(ACCOUNTS, (0, (READING, read, text)))
        else:
            found.save_signatures(plan.signatures(read))
            write_text(plan.read_account(read), json.dumps(vars(account)))
        size = sum(split.end - split.start for split in splits)
        report.finish(size, account.documents["read"])

    def portions(self, chunks: Iterator[list[KeptDocument]], found: TokenizedDocuments) -> Iterator[pa.Table]:
        """Yield the documents in portions, until a task has found an error."""
        most = self.plan.portion
        given = 0
        for chunk in chunks:
            if self.cancelled():
                return
            found.add(self.wordpiece, chunk)
            if found.tokens - given > most:
                given = found.tokens
                if (table := found.take()) is not None:
                    yield table
        if (table := found.take()) is not None:
            yield table

    def leave(self, read: int, portions: Iterator[pa.Table]) -> Iterator[tuple[int, int]]:
        """Write the documents to a file; yield (writing task or group, `read`) for those in use."""
        exchange = self.plan.exchange
        with BatchFile(self.plan.read_file(read), exchange.range_bounds) as file:
            for table in portions:
                file.write(table)
        if not exchange.merges:
            yield from ((write, read) for write in sorted(file.used))
        elif file.used:
            yield exchange.group(read), read

    def send(self, read: int, portions: Iterator[pa.Table]) -> Iterator[tuple[int, Any]]:
        """Yield the documents for the engine: (writing task or place of a merge, part)."""
        exchange = self.plan.exchange
        first = exchange.group(read) * exchange.ranges if exchange.merges else 0
        for part, table in enumerate(portions):
            for k, packed in pack_batches(table, exchange.range_bounds):
                yield first + k, (read, part, packed)

    def send_signatures(self, found: TokenizedDocuments) -> Iterator[Any]:
        """Yield the MinHash signatures, and their bands, for the engine."""
        if (signed := found.signed()) is None:
            return
        hashes, signatures = signed
        tasks, threshold = self.plan.exchange.near_tasks, self.plan.config.filters.near_duplicates
        assert threshold is not None
        for task, rows in band_groups.by_task(band_groups.task_of(hashes[:, 1], tasks)):
            content = band_groups.pack(hashes[rows], signatures[rows])
            yield beam.pvalue.TaggedOutput(SIGNATURES, (task, (SIGNATURES, content)))
        entries = band_groups.band_entries(hashes, signatures, threshold)
        for task, rows in band_groups.by_task(band_groups.task_of(entries[:, 1], tasks)):
            content = band_groups.to_bytes(entries[rows])
            yield beam.pvalue.TaggedOutput(BANDS, (task, content))


class Ranges(beam.DoFn):
    """Between the phases, if files are merged: fan out a group of reading tasks into ranges."""

    def __init__(self, ranges: int):
        self.ranges = ranges

    def process(self, element: tuple[int, Iterable[int]]) -> Iterator[tuple[int, int, list[int]]]:
        """Yield (group, range of writing tasks, reading tasks) for each range."""
        group, reads = element[0], sorted(set(element[1]))
        yield from ((group, index, reads) for index in range(self.ranges))


class Merge(Task):
    """Between the phases, if files are merged: merge one range of one group."""

    def work(self, element: tuple[int, int, list[int]]) -> Iterator[tuple[int, int]]:
        """Merge an `element` of `Ranges`; yield (writing task, group) for those in use."""
        group, index, reads = element
        yield from ((write, group) for write in merge(self.plan, group, index, reads))


class MergeParts(Task):
    """Between the phases, if the engine carries documents: merge one range of one group."""

    def work(self, element: tuple[int, Iterable[Any]]) -> Iterator[tuple[int, Any]]:
        """Merge the parts of one place; yield (writing task, part)."""
        exchange, (place, parts) = self.plan.exchange, element
        group, index = divmod(place, exchange.ranges)
        first = exchange.first_write(index)
        for k, packed in pack_batches(unpack_batches(parts), exchange.write_bounds(index)):
            yield first + k, (group, 0, packed)


@functools.lru_cache(maxsize=1)
def loaded(place: str) -> WordPiece:
    """Return a vocabulary, cached per process: loading takes 0.2 s."""
    return WordPiece.load(place)


def vocabulary(place: str, sha256: str) -> WordPiece:
    """Return the vocabulary of a plan.

    Raises:
        InputError: it has changed since the plan was made.
    """
    wordpiece = loaded(place)
    if wordpiece.sha256 != sha256:
        loaded.cache_clear()
        wordpiece = loaded(place)
    if wordpiece.sha256 != sha256:
        raise InputError("was changed during the run; rerun the command", "vocab", place)
    return wordpiece


class ToOne(beam.DoFn):
    """Assign a single key to all elements, to make one task wait for all of them."""

    def process(self, element: tuple[int, Iterable[int]]) -> Iterator[tuple[int, Any]]:
        """Yield the writing task and its sources under key 0."""
        write, sources = element
        yield 0, (write, sorted(set(sources)))


class NearDuplicates(Task):
    """Between the phases: find near duplicates among the documents of all splits."""

    def work(self, element: tuple[int, Iterable[Any]]) -> Iterator[tuple[int, Iterable[int]]]:
        """Write the near duplicates, then yield all writing tasks with their sources."""
        plan, config = self.plan, self.plan.config.filters
        assert config.near_duplicates is not None
        paths = [plan.signatures(read) for read in range(plan.exchange.reads)]
        found = minhash.find_duplicates(
            [path for path in paths if path.exists()],  # some have no documents
            config.permutations,
            config.near_duplicates,
        )
        with atomic_path(plan.near_duplicates()) as path:
            np.concatenate(found, axis=1).tofile(path)
        yield from ((write, sorted(sources)) for write, sources in element[1])


class WriteShards(Task):
    """Phase 2: write the shards of some buckets."""

    def work(self, element: tuple[int, Iterable[Any]]) -> Iterator[Any]:
        """Write the shards of `element`, a writing task and the sources or parts of documents."""
        plan, (write, sources) = self.plan, element
        if plan.by_engine:
            parts = list(sources)
            near = b"".join(part[2] for part in parts if part[0] < 0)
            found = np.frombuffer(near, np.uint64).reshape(-1, 4)
            table = unpack_batches(part for part in parts if part[0] >= 0)
            del parts
        else:
            table = pa.Table.from_batches(batches(places_of(plan, write, sorted(set(sources)))))
            found = near_duplicates(plan)
        report = Report(plan.report(plan.write_account(write)))
        buckets = writing.load(plan, write, table, found)
        del table
        if not plan.is_current:
            raise RuntimeError("another run is writing to this folder")
        count = len(buckets.names)
        account = writing.write(plan, buckets, lambda done: report(done * count))
        text = json.dumps(account)
        if plan.by_engine:
            yield 0, (WRITING, write, text)
        else:
            write_text(plan.write_account(write), text)
        report.finish(count)


class Collect(Task):
    """After both phases, if the engine carries documents: write the counts of all tasks."""

    def work(self, element: tuple[int, Iterable[tuple[int, int, str]]]) -> Iterator[Any]:
        """Write the counts of the reading tasks, then those of the writing tasks."""
        found = {(phase, number): text for phase, number, text in element[1]}
        lines = [f"{found[place]}\n" for place in sorted(found)]
        if sum(phase == READING for phase, _ in found) == self.plan.exchange.reads:
            write_text(self.plan.accounts, "".join(lines))
        yield from ()


def near_duplicates(plan: PreparePlan) -> np.ndarray:
    """Return hashes of documents to leave out and of those that they are similar to: `(N, 4)`."""
    if plan.config.filters.near_duplicates is None:
        return np.zeros((0, 4), np.uint64)
    return np.fromfile(plan.near_duplicates(), np.uint64).reshape(-1, 4)
