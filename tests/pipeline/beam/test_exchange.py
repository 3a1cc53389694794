"""Documents reach their buckets by few reads, however many the splits, with the same bytes."""

import dataclasses
import pickle
import random
import sys
from pathlib import Path

import forked
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import prepare
from pipeline.beam import transforms
from pipeline.beam.exchange import DIRECT, Exchange
from pipeline.common.manifest import Manifest, require_manifest
from pipeline.config import CorpusConfig, PrepareConfig, RunnerConfig
from pipeline.readers import FileRange
from pipeline.tokenization.wordpiece import SPECIAL, build

SPLIT_BYTES = 64 * 2**20


@given(st.integers(1, 3000), st.integers(1, 3000), st.floats(0, 1e13))
def test_ranges_and_groups_cover_everything_once(splits: int, buckets: int, text: float) -> None:
    layout = Exchange.choose(splits, buckets, text)
    assert [layout.first(0), layout.first(layout.ranges)] == [0, buckets]
    for index in range(layout.ranges):
        for bucket in range(layout.first(index), layout.first(index + 1)):
            assert layout.range_of(bucket) == index
    assert {layout.group(split) for split in range(splits)} == set(range(layout.groups))


@pytest.mark.parametrize("terabytes", [0.01, 0.1, 1, 10])
def test_reads_of_a_byte_hardly_grow_with_the_corpus(terabytes: float) -> None:
    text = terabytes * 1e12
    count = round(text / SPLIT_BYTES)
    layout = Exchange.choose(count, count, text)
    reads = layout.splits * layout.ranges + layout.buckets * layout.groups
    assert text / reads > 64 * 2**10  # a read is worth its cost: 64 KiB of text and more
    merged = text / (layout.ranges * layout.groups)
    assert merged < 128 * 2**20  # what a task has in memory does not grow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short documents, some of them nearly equal, and a vocabulary."""
    folder = tmp_path_factory.mktemp("exchange")
    draw, letters = random.Random(3), "abcdefghijklmnopqrstuvwxyz"
    entries = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), "."]
    (folder / "tokenizer.json").write_text(build(entries, lowercase=True))
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(3000)]
    lines = [" ".join(draw.choices(words, k=12)) + "." for _ in range(1800)]
    blocks = ["\n".join(lines[start : start + 6]) for start in range(0, len(lines), 6)]
    near = [block.replace(".", " x.", 1) for block in blocks[::10]]
    (folder / "a.txt").write_text("\n\n".join(blocks + near))
    return folder


def made(root: Path, corpus: Path, out: Path, split_bytes: int) -> Manifest:
    """A run with shards so small that there are many."""
    words = [
        sys.executable, "-m", "pipeline.prepare", "+corpus=lines", f"corpus.path={corpus}/a.txt",
        f"vocab={corpus}", f"out={out}", "validation_share=0.1", f"split_bytes={split_bytes}",
        "shard_bytes=1000", "sequence_length=32", "filters.near_duplicates=0.8",
    ]  # fmt: skip
    done = forked.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return require_manifest(out, "prepare", "out")


def test_merged_splits_give_the_bytes_of_splits_read_directly(
    root: Path, corpus: Path, tmp_path: Path
) -> None:
    size = (corpus / "a.txt").stat().st_size
    few = made(root, corpus, tmp_path / "few", size // 4)
    many = made(root, corpus, tmp_path / "many", size // 150)
    buckets = sum(prepare.buckets([FileRange("a", 0, size)], 1000, 0.1).values())
    assert 5 * buckets < DIRECT < 150 * buckets
    assert few.files == many.files
    assert few.figures == many.figures


def test_a_task_does_not_carry_the_splits(corpus: Path) -> None:
    config = PrepareConfig(
        corpus=CorpusConfig(name="a", reader="lines", path=str(corpus / "a.txt")),
        runner=RunnerConfig(), source="", vocab=str(corpus), out="",
    )  # fmt: skip
    plan = prepare.plan(config, corpus)
    more = dataclasses.replace(plan, splits=plan.splits * 10_000)
    assert len(pickle.dumps(more)) == len(pickle.dumps(plan))


def test_a_task_of_a_run_that_is_over_writes_nothing(corpus: Path, tmp_path: Path) -> None:
    """A driver was killed, its job goes on, and the same folder is made again."""
    config = PrepareConfig(
        corpus=CorpusConfig(name="a", reader="lines", path=str(corpus / "a.txt")),
        runner=RunnerConfig(), source="", vocab=str(corpus), out="",
    )  # fmt: skip
    old, new = (prepare.plan(config, tmp_path) for _ in range(2))
    old.scratch.mkdir()
    new.write_splits()
    with pytest.raises(RuntimeError, match="another run"):
        list(transforms.Tokenize(old).process(0))
    assert not old.split_file(0).exists()
    task = transforms.Tokenize(new)
    task.setup()
    assert list(task.process(0))
    assert new.split_file(0).exists()
