"""Shards that would be too large are refused before work begins."""

import dataclasses
import gzip
import json
import math

import pytest

from pipeline import prepare
from pipeline.beam import steps
from pipeline.config import CorpusConfig, PrepareConfig, RunnerConfig
from pipeline.errors import ConfigError, InputError, UserError
from pipeline.preparation import dedup, estimate, shard_sizes, shuffle, tokenize, write_shards
from pipeline.preparation.shard_sizes import buckets, check_sizes
from pipeline.readers import FileRange
from tests.support import preparing
from tests.support.refusals import refused

GIB = 2**30


def config(parts=None, **more):
    more = {"runner": RunnerConfig(), **more}
    corpus = CorpusConfig(name="a", reader="mix" if parts else "lines", parts=parts or {})
    return PrepareConfig(corpus=corpus, source="s", vocab="v", out="out", **more)


def checked(given, splits):
    check_sizes(given, splits, buckets(splits, given.shard_bytes, given.validation_share))


@pytest.mark.parametrize(
    ("parts", "more", "text"),
    [
        (None, {"shard_bytes": 10 * GIB}, 100 * GIB),
        (None, {"shard_bytes": GIB, "duplicates": 10}, 100 * GIB),
        ({"a": {"weight": 200}}, {}, 100 * GIB),
    ],
)
def test_a_shard_of_too_many_tokens_is_refused_with_a_size_that_fits(parts, more, text):
    splits = [FileRange("a", k * GIB, (k + 1) * GIB, part="a") for k in range(text // GIB)]
    given = config(parts, **more)
    with refused(ConfigError, key="shard_bytes") as caught:
        checked(given, splits)
    fits = int(str(caught.value).rpartition("shard_bytes=")[2].split()[0])
    checked(dataclasses.replace(given, shard_bytes=fits), splits)
    assert fits > GIB / 200


def test_a_task_of_many_shards_is_refused_too():
    splits = [FileRange("a", 0, 100 * GIB)]
    with refused(ConfigError, key="runner.task_bytes"):
        checked(config(runner=RunnerConfig(task_bytes=30 * GIB)), splits)


def test_the_defaults_take_any_corpus_below_the_limit():
    checked(config(), [FileRange("a", 0, 1000 * GIB)])
    with pytest.raises(ConfigError):
        checked(config(), [FileRange("a", 0, 2000 * GIB)])
    with refused(ConfigError, key="minimum_characters", value="-5"):
        config(minimum_characters=-5)


def test_a_shard_that_is_larger_than_expected_ends_the_job_in_one_line(tmp_path, monkeypatch):
    """A token per two bytes."""
    preparing.vocabulary(tmp_path, "abcd")
    lines = (" ".join("abcd"[(k >> 2 * j) % 4] for j in range(9)) for k in range(0, 40_000, 7))
    (tmp_path / "a.txt").write_text("".join(f"{line}\n\n" for line in lines))
    text = (tmp_path / "a.txt").stat().st_size
    given = preparing.settings("lines", tmp_path / "a.txt", tmp_path, minimum_characters=0, workdir=str(tmp_path))
    monkeypatch.setattr(write_shards, "MOST_TOKENS", text // 3)
    out = tmp_path / "out"
    out.mkdir()
    with refused(UserError, key="shard_bytes"):
        prepare.make(given, out)


def test_memory_is_that_of_the_largest_task():
    small = [FileRange("a", k << 20, (k + 1) << 20) for k in range(1000)]
    large = [FileRange("b.gz", 0, 10 * GIB)]
    text = estimate.text_bytes(small + large)
    assert estimate.memory(config(), small + large, text) < 0.7e9  # read in batches
    more = config(shard_bytes=2 * GIB)
    assert estimate.memory(more, small, 1e9) < 6e9
    assert estimate.memory(more, small + large, text) > 10e9  # of a shard


@pytest.mark.parametrize(
    ("more", "limit"), [({}, None), ({"dry_run": True}, None), ({}, "1GB"), ({"dry_run": True}, "1GB")]
)
@pytest.mark.parametrize("exchange", ["files", "engine"])
def test_an_empty_corpus_is_one_line(tmp_path, more, limit, exchange):
    preparing.vocabulary(tmp_path, "a")
    (tmp_path / "empty.jsonl").touch()
    place = str(tmp_path / "empty.jsonl")
    places = {"out": str(tmp_path / "out"), "workdir": str(tmp_path), "runner": RunnerConfig(exchange=exchange)}
    given = preparing.settings("jsonl", place, tmp_path, limit=limit, **places, **more)
    with refused(InputError, key="corpus.path", path=place):
        prepare.execute(given)


def test_validation_shards_stay_below_three_times_shard_bytes():
    splits = [FileRange("a", 0, 10 * GIB)]
    for share in (0.01, 0.3, 0.49, 0.6, 0.9, 0.99, 0.999999):
        given = config(validation_share=share)
        shards = buckets(splits, given.shard_bytes, share)
        sizes = shard_sizes.text_per_shard(given, 10.0 * GIB, shards)
        assert max(sizes.values()) < 3 * given.shard_bytes
        if share < 0.5:  # bytes of shards depend on their number
            assert shards["validation"] == math.ceil(shards["train"] * share)
    assert buckets(splits, 64 * 2**20, 0.0)["validation"] == 0


# A file that cannot be cut is read in batches: what a task holds does not grow with it.


WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrst"]
DOCUMENTS, TOKENS = 300, 32  # of each document


def text(number):
    """Return a document of `TOKENS` tokens, another one for each `number`."""
    words = [WORDS[(number + k * (number + 7)) % len(WORDS)] for k in range(TOKENS - 4)]
    return "\n".join(" ".join(words[k::4]) + "." for k in range(4))


@pytest.fixture
def corpus(tmp_path):
    """A compressed file, and a vocabulary."""
    preparing.vocabulary(tmp_path, [*WORDS, "."])
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        for number in range(DOCUMENTS):
            file.write(json.dumps({"text": text(number % (DOCUMENTS - 20))}) + "\n")
    return tmp_path


def made(corpus, out):
    """Return the files that a run writes, by name, and its figures."""
    sizes = {"shard_bytes": 4000, "minimum_characters": 0, "validation_share": 0.1, "sequence_length": 32}
    runner = RunnerConfig(task_bytes=1)
    config = preparing.settings("jsonl", corpus / "a.jsonl.gz", corpus, runner=runner, workdir=str(corpus), **sizes)
    out.mkdir()
    figures = prepare.make(config, out).figures
    return {path.name: path.read_bytes() for path in out.iterdir()}, figures


@pytest.mark.parametrize("direct", [shuffle.DIRECT, 1])
def test_a_file_in_one_split_is_never_held_whole(corpus, tmp_path, monkeypatch, direct):
    whole = made(corpus, tmp_path / "whole")
    held = []
    by_bucket = steps.by_bucket

    def measured(table, bounds):
        held.append(len(table))
        return by_bucket(table, bounds)

    monkeypatch.setattr(steps, "by_bucket", measured)
    monkeypatch.setattr(steps, "CHUNK", 1000)
    for module in (dedup, tokenize):
        monkeypatch.setattr(module, "MOST_HASHES", 40)
    monkeypatch.setattr(shuffle, "BUFFERED", 1600)
    monkeypatch.setattr(shuffle, "MERGED_BYTES", 4000)
    monkeypatch.setattr(shuffle, "DIRECT", direct)
    assert made(corpus, tmp_path / "batches") == whole
    assert sum(name.startswith("train") for name in whole[0]) > 4
    assert 10 < max(held) < 70
