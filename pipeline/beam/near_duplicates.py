"""The search for near duplicates as a Beam transform."""

from typing import Any

import numpy as np

from pipeline.beam.fast_import import beam
from pipeline.beam.task import BANDS, NEAR, PAIRS, SIGNATURES, WANTED, Left, Task, divided
from pipeline.filtering import minhash
from pipeline.preparation.plan import PreparePlan
from pipeline.preparation.shuffle import Blocks


class PairCandidates(Task):
    """Pair the documents that have an equal band."""

    main, step = PAIRS, "near duplicates"

    def work(self, number: int, given: Blocks) -> Left:
        """Leave the pairs for the task of the larger document, and who needs which signature."""
        tasks = self.plan.layout.near_tasks
        entries = minhash.from_bytes(self.blobs(given, BANDS), minhash.ENTRY)
        pairs = minhash.candidate_pairs(entries)
        yield from divided(PAIRS, pairs, pairs[:, 1], tasks)
        wanted = minhash.wanted_signatures(pairs, tasks)
        yield from divided(WANTED, wanted, wanted[:, 2], tasks)


class SendSignatures(Task):
    """Send the signatures of documents to the tasks that compare them."""

    main, step = SIGNATURES, "near duplicates"

    def work(self, number: int, given: Blocks) -> Left:
        """Leave the signatures for each task that needs some."""
        parts = list(given)
        asked = minhash.from_bytes(self.blobs(parts, WANTED), minhash.WANTED)
        if not len(asked):
            return
        asked = minhash.distinct(asked)
        signed = self.signatures(parts)
        found = minhash.places(signed, asked[:, 1:])
        for task, rows in minhash.by_task(asked[:, 0], self.plan.layout.near_tasks):
            yield task, SIGNATURES, signed[found[rows]].tobytes()


class ComparePairs(Task):
    """Compare the signatures of candidate pairs."""

    main, step = NEAR, "near duplicates"

    def work(self, number: int, given: Blocks) -> Left:
        """Leave the hashes of documents to leave out for the tasks that write them."""
        plan, parts, filters = self.plan, list(given), self.plan.config.filters
        assert filters.near_duplicates is not None
        found = minhash.near_duplicates(
            minhash.from_bytes(self.blobs(parts, PAIRS), minhash.PAIR), self.signatures(parts), filters.near_duplicates
        )
        buckets = [plan.bucket(document.tobytes()) for document in found.astype(">u8")]
        writes = np.array([plan.layout.write_of(bucket) for bucket in buckets], np.uint64)
        yield from divided(NEAR, found, writes, plan.layout.writes)


class NearDuplicates(beam.PTransform):
    """Search for near duplicates by bands and signatures, in tasks none of which has all documents.

    A reading task leaves one entry per band of each document for the task of the band's key, and the
    signature for the task of its hash. The rule is that of `pipeline.filtering.minhash`.
    """

    def __init__(self, plan: PreparePlan):
        super().__init__()
        self.plan = plan

    def expand(self, read: Any) -> beam.PCollection:  # Beam warns of a hint that is a tuple
        """Return the documents to leave out, for the tasks that write them, from the bands and signatures."""
        plan, (bands, signatures) = self.plan, read
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
