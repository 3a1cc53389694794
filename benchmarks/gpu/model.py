"""Models and batches for measurements on a GPU; PyTorch and numpy are all that they need."""

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from model.config import PUBLISHED, ModelConfig
from model.encoders.architectures import build_model
from model.encoders.batch import Batch
from model.encoders.cross_entropy import cross_entropy
from model.encoders.encoder import PretrainingModel, prepare_for

VOCABULARY = 30522
Loss = Callable[[Any], Tensor]  # a batch -> the loss, a scalar
FULL = 0.77  # of the sequences are of full length, as shards have them


def config_of(size: str, length: int, dropout: float = 0.1, attention: str = "auto") -> ModelConfig:
    """Return a published size."""
    layers, hidden, heads, wide = PUBLISHED[size]
    return ModelConfig(
        name=size,
        layers=layers,
        hidden=hidden,
        heads=heads,
        feed_forward=wide,
        positions=max(512, length),
        vocab_size=VOCABULARY,
        dropout=dropout,
        attention_dropout=dropout,
        attention=attention,
    )


def make_model(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> PretrainingModel:
    """Return a model with the same weights on every device, as it trains there."""
    torch.manual_seed(0)
    model = build_model(config).to(device, dtype)
    prepare_for(torch.device("cuda"), torch.bfloat16, model)  # on a CPU too: the paths are to be tried
    return model


def make_batch(tokens: int, length: int, seed: int = 0) -> Batch:
    """Return sequences of about `tokens` tokens in all, 15 % of them masked."""
    draw = torch.Generator().manual_seed(seed)
    lengths: list[int] = []
    while sum(lengths) < tokens:
        full = torch.rand(1, generator=draw).item() < FULL
        lengths.append(length if full else int(torch.randint(8, length, (1,), generator=draw)))
    bounds = torch.tensor([0, *lengths]).cumsum(0)
    places = torch.cat([torch.arange(length) for length in lengths])
    total = int(bounds[-1])
    ids = torch.randint(5, VOCABULARY, (total,), generator=draw)
    chosen = [
        start + 1 + torch.randperm(end - start - 1, generator=draw)[: 1 + (end - start) * 3 // 20]
        for start, end in pairwise(bounds.tolist())
    ]
    masked = torch.cat(chosen).sort().values
    pairs = torch.randint(0, 2, (len(lengths),), generator=draw)
    return Batch(ids, torch.zeros_like(ids), places, bounds.int(), max(lengths), masked, ids[masked], pairs)


def loss_of(model: Callable[[Batch], tuple[Tensor, Tensor | None]], batch: Batch) -> Tensor:
    """Return the mean loss of both heads."""
    masked, pair = model(batch)
    loss, _ = cross_entropy(masked, batch.masked_labels)
    loss = loss / len(batch.masked_labels)
    if pair is None:
        return loss
    return loss + F.cross_entropy(pair.float(), batch.next_sentence_labels)


def step_of(optimizer: torch.optim.Optimizer, loss: Loss) -> Callable[[Any], None]:
    """Return what trains on a batch: forward, backward and update."""

    def step(batch: Any) -> None:
        loss(batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def without_dropout(config: ModelConfig) -> ModelConfig:
    """Return the same model without dropout."""
    return dataclasses.replace(config, dropout=0.0, attention_dropout=0.0)
