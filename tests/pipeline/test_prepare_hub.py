"""Shards of a data set of the hub are those of the same files on disk."""

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError
from pipeline.readers import ReadLog, open_corpus
from pipeline.records.manifest import Manifest
from pipeline.stages.fingerprints import pin
from tests.support import forked, preparing
from tests.support.refusals import refused
from tests.support.servers.hub_server import environment, server

WORDS = ["river", "town", "letter", "market", "rain", "clock"]
TOP = "hf://datasets/some/texts"


def parquet(seed, rows=300):
    draw = random.Random(seed)
    texts = [" ".join(f"{' '.join(draw.choices(WORDS, k=8))} {seed} {row}." for _ in range(6)) for row in range(rows)]
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": texts, "other": texts[::-1]}), sink, row_group_size=50)
    return sink.getvalue()


FILES = {f"data/nl/train/{number:03}.parquet": parquet(number) for number in range(6)}


@pytest.fixture
def hub(tmp_path):
    with server() as made, environment(made, str(tmp_path / "home")):
        made.commit(FILES | {"README.md": b"# Texts", "data/vi/train/000.parquet": parquet(9)})
        yield made


@pytest.fixture
def work(tmp_path):
    """The same files on disk, and a vocabulary."""
    for name, data in FILES.items():
        (tmp_path / "local" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "local" / name).write_bytes(data)
    preparing.vocabulary(tmp_path / "vocab", [*WORDS, *"0123456789."])
    return tmp_path


def prepare(work, place, out, *words):
    words = ["+corpus=parquet", f"corpus.path={place}", f"vocab={work}/vocab", f"out={work}/{out}", *words]
    words += ["validation_share=0.1", "split_bytes=40000"]
    done = forked.fresh("-m", "pipeline.prepare", *words, timeout=240)
    assert done.returncode == 0, done.stderr
    return Manifest.read(work / out)


def sums(manifest):
    return {name: shard["sha256"] for name, shard in manifest.figures["shards"].items()}


def documents(place, limit=None, seed=0):
    corpus = CorpusConfig(name="c", reader="parquet", path=place, limit=limit, limit_seed=seed)
    reader = open_corpus(corpus, "")
    return [d.text for s in reader.splits(20_000) for d in reader.read(s, ReadLog())]


@pytest.mark.slow
def test_shards_are_those_of_local_files_and_the_commit_is_kept(hub, work):
    local = prepare(work, f"{work}/local/data/nl/train", "local-shards")
    place = f"{TOP}/data/nl/train/*.parquet"
    far = prepare(work, place, "hub-shards", "runner.workers=2")
    assert sums(far) == sums(local)
    commit = hub.branches["main"]
    assert far.config["corpus"]["path"] == f"{TOP}@{commit}/data/nl/train/*.parquet"
    # Another commit with the same files: the shards are up to date.
    hub.commit(FILES | {"README.md": b"# Texts, newer"})
    assert prepare(work, place, "hub-shards").finished == far.finished
    hub.commit(FILES | {"data/nl/train/000.parquet": parquet(7)})
    assert prepare(work, place, "hub-shards").fingerprint != far.fingerprint


def test_a_branch_that_moves_after_the_plan_changes_no_document(hub):
    corpus = CorpusConfig(name="c", reader="parquet", path=f"{TOP}/data/nl/train")
    wanted = documents(f"{TOP}/data/nl/train")
    reader = open_corpus(corpus, "")
    splits = reader.splits(20_000)
    hub.commit({name: parquet(99) for name in FILES})
    assert [d.text for s in splits for d in reader.read(s, ReadLog())] == wanted


def test_all_stages_of_a_run_read_one_commit(hub):
    class Settings:
        def __init__(self):
            self.corpus = CorpusConfig(
                name="c", reader="mix", parts={"nl": {"reader": "parquet", "path": f"{TOP}/data/nl"}}
            )

    commits = {}
    first, second = Settings(), Settings()
    pin(first, commits)
    then = hub.branches["main"]
    hub.commit({})
    pin(second, commits)
    for one in (first, second):
        assert one.corpus.parts["nl"]["path"] == f"{TOP}@{then}/data/nl"


@pytest.mark.parametrize("limit", ["1", "30kB", "60kB", "1GB"])
def test_a_limit_takes_the_same_documents_from_disk_and_hub(hub, work, limit):
    for pattern in ("data/nl/train", "data/nl/*/*.parquet"):
        assert documents(f"{TOP}/{pattern}", limit) == documents(f"{work}/local/{pattern}", limit)


def test_a_limit_takes_about_its_bytes_and_less_is_a_part_of_more(work):
    place = f"{work}/local/data/nl/train"
    size = sum(map(len, FILES.values()))
    every = documents(place)
    counts = [len(documents(place, str(size * share // 100))) for share in (20, 50, 90, 100)]
    for count, share in zip(counts, (20, 50, 90, 100), strict=True):
        assert share / 100 <= count / len(every) <= share / 100 + 0.1
    few, more = (set(documents(place, str(size * share // 100))) for share in (30, 60))
    assert few < more
    assert documents(place, str(size // 2), seed=1) != documents(place, str(size // 2))


def test_files_outside_a_limit_are_not_opened(hub):
    documents(f"{TOP}/data/nl/train", "1")
    assert len(set(hub.paths("/resolve/"))) == 1


def test_a_limit_of_nothing_is_refused():
    for limit in ("0", "x", "-1GB", "GB"):
        with refused(ConfigError, key="corpus.limit"):
            CorpusConfig(name="c", reader="parquet", limit=limit)


@pytest.mark.parametrize("place", ["", "/*.txt", "/**"])
def test_a_limit_of_small_files_takes_whole_files(tmp_path, place):
    for number in range(9):
        (tmp_path / f"{number}.txt").write_text(f"{number} " + "word " * 200)
    corpus = CorpusConfig(name="c", reader="text", path=f"{tmp_path}{place}", limit="3500")
    reader = open_corpus(corpus, "")
    found = [d for s in reader.splits(1500) for d in reader.read(s, ReadLog())]
    assert len(found) == 4
