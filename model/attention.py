"""Self-attention over sequences laid end to end: one seam, several backends.

`attend` is the only place where tokens of a sequence meet. Every backend computes
softmax(q k^T / sqrt(D)) v within each sequence (Vaswani et al. 2017, section 3.2.1) and differs
only in how it keeps sequences apart.

Shapes: B sequences, L longest of them, T real tokens, N heads, D width of a head.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.errors import ConfigError

BACKENDS = ("padded",)


def resolve(backend: str, device: torch.device, dtype: torch.dtype, dropout: float) -> str:
    """The name of the backend that `backend` means here; `auto` takes the fastest that fits.

    Raises:
        ConfigError: the one asked for cannot work here; the message says why.
    """
    if backend == "auto":
        return "padded"
    if backend not in BACKENDS:
        raise ConfigError(f"model.attention={backend}: choose one of auto, {', '.join(BACKENDS)}")
    return backend


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor,
    max_length: int,
    dropout: float = 0.0,
    backend: str = "padded",
) -> Tensor:
    """Mix the values of each sequence's tokens: `(T, N, D)` three times -> `(T, N, D)`.

    `cu_seqlens` `(B+1,)` says where each sequence starts, and T. `dropout` is applied to the
    attention probabilities. `backend` is a name that `resolve` returned.
    """
    return padded(q, k, v, cu_seqlens, max_length, dropout)


class TakeRows(torch.autograd.Function):
    """`x[index]` for distinct rows: its gradient is a copy, not a sum, so it need not be serial."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, index: Tensor) -> Tensor:
        """`(R, ...)`, `(K,)` -> `(K, ...)`."""
        ctx.save_for_backward(index)
        ctx.rows = x.shape[0]  # type: ignore[attr-defined]
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        """`(K, ...)` -> `(R, ...)`, zero where no row was taken."""
        (index,) = ctx.saved_tensors
        return put_rows(gradient, index, ctx.rows), None


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """The rows of `x` `(R, ...)` that `index` `(K,)` names, each at most once: `(K, ...)`."""
    return TakeRows.apply(x, index)  # type: ignore[no-any-return, no-untyped-call]


def put_rows(x: Tensor, index: Tensor, rows: int) -> Tensor:
    """The rows of `x` `(K, ...)` at the places `index` `(K,)` of `(rows, ...)`, zeros elsewhere."""
    out = x.new_zeros(rows, *x.shape[1:])
    out[index] = x
    return out


def padded_places(cu_seqlens: Tensor, max_length: int, tokens: int) -> Tensor:
    """Where each token stands when sequences are padded to `max_length`: `(T,)` into B x L."""
    lengths = cu_seqlens.diff()  # (B,)
    starts = torch.arange(len(lengths), device=cu_seqlens.device) * max_length
    shift = starts - cu_seqlens[:-1]  # (B,) from packed to padded
    each = torch.arange(tokens, device=cu_seqlens.device)
    return each + shift.repeat_interleave(lengths, output_size=tokens)


def padded(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_length: int, dropout: float
) -> Tensor:
    """PyTorch's fused attention over padded sequences, on any device."""
    tokens, heads, width = q.shape
    lengths = cu_seqlens.diff()  # (B,)
    places = padded_places(cu_seqlens, max_length, tokens)  # (T,)
    rows = len(lengths) * max_length

    def pad(x: Tensor) -> Tensor:  # (T, N, D) -> (B, N, L, D)
        return put_rows(x, places, rows).view(-1, max_length, heads, width).transpose(1, 2)

    real = torch.arange(max_length, device=q.device) < lengths[:, None]  # (B, L)
    mixed = F.scaled_dot_product_attention(
        pad(q), pad(k), pad(v), attn_mask=real[:, None, None, :], dropout_p=dropout
    )  # (B, N, L, D)
    return take_rows(mixed.transpose(1, 2).reshape(rows, heads, width), places)
