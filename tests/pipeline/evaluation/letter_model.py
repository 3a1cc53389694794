"""A tiny model whose words are letters."""

from pathlib import Path

import pytest
import torch

from model.config import ModelConfig
from model.encoders.architectures import build_model
from model.huggingface import bert_format
from pipeline.tokenization.wordpiece import build


def write_letter_model(temporary: pytest.TempPathFactory, config: ModelConfig, words: list[str]) -> Path:
    """Write a model with random weights and the vocabulary `words`; return its folder."""
    vocab = temporary.mktemp("vocab")
    (vocab / "vocab.txt").write_text("\n".join(words) + "\n")
    (vocab / "tokenizer.json").write_text(build(words, lowercase=True))
    torch.manual_seed(0)
    folder = temporary.mktemp("run") / "convert"
    bert_format.save(folder, config, build_model(config).state_dict(), vocab)
    return folder
