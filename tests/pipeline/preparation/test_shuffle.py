"""Documents reach their buckets by few reads, however many the splits, with the same bytes."""

import dataclasses
import pickle

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipeline.beam import steps
from pipeline.config import FiltersConfig, RunnerConfig
from pipeline.preparation import dropped, timings
from pipeline.preparation.plan import make_plan, unpack
from pipeline.preparation.shard_sizes import buckets
from pipeline.preparation.shuffle import DIRECT, ENDING, ShuffleLayout, unpack_block
from pipeline.readers import FileRange
from pipeline.readers.io.byte_ranges import firsts
from tests.support import preparing

SPLIT_BYTES = 64 * 2**20
TASK_BYTES = RunnerConfig().task_bytes


@given(st.integers(1, 3000), st.integers(1, 3000), st.floats(0, 1e13))
def test_ranges_and_groups_cover_everything_once(reads, buckets, text):
    layout = ShuffleLayout.choose(reads, buckets, text, TASK_BYTES)
    assert [layout.first_write(0), layout.first_write(layout.ranges)] == [0, layout.writes]
    assert [layout.first_bucket(0), layout.first_bucket(layout.writes)] == [0, buckets]
    seen = []
    for index in range(layout.ranges):
        for write in range(layout.first_write(index), layout.first_write(index + 1)):
            mine = range(layout.first_bucket(write), layout.first_bucket(write + 1))
            assert {layout.write_of(bucket) for bucket in mine} == {write}
            seen += mine
    assert seen == list(range(buckets))
    assert {layout.group(read) for read in range(reads)} == set(range(layout.groups))


@pytest.mark.parametrize("count", [100, 6400, 100_000])
def test_the_same_text_in_more_parts_needs_no_more_batches(count):
    text = 200e6
    reads = len(firsts([(str(k), text / count) for k in range(count)], TASK_BYTES))
    layout = ShuffleLayout.choose(reads, count, text, TASK_BYTES)
    assert layout.reads * layout.writes <= 100 * 100


@pytest.mark.parametrize("terabytes", [0.01, 0.1, 1, 10])
def test_reads_of_a_byte_hardly_grow_with_the_corpus(terabytes):
    text = terabytes * 1e12
    count = round(text / SPLIT_BYTES)
    layout = ShuffleLayout.choose(count, count, text, TASK_BYTES)
    assert (layout.reads, layout.writes) == (count, count)
    reads = layout.reads * layout.ranges + layout.writes * layout.groups
    assert text / reads > 64 * 2**10  # a read is worth its cost: 64 KiB of text and more
    merged = text / (layout.ranges * layout.groups)
    assert merged < 128 * 2**20  # what a task has in memory does not grow
    assert text / layout.near_tasks < 2**29


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Short documents, some of them nearly equal, and a vocabulary."""
    folder = tmp_path_factory.mktemp("exchange")
    blocks = preparing.random_documents(folder, seed=3, words=3000, lines=1800, size=6)
    near = [block.replace(".", " x.", 1) for block in blocks[::10]]
    (folder / "a.txt").write_text("\n\n".join(blocks + near))
    return folder


def made(corpus, out, split_bytes, *more):
    """A run with shards so small that there are many."""
    words = (
        f"+corpus=lines corpus.path={corpus}/a.txt vocab={corpus} validation_share=0.1 split_bytes={split_bytes} "
        "shard_bytes=1000 sequence_length=32 filters.near_duplicates=0.8"
    )
    return preparing.run(out, words, *more)


def shards(made):
    """The shards: the ids of dropped lines count from the beginning of a split."""
    return {name: file for name, file in made.files.items() if name != dropped.FILE}


@pytest.mark.slow
def test_every_layout_gives_the_same_bytes(corpus, tmp_path):
    size = (corpus / "a.txt").stat().st_size
    single, engine = "runner.task_bytes=1", "runner.exchange=engine"
    count = sum(buckets([FileRange("a", 0, size)], 1000, 0.1).values())
    assert 5 * count < DIRECT < 150 * count
    together = made(corpus, tmp_path / "together", size // 150)
    for name, parts, *more in (("few", 4, single), ("merged", 150, single), ("engine-merged", 150, single, engine)):
        other = made(corpus, tmp_path / name, size // parts, *more)
        assert shards(other) == shards(together), name
        assert other.figures == together.figures, name


def planned(corpus, out, **runner):
    config = preparing.settings("lines", corpus / "a.txt", corpus, runner=RunnerConfig(**runner))
    return make_plan(config, out)


def test_a_task_does_not_carry_the_splits(corpus):
    plan = planned(corpus, corpus)
    more = dataclasses.replace(plan, tasks=plan.tasks * 10_000)
    assert len(pickle.dumps(more)) == len(pickle.dumps(plan))


def test_the_graph_has_a_few_bytes_per_split(corpus):
    """2 TB, at the default size of a split."""
    path, count = "/data/corpus/enwiki-latest-pages-articles.xml", 30_000
    splits = [FileRange(path, k * SPLIT_BYTES, (k + 1) * SPLIT_BYTES, "v1") for k in range(count)]
    plan = dataclasses.replace(planned(corpus, corpus), tasks=[[split] for split in splits])
    packets = list(plan.packets())
    assert sum(map(len, packets)) < 2**19
    tasks = [task for packet in packets for task in unpack(packet)]
    assert tasks == [(k, [split]) for k, split in enumerate(splits)]


def begun(plan):
    """The first map task of a plan, ready, and what it is given."""
    plan.scratch.mkdir()
    plan.claim()
    task = steps.Tokenize(plan)
    task.setup()
    return task, unpack(next(iter(plan.packets())))


@pytest.mark.parametrize("exchange", ["files", "engine"])
def test_parts_arrive_in_any_order_and_twice(corpus, tmp_path, exchange):
    """An engine that runs a task again may keep what the first attempt left."""
    plan = planned(corpus, tmp_path, exchange=exchange)
    task, (element,) = begun(plan)
    left = [each for each in task.process(element) if isinstance(each, tuple)]
    (key,) = {key for key, _ in left}
    values = [value for _, value in left]
    accounts = [
        list(steps.WriteShards(plan).process((key, parts))) or plan.write_account(0).read_bytes()
        for parts in (values, [*reversed(values), *values])
    ]
    assert accounts[0] == accounts[1]
    assert list(tmp_path.glob("train-*.arrow"))


def test_the_engine_leaves_only_marks_in_the_folder(corpus, tmp_path):
    near = FiltersConfig(near_duplicates=0.8)
    plan = planned(corpus, tmp_path, exchange="engine")
    plan = dataclasses.replace(plan, config=dataclasses.replace(plan.config, filters=near))
    plan.scratch.mkdir()
    steps.run(plan)
    assert sum(1 for _ in plan.accounts()) == plan.layout.reads + plan.layout.writes
    left = {path.name: path.stat().st_size for path in plan.scratch.iterdir()}
    marks = {name: size for name, size in left.items() if not name.endswith((".json", timings.ENDING))}
    assert all(name.startswith(("run-", "begun")) or name.endswith(".progress") for name in marks)
    assert max(marks.values()) < 100
    assert max(left.values()) < 5000


def test_a_task_of_a_run_that_is_over_writes_nothing(corpus, tmp_path):
    """A driver was killed, its job goes on, and the same folder is made again."""
    old, new = (planned(corpus, tmp_path) for _ in range(2))
    old.scratch.mkdir()
    new.claim()
    (element,) = unpack(next(iter(new.packets())))
    with pytest.raises(RuntimeError, match="another run"):
        list(steps.Tokenize(old).process(element))
    assert not list(old.scratch.glob(f"*{ENDING}"))
    task = steps.Tokenize(new)
    task.setup()
    assert list(task.process(element))
    assert list(new.scratch.glob(f"*{ENDING}"))


# A document that is repeated, or very long, does not make a task large.


WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrst"]


@pytest.fixture
def vocab(tmp_path):
    return preparing.vocabulary(tmp_path, [*WORDS, "."])


def story(start, sentences):
    """Return a text in lines, another one for each `start`."""
    lines = ([WORDS[(start + k * (k + n)) % len(WORDS)] for k in range(8)] for n in range(sentences))
    return "\n".join(" ".join(line) + "." for line in lines)


def skew_made(vocab, out, corpus, *more):
    """The manifest of a run."""
    words = f"--config-dir {vocab} +corpus={corpus} vocab={vocab} validation_share=0.2 shard_bytes=20000"
    return preparing.run(out, words, *more)


def test_a_document_that_is_repeated_leaves_its_reading_task_once(vocab):
    texts = [story(7, 5)] * 300 + [story(k, 4) for k in range(20)] + [story(7, 5)] * 300
    (vocab / "a.txt").write_text("\n\n".join(texts))
    config = preparing.settings(
        "lines", f"{vocab}/a.txt", vocab, runner=RunnerConfig(exchange="engine"), minimum_characters=0
    )
    plan = make_plan(config, vocab)
    task, (element,) = begun(plan)
    left = [blob for _, _, blob in task.work(*element)]
    assert sum(len(unpack_block(blob)) for blob in left) == len(set(texts))


@pytest.mark.slow
def test_the_first_of_the_documents_with_most_copies_is_kept(vocab, tmp_path):
    """A task leaves out what it knows of, and the task that writes the rest: together the same ones."""
    parts = {}
    for number, (name, weight) in enumerate({"a": 1, "b": 2.5, "c": 1.5}.items()):
        texts = [story(k % 40, 6) for k in range(10 * number, 10 * number + 90)]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(texts))
        parts[name] = {"reader": "lines", "path": f"{tmp_path}/{name}.txt", "weight": weight}
    parts["b"]["language"] = "zh"  # divides sentences in another way
    corpus = {"name": "mixed", "reader": "mix", "parts": parts}
    (vocab / "corpus").mkdir()
    (vocab / "corpus" / "mixed.yaml").write_text(yaml.safe_dump(corpus))
    more = ["split_bytes=9000", "filters.near_duplicates=0.6"]
    single, few = (
        skew_made(vocab, tmp_path / f"out{size}", "mixed", f"runner.task_bytes={size}", *more)
        for size in (10**6, 18000)
    )
    assert few.figures["documents"]["duplicate"] > 100
    assert (few.figures, few.files) == (single.figures, single.files)
    assert len(few.files) > 4
