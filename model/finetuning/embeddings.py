"""Contextual embeddings of texts: hidden states of selected layers, mixed and pooled.

Shapes: N texts, T tokens in a batch, W width of a vector.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from model.encoders.architectures import shapes_only
from model.encoders.device import device_of
from model.encoders.encoder import summary_places
from model.finetuning import loop
from model.finetuning.features import Samples
from model.finetuning.heads import BertWithHead, HeadConfig, pool_tokens
from model.huggingface import bert_format
from pipeline.common.counter_rng import Ints
from pipeline.errors import ConfigError

BATCH_TOKENS = 4096  # approximate tokens per forward pass; twice as many take 1.05 times as long


class Embedder:
    """Embedding of texts with a pre-trained model."""

    def __init__(self, folder: Path | str, layers: list[int], mix: str, pooling: str, seed: int | None = None):
        """Open a Hugging Face folder; with a seed, take the same network from random weights.

        Raises:
            ConfigError: The model has fewer layers than `layers` requests.
        """
        self.size, state, *_ = bert_format.load(folder)
        if max(map(abs, layers)) > self.size.layers:
            raise ConfigError(f"must be at most {self.size.layers}, the model's layers", "layers", layers)
        head = HeadConfig("class", 1, frozen=True, layers=layers, mix=mix)
        if seed is None:
            with shapes_only():
                self._model = BertWithHead(self.size, head)
            mine = {name: state[name] for name in self._model.state_dict() if name in state}
            self._model.load_state_dict(mine, strict=False, assign=True)
        else:
            self._model = loop.build(self.size, None, head, seed)
        self.device = device_of()
        self._model.encoder.to(self.device).eval()
        self._pooling = pooling
        self._summary = pooling == "cls" and layers in ([-1], [self.size.layers])
        self.width = self.size.hidden * (len(layers) if mix == "concat" else 1)

    @property
    def words(self) -> npt.NDArray[np.float32]:
        """Return the vectors of the vocabulary's entries `(V, H)`, padded."""
        return self._model.encoder.embeddings.word.weight.detach().float().cpu().numpy()

    @torch.no_grad()
    def vectors(self, samples: Samples) -> list[npt.NDArray[np.float32]]:
        """Return a vector `(W,)` per text, or `(length, W)` per token including [CLS] and [SEP]."""
        vectors: list[npt.NDArray[np.float32]] = [np.zeros(0, np.float32)] * len(samples)
        lengths = samples.lengths()
        for rows in batches(lengths):
            batch, _ = loop.inputs(samples, rows, self.device)
            starts = batch.cu_seqlens  # (N+1,)
            places = summary_places(starts, self.size).long()
            if self._summary:  # the last layer skips the other tokens
                x = self._model.encoder(batch, places)[: len(rows)]
            else:
                x = self._model.features(batch)  # (T, W)
                x = x if self._pooling == "tokens" else pool_tokens(x, starts, places, self._pooling)
            pooled = x.float().cpu().numpy()
            each = np.split(pooled, np.cumsum(lengths[rows])[:-1]) if self._pooling == "tokens" else list(pooled)
            for row, part in zip(rows, each, strict=True):
                vectors[row] = part
        return vectors


def batches(lengths: Ints, tokens: int = BATCH_TOKENS) -> Iterator[Ints]:
    """Yield each text's index once, grouped by similar length, up to about `tokens` per batch."""
    order = np.argsort(lengths, kind="stable")
    groups = np.cumsum(lengths[order]) // tokens
    yield from np.split(order, np.flatnonzero(np.diff(groups)) + 1)
