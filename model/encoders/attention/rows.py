"""Rows of packed tokens: taken, put back, padded."""

from typing import Any

import torch
from torch import Tensor


class TakeRows(torch.autograd.Function):
    """`x[index]` for distinct rows: its gradient is a parallel copy, not a serial sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        """Map `(R, ...)`, `(K,)` -> `(K, ...)`."""
        ctx.save_for_backward(index)
        ctx.rows = x.shape[0]
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Map `(K, ...)` -> `(R, ...)`, zero for rows not in `index`."""
        (index,) = ctx.saved_tensors
        return put_rows(gradient, index, ctx.rows), None


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return the rows `index` `(K,)`, all distinct, of `x` `(R, ...)`: `(K, ...)`."""
    return TakeRows.apply(x, index)  # type: ignore[no-any-return, no-untyped-call]


def pad_rows(x: Tensor, multiple: int) -> Tensor:
    """Append zeros to `x` `(R, ...)` up to a multiple of rows."""
    missing = -len(x) % multiple
    return torch.cat((x, x.new_zeros(missing, *x.shape[1:]))) if missing else x


def put_rows(x: Tensor, index: Tensor, rows: int) -> Tensor:
    """Scatter the rows of `x` `(K, ...)` to `index` `(K,)` of `(rows, ...)`, zero elsewhere."""
    out = x.new_zeros(rows, *x.shape[1:])
    out[index] = x
    return out


def padded_places(cu_seqlens: Tensor, max_length: int, tokens: int) -> Tensor:
    """Return each token's index in the sequences padded to `max_length`: `(T,)` into B x L."""
    lengths = cu_seqlens.diff()  # (B,)
    starts = torch.arange(len(lengths), device=cu_seqlens.device) * max_length
    shift = starts - cu_seqlens[:-1]  # (B,) from packed to padded
    token = torch.arange(tokens, device=cu_seqlens.device)
    return token + shift.repeat_interleave(lengths, output_size=tokens)
