"""The architectures by name, and the networks that are made of them."""

import torch

from model.config import ModelConfig
from model.encoders.bert import BERT
from model.encoders.encoder import Architecture, Encoder, PretrainingModel
from model.encoders.modernbert import MODERNBERT

ARCHITECTURES = {"bert": BERT, "modernbert": MODERNBERT}


def architecture_of(config: ModelConfig) -> Architecture:
    """The parts of the network that a configuration names."""
    return ARCHITECTURES[config.architecture]


def build_encoder(config: ModelConfig) -> Encoder:
    """An encoder without heads, its parameters not drawn yet."""
    return Encoder(config, architecture_of(config))


def build_model(config: ModelConfig) -> PretrainingModel:
    """A network to pre-train, its parameters drawn."""
    return PretrainingModel(config, architecture_of(config))


def parameter_shapes(config: ModelConfig) -> dict[str, torch.Size]:
    """The shape of every parameter by name, in order, without making any."""
    with torch.device("meta"):
        model = build_model(config)
    return {name: parameter.shape for name, parameter in model.named_parameters()}
