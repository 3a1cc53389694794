"""The vocabulary of a model's folder: its files, and whether they fit the weights."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from model.config import ModelConfig
from pipeline.errors import InputError
from pipeline.text import wordpiece

TOKENIZER, VOCAB, TOKENIZER_CONFIG = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
PADDING = 128  # rows that a published matrix may have over its entries, to be of an even size


def there(folder: Path) -> bool:
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
    entries = entries_of(library)
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


def entries_of(library: Tokenizer) -> list[str]:
    """All entries by id, those that were added to the model's own among them; "" in a gap."""
    ids: dict[str, int] = library.get_vocab(with_added_tokens=True)
    entries = [""] * (max(ids.values()) + 1)
    for entry, number in ids.items():
        entries[number] = entry
    return entries


def fits(config: ModelConfig, entries: int, place: Path) -> None:
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


def tokenizer_config(config: ModelConfig, source: str) -> dict[str, Any]:
    """The content of tokenizer_config.json: how transformers builds the same tokenizer."""
    normalizer = json.loads(source).get("normalizer") or {}
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        "model_max_length": config.positions,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
    }
