"""Near duplicates found by many tasks are those of the rule, written out document by document."""

import dataclasses
import functools
import itertools
import random
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.beam.steps import ComparePairs, PairCandidates, SendSignatures, Tokenize
from pipeline.beam.task import BANDS, NEAR, PAIRS, SIGNATURES, WANTED
from pipeline.config import FiltersConfig, RunnerConfig
from pipeline.filtering import minhash
from pipeline.preparation import shuffle
from pipeline.preparation.dedup import NewDocuments
from pipeline.preparation.documents import DocumentCounts
from pipeline.preparation.plan import make_plan
from pipeline.preparation.shuffle import NEAR_BYTES, Block, ShuffleLayout
from tests.support import preparing

pytest.importorskip("rensa")
PERMUTATIONS = 6


@functools.cache
def planned():
    """Return a plan of one split and two buckets."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        preparing.vocabulary(place, ["a"])
        (place / "a.txt").write_text("a")
        near = FiltersConfig(near_duplicates=0.5, permutations=PERMUTATIONS)
        more = {"runner": RunnerConfig(exchange="engine"), "validation_share": 0.1, "filters": near}
        config = preparing.settings("lines", f"{place}/a.txt", folder, **more)
        return make_plan(config, place)


def laid_out(threshold, reads, tasks):
    """Return the plan of `reads` reading and `tasks` other tasks."""
    plan = planned()
    filters = dataclasses.replace(plan.config.filters, near_duplicates=threshold)
    sizes = {"reads": reads, "writes": tasks, "ranges": tasks, "groups": reads, "batches": reads}
    layout = ShuffleLayout(buckets=3 * tasks, text=tasks * NEAR_BYTES, **sizes)
    config = dataclasses.replace(plan.config, filters=filters)
    return dataclasses.replace(plan, config=config, buckets={"train": 2 * tasks, "validation": tasks}, layout=layout)


class Left:
    """What tasks have left, by kind and later task; parts arrive in any order, some of them twice."""

    def __init__(self, draw):
        self.draw, self.parts = draw, defaultdict[tuple[str, int], list[Block]](list)

    def add(self, task, results):
        """Keep what a task leaves."""
        for number, (later, kind, blob) in enumerate(results):
            for piece, token in enumerate(shuffle.ShuffleWriter(None, piece=self.draw.randint(1, 1000)).put(blob)):
                again = 1 + (self.draw.random() < 0.2)
                self.parts[kind, later].extend([(kind, task, number, piece, token)] * again)

    def take(self, *kinds):
        """Yield the parts of these kinds by task, as GroupByKey does."""
        for task in {task for kind, task in self.parts if kind in kinds}:
            found = [part for kind in kinds for part in self.parts.pop((kind, task), [])]
            self.draw.shuffle(found)
            yield task, found


def found_by_tasks(plan, parts, gone, draw):
    """Return the near duplicates that each writing task gets; reading tasks have found `gone` ones."""
    left = Left(draw)
    for number, (hashes, signatures) in enumerate(parts):
        read = NewDocuments(plan, DocumentCounts(), frozenset())
        read.taken = {row.tobytes() for row in hashes.astype(">u8")}
        read.signed = {
            row.tobytes(): bytes(signature) for row, signature in zip(hashes.astype(">u8"), signatures, strict=True)
        }
        read.gone = gone[number] & read.taken
        left.add(number, Tokenize(plan).signed(read))
    steps = {PairCandidates: [BANDS], SendSignatures: [SIGNATURES, WANTED], ComparePairs: [PAIRS, SIGNATURES]}
    for step, kinds in steps.items():
        for task, parts_of in list(left.take(*kinds)):
            left.add(task, step(plan).work(task, parts_of))
    found = {write: b"".join(shuffle.read_blocks(Path(), values, NEAR)) for write, values in left.take(NEAR)}
    return {write: {*map(bytes, np.frombuffer(each, "V16"))} for write, each in found.items()}


def near_duplicates(hashes, signatures, threshold):
    """Return the documents to leave out: each compared with the one before it, and the first, of a band."""
    rows = minhash.rows_per_band(PERMUTATIONS, threshold)
    known = {hashes[k].astype(">u8").tobytes(): signatures[k] for k in range(len(hashes))}
    found = set()
    for start in range(0, PERMUTATIONS - rows + 1, rows):
        bands = defaultdict[bytes, list[bytes]](list)
        for name in sorted(known):
            bands[known[name][start : start + rows].tobytes()].append(name)
        for names in bands.values():
            for before, name in itertools.pairwise(names):
                if any((known[name] == known[other]).mean() >= threshold for other in (before, names[0])):
                    found.add(name)
    return found


@given(
    seed=st.integers(0, 2**32),
    documents=st.integers(1, 60),
    values=st.integers(1, 4),
    kinds=st.integers(1, 12),
    threshold=st.sampled_from([0.3, 0.5, 0.7, 0.9, 1.0]),
    reads=st.integers(1, 5),
    tasks=st.integers(1, 7),
)
def test_many_tasks_find_those_of_the_rule(seed, documents, values, kinds, threshold, reads, tasks):
    draw = np.random.default_rng(seed)
    plan = laid_out(threshold, reads, tasks)
    hashes = draw.integers(0, 2**64, (documents, 2), np.uint64)
    drafts = draw.integers(0, values, (kinds, PERMUTATIONS), np.uint32)
    signatures = drafts[draw.integers(0, kinds, documents)]
    changed = draw.random(signatures.shape) < 0.15
    signatures[changed] = draw.integers(0, values, int(changed.sum()), np.uint32)
    rows = [draw.integers(0, documents, 15) for _ in range(reads)]  # equal documents among them
    parts = [(hashes[mine], signatures[mine]) for mine in rows]
    marked = [{row.astype(">u8").tobytes() for row in mine[draw.random(15) < 0.05]} for mine, _ in parts]
    all_hashes, all_signatures = map(np.concatenate, zip(*parts, strict=True))
    left = [row.astype(">u8").tobytes() not in set().union(*marked) for row in all_hashes]
    expected = near_duplicates(all_hashes[left], all_signatures[left], threshold)
    by_write = found_by_tasks(plan, parts, marked, random.Random(seed))
    assert set().union(*by_write.values()) == expected
    for write, mine in by_write.items():
        assert {plan.layout.write_of(plan.bucket(name)) for name in mine} == {write}


def test_a_signature_that_the_engine_has_lost_is_an_error():
    plan = laid_out(0.5, 1, 1)
    wanted = np.array([[0, 1, 2]], np.uint64).tobytes()
    with pytest.raises(RuntimeError, match="lost"):
        list(SendSignatures(plan).work(0, [(WANTED, 0, 0, 0, wanted)]))


def test_pairs_of_all_documents_are_few():
    """A document that is repeated with small changes has two pairs per band, not one per copy."""
    count, bands = 1000, 18
    signatures = np.zeros((count, 128), np.uint32)
    hashes = np.arange(2 * count, dtype=np.uint64).reshape(count, 2)
    entries = minhash.band_entries(hashes, signatures, 0.8)
    assert len(entries) == bands * count
    assert len(minhash.candidate_pairs(entries)) < 2 * count
