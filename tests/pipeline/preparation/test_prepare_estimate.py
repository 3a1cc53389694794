"""What work will take is said from a part of it, and from what was measured before."""

import gzip
import itertools
import json
import random
import re

import pytest

from pipeline import prepare
from pipeline.preparation import estimate as preparation
from pipeline.readers import open_corpus
from pipeline.records import estimate
from pipeline.records.estimate import Estimate
from pipeline.tokenization import wordpiece
from tests.support import preparing
from tests.support.runs import configured


def configuration(folder, documents):
    text = " ".join(f"Sailor {number} told a story of the sea." for number in range(100))
    line = json.dumps({"text": text}) + "\n"
    (folder / "a.jsonl").write_text(line * documents)
    found = configured("prepare", "+corpus=jsonl", f"corpus.path={folder}/a.jsonl", f"workdir={folder}/work")
    return found


def test_a_corpus_is_estimated_from_a_second_of_it(tmp_path):
    config = configuration(tmp_path, 8000)  # 30 MB
    expected = preparation.estimate_preparation(config)
    assert expected.seconds > 1
    size = (tmp_path / "a.jsonl").stat().st_size
    assert 0.3 * size < expected.disk < 2 * size  # two bytes a token, in shards and on the way


def test_the_last_run_says_how_fast_this_machine_is(tmp_path):
    config = configuration(tmp_path, 8000)
    (tmp_path / "work").mkdir()
    estimate.remember_rate(config.workdir, "prepare", 1e5)
    estimate.remember_rate(config.workdir, "train", 7.0)
    expected = preparation.estimate_preparation(config)
    size = (tmp_path / "a.jsonl").stat().st_size
    assert expected.seconds == preparation.START + size / 1e5
    assert estimate.rate_of(config.workdir, "train") == 7.0


@pytest.mark.parametrize("patience", [0.0, 60.0])
def test_a_machine_too_busy_to_read_a_block_in_time_still_gets_a_plan(tmp_path, monkeypatch, patience):
    config = configuration(tmp_path, 3000)  # 12 MB
    monkeypatch.setattr(preparation, "CALIBRATION", 0.0)
    monkeypatch.setattr(preparation, "MEASURED", patience)
    expected = preparation.estimate_preparation(config)
    assert (expected.seconds is None) == (patience == 0)


def test_other_programs_do_not_shorten_the_part_that_is_read(tmp_path, monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(preparation.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(preparation, "CALIBRATION", 60.0)
    monkeypatch.setattr(preparation, "MEASURED", 1e9)
    config = configuration(tmp_path, 300)
    (split,) = open_corpus(config.corpus, config.source).splits(config.split_bytes)
    found = preparation.calibrate(config, split)
    assert found.bytes == split.size


def test_the_text_of_compressed_files_is_measured_where_it_is_most(tmp_path):
    """Not in a small, broken file, nor in bytes that were read ahead of their text."""
    draw, words = random.Random(0), [f"слово{number}" for number in range(3000)]
    texts = [" ".join(draw.choices(words, k=300)) for _ in range(3000)]
    lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts).encode()
    packed = gzip.compress(lines, compresslevel=1)
    for name in ("a", "c"):
        (tmp_path / f"{name}.jsonl.gz").write_bytes(packed)
    (tmp_path / "b.jsonl.gz").write_bytes(b"broken")
    config = configuration(tmp_path, 1)
    config.corpus.path = f"{tmp_path}/*.jsonl.gz"
    splits = open_corpus(config.corpus, config.source).splits(config.split_bytes)
    _, characters, _, _ = preparation.measured(config, splits)
    assert characters == pytest.approx(2 * sum(map(len, texts)), rel=0.1)


def test_a_small_corpus_needs_no_estimate(tmp_path):
    assert preparation.estimate_preparation(configuration(tmp_path, 10)) is None


def test_an_estimate_is_as_exact_as_it_is_known():
    said = {3.4: "3 s", 44: "40 s", 840: "14 min", 7300: "2 h 01 min", 172_800: "48 h"}
    assert {seconds: estimate.rounded(seconds) for seconds in said} == said
    shown = Estimate(840, disk=1.2e9, memory=4.5e7, about="4,500 steps")
    assert str(shown) == "about 14 min (4,500 steps), 1.2 GB on disk, 45 MB of memory"
    assert str(Estimate(None, about="9 steps")) == "(9 steps)"


def test_a_broken_store_of_rates_is_none(tmp_path):
    (tmp_path / estimate.RATES).write_text("{broken")
    assert estimate.rate_of(tmp_path, "train") is None
    estimate.remember_rate(tmp_path, "train", 1.0)
    assert estimate.rate_of(tmp_path, "train") == 1.0


@pytest.mark.shared_data
def test_text_tokens_and_bytes_are_what_followed(shared_data, tmp_path, monkeypatch):
    """Within a factor of 1.5, of a real book and a vocabulary that others made."""
    monkeypatch.setattr(preparation, "SMALL", 0.0)
    book = min((shared_data / "books").glob("*.md"), key=lambda path: abs(path.stat().st_size - 500_000))
    entries = (shared_data / "vocab/bert-base-uncased-vocab.txt").read_text().splitlines()
    (tmp_path / "tokenizer.json").write_text(wordpiece.build(entries, lowercase=True))
    out = tmp_path / "out"
    out.mkdir()
    more = {"out": str(out), "workdir": str(tmp_path), "validation_share": 0, "pairs": "none"}
    config = preparing.settings("text", book, tmp_path, **more)
    expected = preparation.estimate_preparation(config)
    text, tokens = map(float, re.findall(r"([\d.]+) M", expected.about.replace(" MB", " M")))
    counts = prepare.make(config, out).figures
    assert text == pytest.approx(counts["totals"]["characters"] / 1e6, abs=0.51)  # whole megabytes are said
    made = sum(path.stat().st_size for path in out.rglob("*.arrow"))
    assert 1 / 1.5 < tokens * 1e6 / counts["totals"]["tokens"] < 1.5
    assert 1 / 1.5 < expected.disk / 3 / made < 1.5  # as much is what was read, and on the way
