"""Inputs of benchmarks: vocabularies, and shards of random tokens with realistic lengths."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.shards import ShardInfo, write_shard
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build

PAD, UNK, CLS, SEP, MASK = range(len(SPECIAL))
SIZE = 30522  # entries, as in bert-base-uncased
SHA256 = "0" * 64  # in place of a tokenizer.json's


def make_vocab(folder: Path) -> list[str]:
    """Write `vocab.txt`: every fifth entry continues a word."""
    words = [f"##{i}" if i % 5 == 0 else f"w{i}" for i in range(SIZE - len(SPECIAL))]
    entries = [*SPECIAL, *words]
    (folder / "vocab.txt").write_text("\n".join(entries) + "\n", encoding="utf-8")
    return entries


def learn_vocab(texts: list[str]) -> str:
    """Learn a vocabulary of the default size from texts; return its tokenizer.json."""
    from pipeline.config import VocabConfig  # not at the top: would add to other benchmarks' memory
    from pipeline.tokenization.learning import learn_entries

    entries = learn_entries(texts, build(list(SPECIAL), lowercase=True, new=True), VocabConfig.size)
    return build(entries, lowercase=True, new=True)


def tokenizer_of(entries: list[str]) -> WordPiece:
    """Return the tokenizer of `make_shards`."""
    made = WordPiece(build(entries, lowercase=True))
    made.sha256 = SHA256
    return made


def draw_lengths(draw: np.random.Generator, rows: int, length: int, kind: str) -> npt.NDArray[np.int64]:
    """Draw tokens per row: of pairs as the reference code's, 77 % full, or of whole documents.

    Lengths of documents are log-normal, with a median of a quarter of the longest.
    """
    if kind == "documents":
        lengths = length / 4 * np.exp(draw.standard_normal(rows))
        return np.clip(lengths.astype(np.int64), 8, length - 3)
    return np.where(draw.random(rows) < 0.77, length - 3, draw.integers(2, length - 2, rows))


def make_shards(folder: Path, rows: int, shards: int, length: int, kind: str = "pairs") -> None:
    """Write shards with lengths as `draw_lengths` has them; one token in 500 is unknown."""
    draw = np.random.default_rng(0)
    info = ShardInfo(split="train", pairs="nsp", tokenizer=SHA256, vocab_size=SIZE, sequence_length=length, seed=0)
    for number in range(shards):
        n = rows // shards
        lengths = draw_lengths(draw, n, length, kind)
        offsets = np.cumsum([0, *lengths])
        values = draw.integers(len(SPECIAL), SIZE, offsets[-1])
        values[draw.random(len(values)) < 0.002] = UNK
        path = folder / f"train-{number:05d}-of-{shards:05d}.arrow"
        a_len = draw.integers(1, lengths)
        write_shard(path, info, values, offsets, a_len, draw.random(n) < 0.5)
