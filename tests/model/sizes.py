"""Sizes of models that tests make in no time."""

from typing import Any

from model.config import ModelConfig


def small(vocab_size: int, **changes: Any) -> ModelConfig:
    """Return two layers of sixteen, with what a test changes."""
    sizes = {"layers": 2, "hidden": 16, "heads": 2, "feed_forward": 32, "positions": 40}
    return ModelConfig(**{"name": "small", "vocab_size": vocab_size, **sizes, **changes})
