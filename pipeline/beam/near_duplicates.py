"""Near duplicates, found in as many tasks as there are for documents; none has all of them.

A reading task leaves one entry per band of each document for the task of the band's key, and the
signature for the task of its hash. `PairCandidates` pairs documents, `SendSignatures` sends both
signatures of a pair to one place, `ComparePairs` compares them; the rule is that of
`pipeline.filtering.minhash`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pipeline.beam.carrier import Part
from pipeline.beam.fast_import import beam
from pipeline.beam.plan import PreparePlan
from pipeline.beam.steps import BANDS, NEAR, PAIRS, SIGNATURES, WANTED, Left, Task
from pipeline.filtering import band_groups


class PairCandidates(Task):
    """Pair the documents that have an equal band."""

    main = PAIRS

    def work(self, number: int, given: Iterable[Part]) -> Iterator[Left]:
        """Leave the pairs for the task of the larger document, and who needs which signature."""
        tasks = self.plan.exchange.near_tasks
        entries = band_groups.from_bytes(self.blobs(given, BANDS), band_groups.ENTRY)
        pairs = band_groups.candidate_pairs(entries)
        for task, rows in band_groups.by_task(pairs[:, 1], tasks):
            yield task, PAIRS, band_groups.to_bytes(pairs[rows])
        wanted = band_groups.wanted_signatures(pairs, tasks)
        for task, rows in band_groups.by_task(wanted[:, 2], tasks):
            yield task, WANTED, band_groups.to_bytes(wanted[rows])


class SendSignatures(Task):
    """Send the signatures of documents to the tasks that compare them."""

    main = SIGNATURES

    def work(self, number: int, given: Iterable[Part]) -> Iterator[Left]:
        """Leave the signatures for each task that needs some."""
        parts = list(given)
        asked = band_groups.from_bytes(self.blobs(parts, WANTED), band_groups.WANTED)
        if not len(asked):
            return
        asked = band_groups.distinct(asked)
        permutations = self.plan.config.filters.permutations
        hashes, signatures = band_groups.unpack(self.blobs(parts, SIGNATURES), permutations)
        found = band_groups.places(hashes, asked[:, 1:])
        for task, rows in band_groups.by_task(asked[:, 0], self.plan.exchange.near_tasks):
            mine = found[rows]
            yield task, SIGNATURES, band_groups.pack(hashes[mine], signatures[mine])


class ComparePairs(Task):
    """Compare the signatures of candidate pairs."""

    main = NEAR

    def work(self, number: int, given: Iterable[Part]) -> Iterator[Left]:
        """Leave the hashes of documents to leave out for the tasks that write them."""
        plan, parts, filters = self.plan, list(given), self.plan.config.filters
        assert filters.near_duplicates is not None
        found = band_groups.near_duplicates(
            band_groups.from_bytes(self.blobs(parts, PAIRS), band_groups.PAIR),
            *band_groups.unpack(self.blobs(parts, SIGNATURES), filters.permutations),
            filters.near_duplicates,
        )
        buckets = [plan.bucket(document.tobytes()) for document in found.astype(">u8")]
        writes = np.array([plan.exchange.write_of(bucket) for bucket in buckets], np.uint64)
        for write, rows in band_groups.by_task(writes, plan.exchange.writes):
            yield write, NEAR, band_groups.to_bytes(found[rows])


def build(read: Any, plan: PreparePlan) -> beam.PCollection:
    """Build the graph from the outputs `BANDS` and `SIGNATURES` of the reading tasks."""
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
