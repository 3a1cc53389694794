"""Sizes of models that tests make in no time."""

import torch

from model.config import ModelConfig
from model.encoders.architectures import build_model
from model.huggingface import bert_format


def small(vocab_size, **changes):
    """Return two layers of sixteen, with what a test changes."""
    sizes = {"layers": 2, "hidden": 16, "heads": 2, "feed_forward": 32, "positions": 40}
    return ModelConfig(**{"name": "small", "vocab_size": vocab_size, **sizes, **changes})


def write_model(folder, config, vocab, **more):
    """Write a model with random weights, always the same, as `convert` leaves it; return its folder."""
    torch.manual_seed(0)
    bert_format.save(folder, config, build_model(config).state_dict(), vocab, **more)
    return folder
