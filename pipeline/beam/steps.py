"""The tasks of `prepare` that Beam's workers run, and the graph that joins them.

What a task leaves depends only on its input, and no attempt writes into the file of another: retries
and concurrent attempts are harmless.

Tasks leave what later ones need by `pipeline.preparation.shuffle`; the graph carries (number of the later task,
`Block`). It uses only Create, Reshuffle, ParDo, Flatten and GroupByKey: every Beam runner supports it.
"""

import contextlib
import errno
import json
import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.beam.fast_import import beam
from pipeline.beam.task import BANDS, DOCUMENTS, NEAR, PAIRS, SIGNATURES, WANTED, Left, Task, divided
from pipeline.common.batching import batches
from pipeline.errors import error_from_record
from pipeline.filtering import filters, minhash
from pipeline.preparation import write_shards
from pipeline.preparation.dedup import NewDocuments
from pipeline.preparation.documents import DocumentCounts, DocumentReader
from pipeline.preparation.plan import PreparePlan, unpack, vocabulary
from pipeline.preparation.progress import Report
from pipeline.preparation.read_cache import CachedRead, Splits, entry_name
from pipeline.preparation.shuffle import Blocks, batch_tokens, by_bucket, in_batches, unpack_block
from pipeline.preparation.tokenize import TokenizedDocuments
from pipeline.readers import FileRange
from pipeline.storage.atomic import write_text

CHUNK = 4 * 2**20  # characters tokenized at once: fastest, with constant memory


class Cancelled(Exception):
    """Another task has found an error."""


class Tokenize(Task):
    """Phase 1: read the documents of some splits, tokenize them, and sort them by bucket."""

    def setup(self) -> None:
        """Load the vocabulary and open the corpus, once per worker."""
        (self.plan.scratch / "begun").touch()
        self.plan.units.folder.mkdir(parents=True, exist_ok=True)
        with self.noted():
            self.intake = DocumentReader(self.plan.config)
            self.wordpiece = vocabulary(self.plan.config.vocab, self.plan.info.tokenizer)
            self.removed = filters.removed(self.plan.config.filters.remove)

    def work(self, number: int, inputs: Iterable[FileRange]) -> Left:
        """Read the ranges, or take what an earlier start has read; leave their documents by bucket."""
        plan, account, ranges = self.plan, DocumentCounts(), list(inputs)
        report, size = Report(plan.report(plan.read_account(number))), sum(split.size for split in ranges)
        name = entry_name(plan.reading, ranges)
        unit = plan.units.read(name) or self.read(name, ranges, report)
        if unit is None:
            return
        account.merge(DocumentCounts.from_json(unit[0]))
        documents, first = NewDocuments(plan, account, self.removed), plan.layout.first_place(number)
        for table in in_batches(map(documents.take, unit[1]), batch_tokens(plan.config)):
            for k, blob in by_bucket(table, plan.layout.range_bounds):
                yield first + k, DOCUMENTS, blob
        if documents.signed:
            yield from self.signed(documents)
        write_text(plan.read_account(number), json.dumps(account.to_json()))
        if account.removed:
            plan.units.remove([name])  # what is kept of a reading holds none of them either
        report(size, account.documents["read"], ended=True)

    def read(self, name: str, ranges: Splits, report: Report) -> CachedRead | None:
        """Read the documents of the ranges and tokenize them; None if another task has found an error."""
        account = DocumentCounts()
        documents = TokenizedDocuments(self.plan, account)

        def tables() -> Iterator[pa.Table]:
            for chunk in batches(self.intake.documents(ranges, account, report), CHUNK, lambda one: len(one.text)):
                if self.plan.error_note.exists():
                    raise Cancelled
                yield documents.add(self.wordpiece, chunk)
            account.totals.update(documents.coverage.counts())

        with contextlib.suppress(Cancelled):
            self.plan.units.write(name, tables(), account.to_json)
            return self.plan.units.read(name)
        return None

    def signed(self, documents: NewDocuments) -> Left:
        """Yield the MinHash signatures of documents, and their bands."""
        tasks, threshold = self.plan.layout.near_tasks, self.plan.config.filters.near_duplicates
        assert threshold is not None
        hashes, signatures = documents.signatures(documents.taken)
        yield from divided(SIGNATURES, minhash.joined(hashes, signatures), hashes[:, 1], tasks)
        removed = minhash.band_entries(*documents.signatures(documents.gone), threshold)
        removed[:, 0] |= minhash.GONE
        entries = np.concatenate([minhash.band_entries(hashes, signatures, threshold), removed])
        yield from divided(BANDS, entries, entries[:, 1], tasks)


class PairCandidates(Task):
    """Pair the documents that have an equal band."""

    main, step = PAIRS, "near duplicates"

    def work(self, number: int, inputs: Blocks) -> Left:
        """Leave the pairs for the task of the larger document, and who needs which signature."""
        tasks = self.plan.layout.near_tasks
        entries = minhash.from_bytes(self.blobs(inputs, BANDS), minhash.ENTRY)
        pairs = minhash.candidate_pairs(entries)
        yield from divided(PAIRS, pairs, pairs[:, 1], tasks)
        requests = minhash.wanted_signatures(pairs, tasks)
        yield from divided(WANTED, requests, requests[:, 2], tasks)


class SendSignatures(Task):
    """Send the signatures of documents to the tasks that compare them."""

    main, step = SIGNATURES, "near duplicates"

    def work(self, number: int, inputs: Blocks) -> Left:
        """Leave the signatures for each task that needs some."""
        parts = list(inputs)
        requests = minhash.from_bytes(self.blobs(parts, WANTED), minhash.WANTED)
        if not len(requests):
            return
        requests = minhash.distinct(requests)
        signed = self.signatures(parts)
        positions = minhash.places(signed, requests[:, 1:])
        for task, rows in minhash.by_task(requests[:, 0], self.plan.layout.near_tasks):
            yield task, SIGNATURES, signed[positions[rows]].tobytes()


class ComparePairs(Task):
    """Compare the signatures of candidate pairs."""

    main, step = NEAR, "near duplicates"

    def work(self, number: int, inputs: Blocks) -> Left:
        """Leave the hashes of documents to leave out for the tasks that write them."""
        plan, parts, filters = self.plan, list(inputs), self.plan.config.filters
        assert filters.near_duplicates is not None
        duplicates = minhash.near_duplicates(
            minhash.from_bytes(self.blobs(parts, PAIRS), minhash.PAIR), self.signatures(parts), filters.near_duplicates
        ).astype(">u8")
        buckets = [plan.bucket(document.tobytes()) for document in duplicates]
        writes = np.array([plan.layout.write_of(bucket) for bucket in buckets], np.uint64)
        yield from divided(NEAR, duplicates, writes, plan.layout.writes)


@beam.ptransform_fn
def near_duplicates(read: Any, plan: PreparePlan) -> beam.PCollection:  # Beam warns of a hint that is a tuple
    """Return the documents to leave out, for the tasks that write them, from the bands and signatures.

    No task has all documents: a reading task leaves one entry per band of each document for the task of the
    band's key, and the signature for the task of its hash. The rule is that of `pipeline.filtering.minhash`.
    """
    bands, signatures = read
    paired = (
        bands
        | "By band" >> beam.GroupByKey()
        | "Pair" >> beam.ParDo(PairCandidates(plan)).with_outputs(WANTED, main=PAIRS)
    )
    sent = (
        (signatures, paired[WANTED])
        | "Signatures and who needs them" >> beam.Flatten()
        | "By document" >> beam.GroupByKey()
        | "Send signatures" >> beam.ParDo(SendSignatures(plan))
    )
    return (
        (paired[PAIRS], sent)
        | "Pairs and signatures" >> beam.Flatten()
        | "By larger document" >> beam.GroupByKey()
        | "Compare" >> beam.ParDo(ComparePairs(plan))
    )


class Merge(Task):
    """Between the phases, if there would be too many parts: merge one range of one group."""

    def work(self, number: int, inputs: Blocks) -> Left:
        """Merge the documents of one place, for the writing tasks of its range."""
        layout = self.plan.layout
        index = number % layout.ranges
        tables = map(unpack_block, self.blobs(inputs, DOCUMENTS))
        for table in in_batches(tables, batch_tokens(self.plan.config)):
            for k, blob in by_bucket(table, layout.write_bounds(index)):
                yield layout.first_write(index) + k, DOCUMENTS, blob


class WriteShards(Task):
    """Phase 2: write the shards of some buckets."""

    def work(self, number: int, inputs: Blocks) -> Left:
        """Write the shards of the documents, without their near duplicates."""
        plan, parts = self.plan, list(inputs)
        near = np.frombuffer(b"".join(self.blobs(parts, NEAR)), "V16")
        table = pa.concat_tables(map(unpack_block, self.blobs(parts, DOCUMENTS)))
        report, account = Report(plan.report(plan.write_account(number))), DocumentCounts()
        loaded = write_shards.load(plan, number, table, near, account)
        del table
        plan.check_current()
        count = len(loaded.names)
        write_shards.write(plan, loaded, account, lambda done: report(done * count))
        write_text(plan.write_account(number), json.dumps(account.to_json()))
        report(count, ended=True)
        yield from ()


def build(pipeline: beam.Pipeline, plan: PreparePlan) -> beam.PCollection:
    """Build the graph: packets of splits -> reading tasks -> writing tasks."""
    read = (
        pipeline
        | "Splits" >> beam.Create(list(plan.packets()))
        | "Unpack" >> beam.FlatMap(unpack)
        | "Spread splits" >> beam.Reshuffle()
        | "Tokenize" >> beam.ParDo(Tokenize(plan)).with_outputs(BANDS, SIGNATURES, main=DOCUMENTS)
    )
    parts = read[DOCUMENTS]
    if plan.layout.merges:
        parts = parts | "By place" >> beam.GroupByKey() | "Merge" >> beam.ParDo(Merge(plan))
    if plan.config.filters.near_duplicates is not None:
        near = (read[BANDS], read[SIGNATURES]) | "Near duplicates" >> near_duplicates(plan)
        parts = (parts, near) | "With near duplicates" >> beam.Flatten()
    return parts | "By bucket" >> beam.GroupByKey() | "Write shards" >> beam.ParDo(WriteShards(plan))


def raise_noted(plan: PreparePlan) -> None:
    """Raise the error that a task has written, if any.

    Raises:
        InputError: a worker found an error in the input.
        Restart: an object store did not respond.
        OSError: the disk is full, over quota or read-only.
    """
    if plan.error_note.exists():
        text = plan.error_note.read_text(encoding="utf-8")
        if not text:  # there was no space for more
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        note = json.loads(text)
        if "disk" in note:
            raise OSError(note["disk"])
        raise error_from_record(note)


def run(plan: PreparePlan) -> None:
    """Run the graph to completion.

    Raises:
        UserError: a worker found an error in the input.
        RuntimeError: a task failed.
    """
    from pipeline.beam import runners  # of the driver

    plan.claim()
    # Exceptions of tasks are raised by `run`; Beam would also log their tracebacks.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    try:
        with runners.start(plan.config.runner, plan.layout) as (engine, flags):
            if plan.config.runner.name not in runners.PORTABLE:
                with beam.Pipeline(runner=engine, options=flags) as pipeline:
                    build(pipeline, plan)
            else:
                from pipeline.beam import services  # imports an HTTP client

                services.run(plan, engine, flags, build)
    finally:
        raise_noted(plan)
