"""Readers say how far they are, and which parts a task reads."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import random
import tarfile
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import CorpusConfig
from pipeline.readers import ReadLog, open_corpus
from pipeline.readers.io.byte_ranges import cut, firsts, items_in_range

# Numbers do not pack well: each file is of many chunks.
DRAW = random.Random(0)
TEXTS = [" ".join(str(DRAW.random()) for _ in range(3000)) for _ in range(50)]
LINES = "\n\n".join(TEXTS).encode()
OBJECTS = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
PAGES = "".join(
    f"<page><title>T{n}</title><ns>0</ns><id>{n}</id><revision><id>1</id><text>{text}</text></revision></page>"
    for n, text in enumerate(TEXTS)
)


def members(kind):
    packed = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(packed, "w") as archive:
            for number, text in enumerate(TEXTS):
                archive.writestr(f"{number}.txt", text)
    else:
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for number, text in enumerate(TEXTS):
                info = tarfile.TarInfo(f"{number}.txt")
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
    return packed.getvalue()


def table():
    packed = io.BytesIO()
    pq.write_table(pa.table({"text": TEXTS}), packed, row_group_size=10)
    return packed.getvalue()


CORPORA = {
    "lines a.txt": lambda: LINES,
    "lines a.txt.gz": lambda: gzip.compress(LINES, 1),
    "jsonl a.jsonl": lambda: OBJECTS,
    "jsonl a.jsonl.xz": lambda: lzma.compress(OBJECTS, preset=0),
    "jsonl a.jsonl.bz2": lambda: bz2.compress(OBJECTS),
    "wikipedia a.xml.bz2": lambda: bz2.compress(f"<mediawiki>{PAGES}</mediawiki>".encode()),
    "text a.zip": lambda: members("zip"),
    "books a.tar.gz": lambda: members("tar"),
    "parquet a.parquet": table,
}


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_position_moves_within_a_file_range(corpus, tmp_path):
    reader, name = corpus.split()
    (tmp_path / name).write_bytes(CORPORA[corpus]())
    opened = open_corpus(CorpusConfig(name="c", reader=reader, path=str(tmp_path / name)), "")
    (file_range,) = opened.splits(1 << 30)
    seen = []
    assert len(list(opened.read(file_range, ReadLog(progress=seen.append)))) == len(TEXTS)
    assert seen == sorted(seen)
    assert 0 <= seen[0] < file_range.size / 2 < seen[-1] <= file_range.size
    assert len(set(seen)) >= 4


# Small items are read together, and those that are new change few of the parts.


def named(texts):
    return [(f"{number}.txt", text) for number, text in enumerate(texts)]


@given(st.lists(st.integers(0, 10**8), min_size=1), st.integers(1, 10**8))
def test_small_splits_are_read_by_one_task(texts, task_bytes):
    found = firsts(named(texts), task_bytes)
    assert found[0] == 0
    parts = [texts[low:high] for low, high in zip(found, [*found[1:], None], strict=True)]
    assert [text for part in parts for text in part] == texts
    for part in parts:
        assert sum(part[:-1]) < 2 * task_bytes
    for part in parts[:-1]:
        assert sum(part) >= task_bytes


@pytest.mark.parametrize("seed", range(20))
def test_a_new_file_changes_few_reading_tasks(seed):
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
def test_every_item_is_in_one_split(sizes, split_bytes, loose):
    items = [(k, f"{k}", size) for k, size in enumerate(sizes)]
    splits = cut("folder", items, split_bytes, loose=loose)
    assert [each for split in splits for each in items_in_range(items, split, ReadLog())] == list(range(len(sizes)))
    assert sum(split.size for split in splits) == sum(max(size, 1) for size in sizes)


def test_a_split_is_the_same_wherever_its_files_are_among_others():
    draw = random.Random(0)
    items = [(k, f"{k}", draw.randrange(2000)) for k in range(500)]
    before = {split.identity for split in cut("folder", items, 10_000, loose=True)}
    after = {split.identity for split in cut("folder", [(-1, "new", 77), *items], 10_000, loose=True)}
    assert len(before) > 20
    assert len(after - before) <= 2
