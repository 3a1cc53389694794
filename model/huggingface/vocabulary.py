"""Vocabulary files of a model folder, and their consistency with the weights."""

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
WORD_ROWS = ("encoder.embeddings.word.weight", "masked_head.bias")  # one row per entry
ROLES = ("pad", "unk", "cls", "sep", "mask")  # of the special tokens
PADDING = 128  # limit of padding rows in published matrices


def exists(folder: Path) -> bool:
    """Return whether a folder contains a vocabulary."""
    return any((folder / name).is_file() for name in (TOKENIZER, VOCAB))


def read(folder: Path) -> tuple[str, list[str]]:
    """Return the text of tokenizer.json (made from vocab.txt if missing) and the entries by id.

    Raises:
        InputError: No vocabulary was found, or the two files differ.
    """
    source = wordpiece.read(folder)
    library = Tokenizer.from_str(source)
    entries = wordpiece.entries_of(library)
    if (folder / TOKENIZER).is_file() and (folder / VOCAB).is_file():
        lines = wordpiece.read_vocab(folder / VOCAB)
        if len(lines) != len(entries) and lines != entries[: len(lines)]:
            raise InputError(
                f"{folder}: {VOCAB} has {len(lines):,} entries, but {TOKENIZER} {len(entries):,}; "
                "delete the wrong file",
                path=folder,
            )
        for number, (line, entry) in enumerate(zip(lines, entries, strict=False), 1):
            if line != entry:
                raise InputError(
                    f"{folder}: line {number} of {VOCAB} is {line!r}, but {TOKENIZER} has "
                    f"{entry!r}; delete the wrong file",
                    path=folder / VOCAB,
                    line=number,
                )
    return source, entries


def check_size(config: ModelConfig, entries: int, place: Path) -> None:
    """Check that the model has one embedding per entry."""
    if entries != config.vocab_size:
        raise InputError(
            f"{place}: the vocabulary has {entries:,} entries, but the model {config.vocab_size:,} "
            f"word embeddings; use the vocabulary that the model was trained with",
            path=place,
        )


def is_padding(rows: int, entries: int) -> bool:
    """Return whether rows without an entry are padding to a multiple of 8."""
    return 0 < rows - entries < PADDING and rows % 8 == 0


def extend_embeddings(
    config: ModelConfig, state: dict[str, Tensor], old: str, entries: list[str]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Add rows for the entries that a vocabulary has beyond those of tokenizer `old`.

    A new entry is initialised to the mean of its former word pieces, or of all entries if these
    include [UNK] (Hewitt 2021).
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
    """Return the content of tokenizer_config.json, from which transformers builds the tokenizer."""
    library = Tokenizer.from_str(source)
    names = wordpiece.special_names(library.get_vocab(with_added_tokens=True))
    if not wordpiece.is_wordpiece(library):
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config.positions,
            **{f"{role}_token": name for role, name in zip(ROLES, names, strict=True)},
        }
    normalizer = json.loads(source).get("normalizer") or {}
    return {
        "do_lower_case": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        "model_max_length": config.positions,
        **{f"{role}_token": name for role, name in zip(ROLES, names, strict=True)},
    }
