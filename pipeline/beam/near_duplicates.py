"""Near duplicates where the engine carries documents: in as many tasks as there are for documents.

A reading task sends one entry per band of each document to the task of the band's key, and the
signature to the task of its hash. `PairCandidates` pairs documents, `SendSignatures` sends both
signatures of a pair to one place, `ComparePairs` compares them; the rule is that of
`pipeline.filtering.minhash`. Without them, where files do, `steps.NearDuplicates` is a single task.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pipeline.beam.fast_import import beam
from pipeline.beam.plan import PreparePlan
from pipeline.beam.steps import BANDS, SIGNATURES, WANTED, Task
from pipeline.filtering import band_groups

Parts = Iterable[tuple[str, bytes]]  # kind and content


class PairCandidates(Task):
    """Pair the documents that have an equal band."""

    def work(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        """Yield the pairs for the task of the larger document, and who needs which signature."""
        tasks = self.plan.exchange.near_tasks
        pairs = band_groups.candidate_pairs(band_groups.from_bytes(element[1], band_groups.ENTRY))
        for task, rows in band_groups.by_task(band_groups.task_of(pairs[:, 1], tasks)):
            yield task, (BANDS, band_groups.to_bytes(pairs[rows]))
        wanted = band_groups.wanted_signatures(pairs, tasks)
        for task, rows in band_groups.by_task(band_groups.task_of(wanted[:, 2], tasks)):
            content = band_groups.to_bytes(wanted[rows])
            yield beam.pvalue.TaggedOutput(WANTED, (task, (WANTED, content)))


class SendSignatures(Task):
    """Send the signatures of documents to the tasks that compare them."""

    def work(self, element: tuple[int, Parts]) -> Iterator[tuple[int, tuple[str, bytes]]]:
        """Yield the signatures for each task that needs some."""
        parts = list(element[1])
        asked = band_groups.from_bytes(of_kind(parts, WANTED), band_groups.WANTED)
        if not len(asked):
            return
        asked = band_groups.distinct(asked)
        permutations = self.plan.config.filters.permutations
        hashes, signatures = band_groups.unpack(of_kind(parts, SIGNATURES), permutations)
        del parts
        found = band_groups.places(hashes, asked[:, 1:])
        for task, rows in band_groups.by_task(asked[:, 0].astype(np.int64)):
            mine = found[rows]
            yield task, (SIGNATURES, band_groups.pack(hashes[mine], signatures[mine]))


class ComparePairs(Task):
    """Compare the signatures of candidate pairs."""

    def work(self, element: tuple[int, Parts]) -> Iterator[tuple[int, Any]]:
        """Yield (writing task, hashes) for the writing tasks of both documents of each pair."""
        plan, (task, parts) = self.plan, (element[0], list(element[1]))
        filters = plan.config.filters
        assert filters.near_duplicates is not None
        found = band_groups.similar_pairs(
            band_groups.from_bytes(of_kind(parts, BANDS), band_groups.PAIR),
            *band_groups.unpack(of_kind(parts, SIGNATURES), filters.permutations),
            filters.near_duplicates,
        )
        documents = found.reshape(-1, 2).astype(">u8")
        buckets = [plan.bucket(document.tobytes()) for document in documents]
        writes = np.array([plan.exchange.write_of(k) for k in buckets]).reshape(-1, 2)
        for write in np.unique(writes).tolist():
            mine = found[(writes == write).any(axis=1)]
            yield write, (-1, task, band_groups.to_bytes(mine))


def of_kind(parts: Parts, kind: str) -> list[bytes]:
    """Return the contents of one kind."""
    return [content for each, content in parts if each == kind]


def build(read: Any, plan: PreparePlan) -> beam.PCollection:
    """Build the graph from the outputs `BANDS` and `SIGNATURES` of the reading tasks."""
    paired = (
        read[BANDS]
        | "By band" >> beam.GroupByKey()
        | "Pair" >> beam.ParDo(PairCandidates(plan)).with_outputs(WANTED, main="pairs")
    )
    sent = (
        (read[SIGNATURES], paired[WANTED])
        | "Signatures and who needs them" >> beam.Flatten()
        | "By document" >> beam.GroupByKey()
        | "Send signatures" >> beam.ParDo(SendSignatures(plan))
    )
    return (
        (paired.pairs, sent)
        | "Pairs and signatures" >> beam.Flatten()
        | "By larger document" >> beam.GroupByKey()
        | "Compare" >> beam.ParDo(ComparePairs(plan))
    )
