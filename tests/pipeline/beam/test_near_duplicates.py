"""Near duplicates found by many tasks are those that one task finds."""

import dataclasses
import functools
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import prepare
from pipeline.beam.buckets import TokenizedDocuments
from pipeline.beam.documents import DocumentCounts
from pipeline.beam.exchange import Exchange
from pipeline.beam.fast_import import beam
from pipeline.beam.near_duplicates import ComparePairs, PairCandidates, SendSignatures
from pipeline.beam.plan import PreparePlan
from pipeline.beam.steps import BANDS, SIGNATURES, WANTED, Tokenize
from pipeline.config import CorpusConfig, FiltersConfig, PrepareConfig, RunnerConfig
from pipeline.filtering import band_groups, minhash
from pipeline.tokenization.wordpiece import SPECIAL, build

pytest.importorskip("rensa")
PERMUTATIONS = 6


@functools.cache
def planned() -> PreparePlan:
    """Return a plan of one split and two buckets."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "tokenizer.json").write_text(build([*SPECIAL, "a"]))
        (place / "a.txt").write_text("a")
        config = PrepareConfig(
            corpus=CorpusConfig(name="a", reader="lines", path=f"{place}/a.txt"),
            source="",
            runner=RunnerConfig(exchange="engine"),
            vocab=folder,
            out="",
            validation_share=0.1,
            filters=FiltersConfig(near_duplicates=0.5, permutations=PERMUTATIONS),
        )
        return prepare.plan(config, place)


def laid_out(threshold: float, reads: int, tasks: int) -> PreparePlan:
    """Return the plan of `reads` reading and `tasks` other tasks."""
    plan = planned()
    filters = dataclasses.replace(plan.config.filters, near_duplicates=threshold)
    return dataclasses.replace(
        plan,
        config=dataclasses.replace(plan.config, filters=filters),
        buckets={"train": 2 * tasks, "validation": tasks},
        exchange=Exchange(buckets=3 * tasks, reads=reads, writes=tasks, ranges=tasks, groups=reads, portions=reads),
    )


class Sent:
    """What tasks have sent, by output and key; values arrive in any order, some of them twice."""

    def __init__(self, draw: random.Random):
        self.draw, self.values = draw, defaultdict[str, dict[int, list[Any]]](dict)

    def add(self, results: Iterable[Any], main: str = "") -> None:
        """Keep the results of a task."""
        for each in results:
            tagged = isinstance(each, beam.pvalue.TaggedOutput)
            name, (key, value) = (each.tag, each.value) if tagged else (main, each)
            again = 1 + (self.draw.random() < 0.2)
            self.values[name].setdefault(key, []).extend([value] * again)

    def grouped(self, *names: str) -> Iterable[tuple[int, list[Any]]]:
        """Yield the values of these outputs by key, as GroupByKey does."""
        for key in {key for name in names for key in self.values[name]}:
            found = [value for name in names for value in self.values[name].get(key, [])]
            self.draw.shuffle(found)
            yield key, found


def found_by_tasks(
    plan: PreparePlan, parts: list[tuple[np.ndarray, np.ndarray]], draw: random.Random
) -> dict[int, np.ndarray]:
    """Return the near duplicates that each writing task is sent."""
    sent = Sent(draw)
    for hashes, signatures in parts:
        read = TokenizedDocuments(plan, DocumentCounts())
        read.hashes = [row.tobytes() for row in hashes.astype(">u8")]
        read.signatures = [signatures]
        sent.add(Tokenize(plan).send_signatures(read))
    for element in sent.grouped(BANDS):
        sent.add(PairCandidates(plan).work(element), "pairs")
    for element in sent.grouped(SIGNATURES, WANTED):
        sent.add(SendSignatures(plan).work(element), "sent")
    for element in sent.grouped("pairs", "sent"):
        sent.add(ComparePairs(plan).work(element), "found")
    return {
        write: band_groups.from_bytes([content for *_, content in values], 4) for write, values in sent.grouped("found")
    }


def rows_of(table: np.ndarray) -> set[tuple[int, ...]]:
    return set(map(tuple, table.tolist()))


@given(
    seed=st.integers(0, 2**32),
    documents=st.integers(1, 60),
    values=st.integers(1, 4),
    kinds=st.integers(1, 12),
    threshold=st.sampled_from([0.3, 0.5, 0.7, 0.9, 1.0]),
    reads=st.integers(1, 5),
    tasks=st.integers(1, 7),
)
def test_many_tasks_find_what_one_finds(
    seed: int, documents: int, values: int, kinds: int, threshold: float, reads: int, tasks: int
) -> None:
    draw = np.random.default_rng(seed)
    plan = laid_out(threshold, reads, tasks)
    hashes = draw.integers(0, 2**64, (documents, 2), np.uint64)
    drafts = draw.integers(0, values, (kinds, PERMUTATIONS), np.uint32)
    signatures = drafts[draw.integers(0, kinds, documents)]
    changed = draw.random(signatures.shape) < 0.15
    signatures[changed] = draw.integers(0, values, int(changed.sum()), np.uint32)
    rows = [draw.integers(0, documents, 15) for _ in range(reads)]  # equal documents among them
    parts = [(hashes[mine], signatures[mine]) for mine in rows]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, str(k)) for k in range(reads)]
        for path, part in zip(paths, parts, strict=True):
            minhash.save(path, *part)
        expected = np.concatenate(minhash.find_duplicates(paths, PERMUTATIONS, threshold), axis=1)
    found = found_by_tasks(plan, parts, random.Random(seed))
    assert rows_of(expected) == {row for table in found.values() for row in rows_of(table)}
    for row in expected:
        for document in (row[:2], row[2:]):
            write = plan.exchange.write_of(plan.bucket(document.astype(">u8").tobytes()))
            assert tuple(row.tolist()) in rows_of(found[write])


def test_a_signature_that_the_engine_has_lost_is_an_error() -> None:
    plan = laid_out(0.5, 1, 1)
    wanted = band_groups.to_bytes(np.array([[0, 1, 2]], np.uint64))
    with pytest.raises(RuntimeError, match="lost"):
        list(SendSignatures(plan).work((0, [(WANTED, wanted)])))


def test_pairs_of_all_documents_are_few() -> None:
    """A document that is repeated with small changes has two pairs per band, not one per copy."""
    count, bands = 1000, 18
    signatures = np.zeros((count, 128), np.uint32)
    hashes = np.arange(2 * count, dtype=np.uint64).reshape(count, 2)
    entries = band_groups.band_entries(hashes, signatures, 0.8)
    assert len(entries) == bands * count
    assert len(band_groups.candidate_pairs(entries)) < 2 * count
