"""Small items are read together, and those that are new change few of the parts."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.readers.base import ReadLog
from pipeline.readers.io.byte_ranges import cut, firsts, items_in_range


def named(texts: list[float]) -> list[tuple[str, float]]:
    return [(f"{number}.txt", text) for number, text in enumerate(texts)]


@given(st.lists(st.integers(0, 10**8), min_size=1), st.integers(1, 10**8))
def test_small_splits_are_read_by_one_task(texts: list[int], task_bytes: int) -> None:
    found = firsts(named(texts), task_bytes)
    assert found[0] == 0
    parts = [texts[low:high] for low, high in zip(found, [*found[1:], None], strict=True)]
    assert [text for part in parts for text in part] == texts
    for part in parts:
        assert sum(part[:-1]) < 2 * task_bytes
    for part in parts[:-1]:
        assert sum(part) >= task_bytes


@pytest.mark.parametrize("seed", range(20))
def test_a_new_file_changes_few_reading_tasks(seed: int) -> None:
    draw = random.Random(seed)
    before = [(f"{draw.random()}.txt", draw.lognormvariate(9, 2)) for _ in range(3000)]
    after = before.copy()
    after.insert(draw.randrange(1000), ("new.txt", 12_345.0))
    tasks = []
    for splits in (before, after):
        found = firsts(splits, 2**20)
        tasks.append({tuple(splits[low:high]) for low, high in itertools.pairwise([*found, len(splits)])})
    assert len(tasks[1]) > 50
    assert len(tasks[1] - tasks[0]) <= 4


@pytest.mark.parametrize("loose", [False, True])
@given(sizes=st.lists(st.integers(0, 300), max_size=60), split_bytes=st.integers(1, 500))
def test_every_item_is_in_one_split(sizes: list[int], split_bytes: int, loose: bool) -> None:
    items = [(k, f"{k}", size) for k, size in enumerate(sizes)]
    splits = cut("folder", items, split_bytes, loose=loose)
    assert [each for split in splits for each in items_in_range(items, split, ReadLog())] == list(range(len(sizes)))
    assert sum(split.size for split in splits) == sum(max(size, 1) for size in sizes)


def test_a_split_is_the_same_wherever_its_files_are_among_others() -> None:
    draw = random.Random(0)
    items = [(k, f"{k}", draw.randrange(2000)) for k in range(500)]
    before = {split.identity for split in cut("folder", items, 10_000, loose=True)}
    after = {split.identity for split in cut("folder", [(-1, "new", 77), *items], 10_000, loose=True)}
    assert len(before) > 20
    assert len(after - before) <= 2
