"""BERT as published (Devlin et al. 2019): learned positions, post-layer-norm, sentence pairs.

RoBERTa (Liu et al. 2019) has no segments and no sentence pairs.

Shapes: B sequences in a micro-batch, T real tokens in it, K positions that a head reads, H hidden.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from model.config import ModelConfig
from model.encoders.attention.backend import AttentionArgs
from model.encoders.attention.dispatch import attend
from model.encoders.dropout import Dropout
from model.encoders.encoder import (
    Architecture,
    EncoderLayer,
    MaskedHead,
    QueryKeyValue,
    Sequences,
    WordEmbeddings,
    activation,
    layer_norm,
)

SEGMENTS = 2


class Embeddings(WordEmbeddings):
    """Sum of token, position and, if the architecture has any, segment embeddings, normalised."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.position = nn.Embedding(config.positions, config.hidden)
        self.segment = nn.Embedding(SEGMENTS, config.hidden) if config.traits.sentence_pairs else None
        self.norm = layer_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, input_ids: Tensor, segment_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Map three `(T,)` int64 tensors -> `(T, H)`."""
        x = self.word(input_ids) + self.position(position_ids)
        if self.segment is not None:
            x = x + self.segment(segment_ids)
        return self.dropout(self.norm(x))  # type: ignore[no-any-return]


class Residual(nn.Module):
    """End of each half of a layer: projection, dropout, residual and layer norm (post-norm)."""

    def __init__(self, width: int, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(width, config.hidden)
        self.dropout = Dropout(config.dropout)
        self.norm = layer_norm(config)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        """Map `(T, width)` and `(T, H)` -> `(T, H)`."""
        return self.norm(residual + self.dropout(self.dense(x)))  # type: ignore[no-any-return]


class Layer(EncoderLayer):
    """One transformer layer: self-attention, then a feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_dropout, self.causal = config.attention_dropout, config.causal
        self.activation = activation(config)
        self.qkv = QueryKeyValue(config.hidden, config.heads)
        self.mix = Residual(config.hidden, config)
        self.up = nn.Linear(config.hidden, config.feed_forward)
        self.down = Residual(config.feed_forward, config)

    def attend(self, x: Tensor, seq_info: Sequences, queries: Tensor | None) -> Tensor:
        """Return what attention mixes: `(T, H)` -> `(T, N, D)`, or `(K, N, D)` at the places `queries`."""
        dropout = self.attention_dropout if self.training else 0.0
        args = AttentionArgs(seq_info.cu_seqlens, seq_info.max_length, dropout, self.causal, queries=queries)
        q, k, v = self.qkv(x, queries)
        return attend(q, k, v, seq_info.backend, args)

    def feed_forward_block(self, attn_out: Tensor, x: Tensor) -> Tensor:
        """Compute what follows the attention: two `(K, H)` tensors -> `(K, H)`."""
        x = self.mix(attn_out, x)
        return self.down(self.activation(self.up(x)), x)  # type: ignore[no-any-return]


class Pooler(nn.Module):
    """Pooler over the summary token of each sequence, see `summary_places`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden, config.hidden)

    def forward(self, summary: Tensor) -> Tensor:
        """Map hidden states of the summary tokens `(B, H)` -> `(B, H)`."""
        return torch.tanh(self.dense(summary))


def initialise_matrix(name: str, parameter: Tensor, config: ModelConfig) -> None:
    """Draw one matrix in place from normal(0, `initializer_range`), as in Devlin et al.'s code."""
    nn.init.normal_(parameter, std=config.initializer_range)


BERT = Architecture(
    embeddings=Embeddings,
    layer=lambda config, number: Layer(config),
    pooler=Pooler,
    masked_head=MaskedHead,
    initialise=initialise_matrix,
)
# Its masked-LM head has the exact GELU, whatever its layers have.
ROBERTA = replace(BERT, masked_head=lambda config: MaskedHead(replace(config, activation="gelu")))
