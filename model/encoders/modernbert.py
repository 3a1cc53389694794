"""ModernBERT (Warner et al. 2024): rotary positions, gated units, pre-norm, local attention.

No biases but the decoder's. Every `global_every`-th layer, starting with the first, attends to the
whole sequence; the others attend to `local_window` tokens around each and use a smaller rotary
base. It has no segments and no next-sentence head.

Rotary positions (Su et al. 2021) rotate queries and keys by angles: element `i` of the first half
of a head and element `i` of its second half form a plane, as in transformers. The tables are
computed once in single precision, whatever the model's precision.

Shapes: B sequences, T real tokens, K positions that a head reads, H hidden, F feed-forward, N heads,
D width of a head, P positions in a table.
"""

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn

from model.config import ModelConfig
from model.encoders.attention.backend import AttentionArgs
from model.encoders.attention.dispatch import attend
from model.encoders.dropout import Dropout, drop
from model.encoders.encoder import (
    Architecture,
    EncoderLayer,
    MaskedHead,
    QueryKeyValue,
    Sequences,
    Transform,
    WordEmbeddings,
    activation,
    layer_norm,
)

CUTOFF = 2.0  # truncation of initial weights, in standard deviations
ENDS_A_BRANCH = ("mix.weight", "down.weight", "masked_head.dense.weight", "pooler.dense.weight")


make_norm = functools.partial(layer_norm, bias=False)


class Embeddings(WordEmbeddings):
    """Token embeddings, normalised; attention adds the positions."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, input_ids: Tensor, segment_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Map three `(T,)` int64 tensors -> `(T, H)`."""
        return self.dropout(self.norm(self.word(input_ids)))  # type: ignore[no-any-return]


class Layer(EncoderLayer):
    """One pre-norm layer: local or global self-attention, then a gated unit."""

    def __init__(self, config: ModelConfig, number: int) -> None:
        super().__init__()
        sees_all = number % config.global_every == 0
        self.window = None if sees_all else config.local_window // 2  # tokens on each side
        base = config.rotary_global if sees_all else config.rotary_local
        self.table = config.positions, config.hidden // config.heads, base  # of angles
        self.share, self.activation = config.attention_dropout, activation(config)
        # The first layer's input is normalised already.
        self.attention_norm = make_norm(config) if number else nn.Identity()
        self.qkv = QueryKeyValue(config.hidden, config.heads, bias=False)
        self.mix = nn.Linear(config.hidden, config.hidden, bias=False)
        self.feed_norm = make_norm(config)
        self.up = nn.Linear(config.hidden, 2 * config.feed_forward, bias=False)
        self.dropout = Dropout(config.dropout)
        self.down = nn.Linear(config.feed_forward, config.hidden, bias=False)

    def prepare(self, seq_info: Sequences) -> None:
        """Compute the angles of the pass, outside of what may be compiled."""
        rotation(seq_info, *self.table)

    def attend(self, x: Tensor, seq_info: Sequences, queries: Tensor | None) -> Tensor:
        """Return what attention mixes: `(T, H)` -> `(T, N, D)`, or `(K, N, D)` at the places `queries`."""
        q, k, v = self.qkv(self.attention_norm(x), queries)
        angles = rotation(seq_info, *self.table)
        q, k, dropout = rotate(q, angles, queries), rotate(k, angles), self.share if self.training else 0.0
        args = AttentionArgs(seq_info.cu_seqlens, seq_info.max_length, dropout, window=self.window, queries=queries)
        return attend(q, k, v, seq_info.backend, args)

    def feed_forward_block(self, attn_out: Tensor, x: Tensor) -> Tensor:
        """Compute what follows the attention: two `(K, H)` tensors -> `(K, H)`."""
        x = x + drop(self.mix(attn_out), self.share if self.training else 0.0)
        value, gate = self.up(self.feed_norm(x)).chunk(2, -1)  # (K, F) each
        return x + self.down(self.dropout(self.activation(value) * gate))  # type: ignore[no-any-return]


class Pooler(Transform):
    """Pooler of fine-tuning heads: the first part of the masked-LM head."""

    def forward(self, x: Tensor) -> Tensor:
        """Map `(B, H)` -> `(B, H)`."""
        return self.hidden(x)


def initialise_matrix(name: str, parameter: Tensor, config: ModelConfig) -> None:
    """Draw one matrix in place from a truncated normal distribution.

    The deviation shrinks with the number of layers for the output matrices of residual branches,
    and with the input width for a task's head.
    """
    deviation = config.initializer_range
    if name.endswith(ENDS_A_BRANCH):
        deviation /= math.sqrt(2 * config.layers)
    elif name == "head.weight":
        deviation = config.hidden**-0.5
    limit = CUTOFF * deviation
    nn.init.trunc_normal_(parameter, std=deviation, a=-limit, b=limit)


MODERNBERT = Architecture(
    embeddings=Embeddings,
    layer=Layer,
    norm=make_norm,
    pooler=functools.partial(Pooler, bias=False),
    masked_head=functools.partial(MaskedHead, bias=False),
    initialise=initialise_matrix,
    period=lambda config: config.global_every,
    pooler_source="masked_head",
    pooled_tokens=True,
)


@functools.lru_cache(maxsize=16)
def rotary_tables(positions: int, width: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines, for both halves, and sines of all angles: `(P, D)`, `(P, D/2)` fp32."""
    steps = torch.arange(0, width, 2, dtype=torch.float32) / width
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * (1.0 / base**steps)
    return angles.cos().repeat(1, 2).to(device), angles.sin().to(device)


def rotation(seq_info: Sequences, positions: int, width: int, base: float) -> tuple[Tensor, Tensor]:
    """Return cosines `(T, 1, D)` and sines `(T, 1, D/2)` at the tokens of a pass, for all layers.

    `positions` is the longest possible sequence.
    """
    key = ("rotary", width, base)
    if key not in seq_info.shared:
        cosines, sines = rotary_tables(positions, width, base, seq_info.position_ids.device)
        places = seq_info.position_ids
        seq_info.shared[key] = cosines[places][:, None], sines[places][:, None]
    return seq_info.shared[key]


class Rotate(torch.autograd.Function):
    """Rotation of rows by their angles; the backward pass rotates the gradient back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """Map `(T, N, D)`, `(T, 1, D)` and `(T, 1, D/2)` -> `(T, N, D)`."""
        ctx.save_for_backward(cosines, sines)
        return turn(x, cosines, sines, 1.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Rotate the gradient `(T, N, D)` back."""
        cosines, sines = ctx.saved_tensors
        return turn(gradient, cosines, sines, -1.0), None, None


def turn(x: Tensor, cosines: Tensor, sines: Tensor, direction: float) -> Tensor:
    """Rotate `(T, N, D)` in single precision or better; the result has `x`'s type.

    `direction` is 1, or -1 to rotate back.
    """
    out = x * cosines
    first, second = x.chunk(2, -1)
    one, other = out.chunk(2, -1)
    one.addcmul_(second, sines, value=-direction)
    other.addcmul_(first, sines, value=direction)
    return out.to(x.dtype)


def rotate(x: Tensor, angles: tuple[Tensor, Tensor], places: Tensor | None = None) -> Tensor:
    """Rotate queries or keys `(T, N, D)`, or those of `places` `(K,)`, by the result of `rotation`."""
    at_places = angles if places is None else [table[places] for table in angles]
    return Rotate.apply(x, *at_places)  # type: ignore[no-any-return, no-untyped-call]
