"""A small world to train in, and real training processes without a launcher's start-up time."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.training.tracking import read_metrics
from pipeline.common.manifest import Manifest, file_checksums
from pipeline.shards import ShardInfo, write_shard
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build
from tests import finished, forked

SHARD = "train-00000-of-00001.arrow"
COUNTED = 3000.0  # words of the 300 rows
WORDS = [f"w{number}" for number in range(120)]
SMALL = (
    "model=tiny",
    "model.hidden=32",
    "model.feed_forward=64",
    "model.positions=32",
    "model.dropout=0",
    "model.attention_dropout=0",
    "batch_size=12",
    "micro_batch=4",
    "steps=12",
    "log_every=1",
    "threads=1",
    "optimizer.learning_rate=1e-2",
    "tracking=none",
    "evaluate_every=100",
    "save_every=100",
    "evaluate_samples=25",  # the last batch is of one sample: a second process has none
)


def write_split(folder: Path, wordpiece: WordPiece, split: str, rows: int, seed: int = 0, pairs: str = "nsp") -> None:
    """A shard of words, some far more frequent than others."""
    draws = np.random.default_rng(seed)
    lengths = draws.integers(8, 29, rows)
    words = np.minimum(draws.geometric(0.3, lengths.sum()), 120)
    info = ShardInfo(
        split=split, pairs=pairs, tokenizer=wordpiece.sha256, vocab_size=wordpiece.size, sequence_length=32, seed=0
    )
    write_shard(
        folder / f"{split}-00000-of-00001.arrow",
        info,
        (4 + words).astype(np.uint16),
        np.concatenate([[0], np.cumsum(lengths)]),
        lengths // 2,
        lengths % 2 == 0,
    )


def write_prepared(folder: Path, wordpiece: WordPiece, seed: int = 0, pairs: str = "nsp") -> None:
    """What `prepare` leaves: shards and a manifest with their checksums."""
    folder.mkdir(parents=True)
    write_split(folder, wordpiece, "train", 300, seed, pairs)
    write_split(folder, wordpiece, "validation", 40, seed, pairs)
    finished.manifest(
        "prepare", fingerprint=f"{seed:064x}", files=file_checksums(folder, {}), figures={"sequence_length": 32}
    ).write(folder)


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a vocabulary and prepared shards."""
    return write_work(tmp_path_factory.mktemp("work"))


def write_work(folder: Path) -> Path:
    """Write a vocabulary and prepared shards into a run's folder."""
    (folder / "vocab").mkdir()
    (folder / "vocab" / "tokenizer.json").write_text(build([*SPECIAL, *WORDS], lowercase=True))
    write_prepared(folder / "prepare", WordPiece.load(folder / "vocab"))
    return folder


def counted(work: Path, folder: Path) -> Path:
    """The prepared shards with their words, as `prepare` notes them."""
    shutil.copytree(work / "prepare", folder)
    made = Manifest.read(folder)
    counts = {"shards": {SHARD: {"words": COUNTED}}, "totals": {"train": 300}}
    replace(made, figures=made.figures | counts).write(folder)
    return folder


def train_many(root: Path, plan: Sequence[tuple[int, list[str]]], code: int = 0) -> str:
    """Train with each number of processes and list of settings in turn; returns what was said.

    `code` is the exit code of the last one; those before must succeed.
    """
    said = ""
    for number, (processes, settings) in enumerate(plan, 1):
        done = forked.module("model.train", *settings, ranks=processes, env=os.environ | {"OMP_NUM_THREADS": "1"})
        said += done.stdout + done.stderr
        assert done.returncode == (code if number == len(plan) else 0), said
    return said


def rows(out: Path, kind: str = "train") -> list[dict[str, Any]]:
    """The rows of a run's metrics.jsonl."""
    return [row for row in read_metrics(out) if row["kind"] == kind]


def losses(out: Path) -> list[float]:
    """The loss of each step."""
    return [row["loss"] for row in rows(out)]
