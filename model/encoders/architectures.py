"""Architectures by name, and factories for their networks."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from model.config import ModelConfig
from model.encoders.bert import BERT, ROBERTA
from model.encoders.encoder import Architecture, PretrainingModel
from model.encoders.modernbert import MODERNBERT
from pipeline.tokenization.known_models import ROBERTAS

ARCHITECTURES = {"bert": BERT, "modernbert": MODERNBERT} | dict.fromkeys(ROBERTAS, ROBERTA)


def architecture_of(config: ModelConfig) -> Architecture:
    """Return the parts of the configured network."""
    return ARCHITECTURES[config.architecture]


def build_model(config: ModelConfig) -> PretrainingModel:
    """Build a network for pre-training with initialised parameters."""
    return PretrainingModel(config, architecture_of(config))


class Undrawn(TorchFunctionMode):
    """Leaves out random draws: without storage they would load PyTorch's compiler, 1.5 s of CPU time."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """Make parameters on the meta device, which have no values."""
    with torch.device("meta"), Undrawn():
        yield


def model_with(config: ModelConfig, state: Mapping[str, torch.Tensor]) -> PretrainingModel:
    """Build a network for inference around weights, which are not copied."""
    with shapes_only():
        model = build_model(config)
    model.load_state_dict(state, assign=True)
    return model.eval().requires_grad_(False)


def parameter_shapes(config: ModelConfig) -> dict[str, torch.Size]:
    """Return the shape of every parameter by name, in order, without allocating any."""
    with shapes_only():
        model = build_model(config)
    return {name: parameter.shape for name, parameter in model.named_parameters()}
