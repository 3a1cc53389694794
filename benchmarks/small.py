"""A small vocabulary, shards and settings with which a training takes seconds."""

from pathlib import Path

import numpy as np

from pipeline.common.ranges import bounds_of
from pipeline.records.manifest import Manifest, file_checksums
from pipeline.shards import ShardInfo, write_shard
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build

WORDS = 120
# Settings of a whole run that takes minutes; only `workdir` is missing.
SMALL_RUN = (
    "+corpus=sample corpus.options.packages=[numpy,scipy] tasks=[sample_next] vocab.size=2000 train.steps=50 "
    "train.batch_size=8 train.micro_batch=8 train.processes=1 evaluate.epochs=1"
)
LENGTH = 32


def write_split(
    folder: Path, wordpiece: WordPiece, split: str, rows: int, seed: int = 0, pairs: str = "nsp", length: int = LENGTH
) -> None:
    """Write a shard of words, some far more frequent than others."""
    draws = np.random.default_rng(seed)
    lengths = draws.integers(8, length - 3, rows)
    tokens = len(SPECIAL) - 1 + np.minimum(draws.geometric(0.3, lengths.sum()), wordpiece.size - len(SPECIAL))
    info = ShardInfo(
        split=split, pairs=pairs, tokenizer=wordpiece.sha256, vocab_size=wordpiece.size, sequence_length=length, seed=0
    )
    path, offsets = folder / f"{split}-00000-of-00001.arrow", bounds_of(lengths)
    write_shard(path, info, tokens.astype(np.uint16), offsets, lengths // 2, lengths % 2 == 0)


def write_prepared(
    folder: Path, wordpiece: WordPiece, seed: int = 0, pairs: str = "nsp", rows: int = 300, length: int = LENGTH
) -> None:
    """Write what `prepare` leaves: shards and a manifest with their checksums."""
    folder.mkdir(parents=True)
    for split, count in (("train", rows), ("validation", 40)):
        write_split(folder, wordpiece, split, count, seed, pairs, length)
    empty: dict[str, dict[str, str]] = {"config": {}, "inputs": {}}
    files, figures = file_checksums(folder, {}), {"sequence_length": length}
    given = {"fingerprint": f"{seed:064x}", "version": 1, "summary": "", "seconds": 0.0, "finished": "", **empty}
    Manifest(stage="prepare", files=files, figures=figures, **given).write(folder)  # type: ignore[arg-type]


def make_work(folder: Path, words: int = WORDS, rows: int = 300, length: int = LENGTH) -> Path:
    """Write `vocab` and `prepare` below `folder`; return it."""
    (folder / "vocab").mkdir(parents=True)
    names = [f"w{number}" for number in range(words)]
    (folder / "vocab" / "tokenizer.json").write_text(build([*SPECIAL, *names], lowercase=True))
    write_prepared(folder / "prepare", WordPiece.load(folder / "vocab"), rows=rows, length=length)
    return folder


def settings(work: Path, out: Path) -> list[str]:
    """Return overrides for a tiny model on these shards."""
    fixed = (
        f"model=tiny model.hidden=32 model.feed_forward=64 model.positions={LENGTH} model.dropout=0 "
        "model.attention_dropout=0 batch_size=12 micro_batch=4 log_every=1 threads=1 tracking=none "
        "optimizer.learning_rate=1e-2 evaluate_every=1000"
    )
    return [f"workdir={work}", f"out={out}", *fixed.split()]
