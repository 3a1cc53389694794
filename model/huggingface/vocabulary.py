"""The vocabulary of a model's folder: its files, and whether they fit the weights."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from model.config import ModelConfig
from pipeline.common.errors import InputError
from pipeline.tokenization import wordpiece

TOKENIZER, VOCAB, TOKENIZER_CONFIG = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
WORD_ROWS = ("encoder.embeddings.word.weight", "masked_head.bias")  # parameters of a row an entry
PADDING = 128  # rows that a published matrix may have over its entries, to be of an even size


def exists(folder: Path) -> bool:
    """Whether a folder holds a vocabulary."""
    return any((folder / name).is_file() for name in (TOKENIZER, VOCAB))


def read(folder: Path) -> tuple[str, list[str]]:
    """The text of tokenizer.json, and the entries by id; made from vocab.txt where it is alone.

    Raises:
        InputError: there is no vocabulary, or the two files are not of one.
    """
    source = wordpiece.read(folder)
    library = Tokenizer.from_str(source)
    kind = type(library.model).__name__
    if kind != "WordPiece":
        raise InputError(f"{folder / TOKENIZER}: a {kind} tokenizer, BERT's is WordPiece")
    entries = wordpiece.entries_of(library)
    if (folder / TOKENIZER).is_file() and (folder / VOCAB).is_file():
        lines = wordpiece.read_vocab(folder / VOCAB)
        if len(lines) != len(entries) and lines != entries[: len(lines)]:
            raise InputError(
                f"{folder}: {VOCAB} has {len(lines):,} entries, {TOKENIZER} {len(entries):,}; they "
                f"are not of one vocabulary"
            )
        for number, (line, entry) in enumerate(zip(lines, entries, strict=False), 1):
            if line != entry:
                raise InputError(
                    f"{folder}: line {number} of {VOCAB} is {line!r}, that id is {entry!r} in "
                    f"{TOKENIZER}; they are not of one vocabulary"
                )
    return source, entries


def check_size(config: ModelConfig, entries: int, place: Path) -> None:
    """Check that there is one embedding an entry.

    Raises:
        InputError: there is not.
    """
    if entries != config.vocab_size:
        raise InputError(
            f"{place}: the vocabulary has {entries:,} entries, the model {config.vocab_size:,} "
            f"word embeddings; take the vocabulary that the model was trained with"
        )


def is_padding(rows: int, entries: int) -> bool:
    """Whether rows without an entry only make the matrix of an even size."""
    return 0 < rows - entries < PADDING and rows % 8 == 0


def extend_embeddings(
    config: ModelConfig, state: dict[str, Tensor], old: str, entries: list[str]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """A model with rows for the entries that a vocabulary has after those of tokenizer `old`.

    A new entry starts as the mean of the pieces that its text was cut into before, so the model
    goes on from what it knew. What was unknown starts as the mean of all (Hewitt 2021).
    """
    library = Tokenizer.from_str(old)
    unknown = library.token_to_id("[UNK]")
    texts = [entry.removeprefix("##") for entry in entries[config.vocab_size :]]
    pieces = [one.ids for one in library.encode_batch(texts, add_special_tokens=False)]
    grown = dict(state)
    for name in WORD_ROWS:
        rows = state[name]  # (V, H) or (V,)
        new = [
            (rows[ids] if ids and unknown not in ids else rows).mean(0, dtype=torch.float64)
            for ids in pieces
        ]
        grown[name] = torch.cat((rows, torch.stack(new).to(rows.dtype)))
    return replace(config, vocab_size=len(entries)), grown


def tokenizer_config(config: ModelConfig, source: str) -> dict[str, Any]:
    """The content of tokenizer_config.json: how transformers builds the same tokenizer."""
    normalizer = json.loads(source).get("normalizer") or {}
    return {
        "do_lower_case": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        "model_max_length": config.positions,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
    }
