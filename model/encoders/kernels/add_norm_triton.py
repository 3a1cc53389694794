"""Triton kernels of dropout, residual and layer norm: a pass over memory for each direction.

They compute in fp32. A row is one block of a power of two. Its dropout mask is drawn by Philox from
a key, the number of the row and the column: the backward pass draws it again instead of reading it.

Shapes: T rows, H columns, G programs of the backward pass.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

NARROWEST = 4  # columns of a block: Philox makes four numbers at a time


@triton.jit
def kept(key, row, share, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return which columns of a row dropout keeps, `BLOCK` bools."""
    counter = tl.arange(0, BLOCK // 4)
    zero = counter * 0
    a, b, c, d = tl.philox(key, counter, (zero + row).to(tl.int32), zero, zero)
    bits = tl.join(tl.join(a, b), tl.join(c, d)).reshape(BLOCK)
    return tl.uint_to_uniform_float(bits) >= share


@triton.jit(do_not_specialize=["key"])
def forward_kernel(  # type: ignore[no-untyped-def]
    x,
    residual,
    weight,
    bias,
    normed,
    total,
    mean,
    rstd,
    key,
    share,
    epsilon,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    DROPS: tl.constexpr,
    BIASED: tl.constexpr,
):
    """Compute one row."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    place = row.to(tl.int64) * WIDTH + column
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        value = tl.where(kept(key, row, share, BLOCK), value / (1.0 - share), 0.0)
    value += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    rounded = value.to(total.dtype.element_ty)  # what the backward pass will read
    tl.store(total + place, rounded, mask=inside)
    value = rounded.to(tl.float32)
    centre = tl.sum(value, 0) / WIDTH
    value = tl.where(inside, value - centre, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / WIDTH + epsilon)
    value = value * scale * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if BIASED:
        value += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + place, value.to(normed.dtype.element_ty), mask=inside)
    tl.store(mean + row, centre)
    tl.store(rstd + row, scale)


@triton.jit(do_not_specialize=["key", "rows"])
def backward_kernel(  # type: ignore[no-untyped-def]
    above,
    above_total,
    total,
    weight,
    mean,
    rstd,
    d_residual,
    d_x,
    d_weight,
    d_bias,
    rows,
    key,
    share,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    DROPS: tl.constexpr,
    SUMMED: tl.constexpr,
):
    """Compute every G-th row, and the sums over them for the gradients of weight and bias."""
    program = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    weight_sum = tl.zeros((BLOCK,), tl.float32)
    bias_sum = tl.zeros((BLOCK,), tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        place = row * WIDTH + column  # in 64 bits, as `program` is
        scale = tl.load(rstd + row)
        value = tl.load(total + place, mask=inside, other=0.0).to(tl.float32)
        value = tl.where(inside, (value - tl.load(mean + row)) * scale, 0.0)
        upstream = tl.load(above + place, mask=inside, other=0.0).to(tl.float32)
        weight_sum += upstream * value
        bias_sum += upstream
        upstream *= gain
        along = tl.sum(upstream * value, 0) / WIDTH
        gradient = (upstream - tl.sum(upstream, 0) / WIDTH - value * along) * scale
        if SUMMED:
            gradient += tl.load(above_total + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(d_residual + place, gradient.to(d_residual.dtype.element_ty), mask=inside)
        if DROPS:
            gradient = tl.where(kept(key, row, share, BLOCK), gradient / (1.0 - share), 0.0)
            tl.store(d_x + place, gradient.to(d_x.dtype.element_ty), mask=inside)
    place = program * WIDTH + column
    tl.store(d_weight + place, weight_sum, mask=inside)
    tl.store(d_bias + place, bias_sum, mask=inside)


class Saved(NamedTuple):
    """What the backward pass needs of the forward pass."""

    total: Tensor  # (T, H), what was normalised
    mean: Tensor  # (T,) fp32
    rstd: Tensor  # (T,) fp32
    weight: Tensor  # (H,)
    key: int
    share: float


def forward(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, key: int, share: float, epsilon: float
) -> tuple[Tensor, Saved]:
    """Return the norm of the sum, `(T, H)`, and what the backward pass needs. T is not 0."""
    rows, width = x.shape
    normed, total = torch.empty_like(residual), torch.empty_like(residual)
    mean, rstd = x.new_empty((2, rows), dtype=torch.float32).unbind()
    block = block_of(width)
    forward_kernel[(rows,)](
        x,
        residual,
        weight,
        weight if bias is None else bias,
        normed,
        total,
        mean,
        rstd,
        key,
        share,
        epsilon,
        WIDTH=width,
        BLOCK=block,
        DROPS=share > 0,
        BIASED=bias is not None,
        num_warps=warps(block),
    )
    return normed, Saved(total, mean, rstd, weight, key, share)


def backward(
    above: Tensor, above_total: Tensor | None, saved: Saved, programs: int
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Return the gradients of residual, x, weight and bias.

    That of x is None without dropout: it is the residual's. The gradients of weight and
    bias are summed by `programs` programs first, then over these, in fp32.
    """
    rows, width = above.shape
    programs = min(programs, rows)
    block = block_of(width)
    d_residual = torch.empty_like(above)
    d_x = torch.empty_like(above) if saved.share else None
    sums = above.new_empty((2, programs, width), dtype=torch.float32)
    backward_kernel[(programs,)](
        above,
        above if above_total is None else above_total,
        saved.total,
        saved.weight,
        saved.mean,
        saved.rstd,
        d_residual,
        d_residual if d_x is None else d_x,
        *sums,
        rows,
        saved.key,
        saved.share,
        WIDTH=width,
        BLOCK=block,
        DROPS=d_x is not None,
        SUMMED=above_total is not None,
        num_warps=warps(block),
    )
    d_weight, d_bias = sums.sum(1).to(saved.weight.dtype)
    return d_residual, d_x, d_weight, d_bias


def block_of(width: int) -> int:
    """Return the columns of a block that holds a row."""
    return max(NARROWEST, 1 << (width - 1).bit_length())


def warps(block: int) -> int:
    """Return the warps of a program: each thread has 8 to 16 columns."""
    return min(16, max(1, block // 256))
