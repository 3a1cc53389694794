"""A small vocabulary, shards and settings with which a training takes seconds."""

import shlex
from pathlib import Path

import numpy as np

from pipeline.common.manifest import Manifest, file_checksums
from pipeline.shards import ShardInfo, write_shard
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build

WORDS = 120
LENGTH = 32


def make_work(folder: Path, words: int = WORDS, rows: int = 300, length: int = LENGTH) -> None:
    """Write `vocab` and `prepare` below `folder`: words, some far more frequent than others."""
    (folder / "vocab").mkdir(parents=True)
    names = [f"w{number}" for number in range(words)]
    (folder / "vocab" / "tokenizer.json").write_text(build([*SPECIAL, *names], lowercase=True))
    wordpiece = WordPiece.load(folder / "vocab")
    draws = np.random.default_rng(0)
    (folder / "prepare").mkdir()
    for split, count in (("train", rows), ("validation", 40)):
        lengths = draws.integers(8, length - 3, count)
        tokens = np.minimum(draws.geometric(0.3, lengths.sum()), words)
        info = ShardInfo(
            split=split,
            pairs="nsp",
            tokenizer=wordpiece.sha256,
            vocab_size=wordpiece.size,
            sequence_length=length,
            seed=0,
        )
        write_shard(
            folder / "prepare" / f"{split}-00000-of-00001.arrow",
            info,
            (len(SPECIAL) - 1 + tokens).astype(np.uint16),
            np.concatenate([[0], np.cumsum(lengths)]),
            lengths // 2,
            lengths % 2 == 0,
        )
    Manifest(
        stage="prepare",
        fingerprint="f" * 64,
        version=1,
        config={},
        inputs={},
        files=file_checksums(folder / "prepare", {}),
        figures={"sequence_length": length},
        summary="",
        seconds=0.0,
        finished="",
    ).write(folder / "prepare")


def settings(work: Path, out: Path) -> list[str]:
    """Return overrides for a tiny model on these shards."""
    return shlex.split(
        f"workdir={work} out={out} model=tiny model.hidden=32 model.feed_forward=64 "
        f"model.positions={LENGTH} model.dropout=0 model.attention_dropout=0 batch_size=12 micro_batch=4 "
        "log_every=1 threads=1 tracking=none optimizer.learning_rate=1e-2 evaluate_every=1000"
    )
