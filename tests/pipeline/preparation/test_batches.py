"""A file that cannot be cut is read in batches: what a task holds does not grow with it."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline import prepare
from pipeline.beam import steps
from pipeline.config import RunnerConfig
from pipeline.preparation import dedup, documents, shuffle, tokenize
from tests.support import preparing

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "lmnrst"]
DOCUMENTS, TOKENS = 300, 32  # of each document


def text(number: int) -> str:
    """Return a document of `TOKENS` tokens, another one for each `number`."""
    words = [WORDS[(number + k * (number + 7)) % len(WORDS)] for k in range(TOKENS - 4)]
    return "\n".join(" ".join(words[k::4]) + "." for k in range(4))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A compressed file, and a vocabulary."""
    preparing.vocabulary(tmp_path, [*WORDS, "."])
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        for number in range(DOCUMENTS):
            file.write(json.dumps({"text": text(number % (DOCUMENTS - 20))}) + "\n")
    return tmp_path


def made(corpus: Path, out: Path) -> tuple[dict[str, bytes], Any]:
    """Return the files that a run writes, by name, and its figures."""
    config = preparing.settings(
        "jsonl",
        corpus / "a.jsonl.gz",
        corpus,
        runner=RunnerConfig(task_bytes=1),
        workdir=str(corpus),
        shard_bytes=4000,
        minimum_characters=0,
        validation_share=0.1,
        sequence_length=32,
    )
    out.mkdir()
    figures = prepare.make(config, out).figures
    return {path.name: path.read_bytes() for path in out.iterdir()}, figures


@pytest.mark.parametrize("direct", [shuffle.DIRECT, 1])
def test_a_file_in_one_split_is_never_held_whole(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: int
) -> None:
    whole = made(corpus, tmp_path / "whole")
    held: list[int] = []
    by_bucket = steps.by_bucket

    def measured(table: Any, bounds: list[int]) -> Any:
        held.append(len(table))
        return by_bucket(table, bounds)

    monkeypatch.setattr(steps, "by_bucket", measured)
    monkeypatch.setattr(documents, "CHUNK", 1000)
    for module in (dedup, tokenize):
        monkeypatch.setattr(module, "MOST_HASHES", 40)
    monkeypatch.setattr(shuffle, "BUFFERED", 1600)
    monkeypatch.setattr(shuffle, "MERGED_BYTES", 4000)
    monkeypatch.setattr(shuffle, "DIRECT", direct)
    assert made(corpus, tmp_path / "batches") == whole
    assert sum(name.startswith("train") for name in whole[0]) > 4
    assert 10 < max(held) < 70
