"""A tiny model whose words are letters."""

from pathlib import Path

import pytest

from model.config import ModelConfig
from tests.model.sizes import write_model
from tests.support.preparing import vocabulary


def write_letter_model(temporary: pytest.TempPathFactory, config: ModelConfig, words: list[str]) -> Path:
    """Write a model with random weights and the vocabulary `words`; return its folder."""
    vocab = vocabulary(temporary.mktemp("vocab"), words[5:])
    (vocab / "vocab.txt").write_text("\n".join(words) + "\n")
    return write_model(temporary.mktemp("run") / "convert", config, vocab)
