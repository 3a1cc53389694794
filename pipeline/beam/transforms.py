"""The Beam graph of `prepare`.

Tasks leave what later ones need by `pipeline.beam.carrier`; the graph carries (number of the later task,
`Part`). It uses only Create, Reshuffle, ParDo, Flatten and GroupByKey: every Beam runner supports it.
"""

import errno
import json
import logging
import os
from collections.abc import Iterator
from typing import Any

from pipeline.beam import runners
from pipeline.beam.fast_import import beam
from pipeline.beam.plan import PreparePlan, unpack
from pipeline.beam.steps import (
    BANDS,
    DOCUMENTS,
    PAIRS,
    SIGNATURES,
    WANTED,
    ComparePairs,
    Merge,
    PairCandidates,
    SendSignatures,
    Tokenize,
    WriteShards,
)
from pipeline.common.errors import of_record


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
    if plan.exchange.merges:
        parts = parts | "By place" >> beam.GroupByKey() | "Merge" >> beam.ParDo(Merge(plan))
    if plan.config.filters.near_duplicates is not None:
        parts = (parts, near_duplicates(read, plan)) | "With near duplicates" >> beam.Flatten()
    return parts | "By bucket" >> beam.GroupByKey() | "Write shards" >> beam.ParDo(WriteShards(plan))


def near_duplicates(read: Any, plan: PreparePlan) -> beam.PCollection:
    """Return what finds near duplicates from `BANDS` and `SIGNATURES`, in tasks none of which has all documents.

    A reading task leaves one entry per band of each document for the task of the band's key, and the
    signature for the task of its hash. The rule is that of `pipeline.filtering.minhash`.
    """
    paired = (
        read[BANDS]
        | "By band" >> beam.GroupByKey()
        | "Pair" >> beam.ParDo(PairCandidates(plan)).with_outputs(WANTED, main=PAIRS)
    )
    sent = (
        (read[SIGNATURES], paired[WANTED])
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
        raise of_record(note)


def run(plan: PreparePlan) -> None:
    """Run the graph to completion.

    Raises:
        UserError: a worker found an error in the input.
        RuntimeError: a task failed.
    """
    plan.claim()
    # Exceptions of tasks are raised by `run`; Beam would also log their tracebacks.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    try:
        with runners.start(plan.config.runner, plan.exchange) as (engine, flags):
            if plan.config.runner.name not in runners.PORTABLE:
                with beam.Pipeline(runner=engine, options=flags) as pipeline:
                    build(pipeline, plan)
            else:
                from pipeline.beam import services  # imports an HTTP client

                services.run(plan, engine, flags, build)
    finally:
        raise_noted(plan)


def accounts(plan: PreparePlan) -> Iterator[dict[str, Any]]:
    """Yield the counts of all tasks, those that read before those that write.

    Raises:
        OSError: the engine has lost a task.
    """
    for read in range(plan.exchange.reads):
        yield json.loads(plan.read_account(read).read_bytes())
    for write in range(plan.exchange.writes):
        path = plan.write_account(write)
        if path.exists():  # else no document fell into its buckets
            yield json.loads(path.read_bytes())
