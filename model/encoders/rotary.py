"""Rotary positions (Su et al. 2021): rotation of queries and keys by position-dependent angles.

Element `i` of the first half of a head and element `i` of its second half form a plane, as in
transformers. The tables are computed once in single precision, whatever the model's precision, and
indexed by the position of each token in its sequence.

Shapes: T tokens, N heads, D width of a head, P positions in a table.
"""

import functools

import torch
from torch import Tensor

from model.encoders.encoder import Sequences


@functools.lru_cache(maxsize=16)
def tables(positions: int, width: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of all angles, each `(P, D/2)` fp32."""
    steps = torch.arange(0, width, 2, dtype=torch.float32) / width
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * (1.0 / base**steps)
    return angles.cos().to(device), angles.sin().to(device)


def rotation(where: Sequences, positions: int, width: int, base: float) -> tuple[Tensor, Tensor]:
    """Return cosines and sines at the tokens of a pass, each `(T, 1, D/2)`, shared by all layers.

    `positions` is the longest possible sequence.
    """
    key = ("rotary", width, base)
    if key not in where.shared:
        cosines, sines = tables(positions, width, base, where.position_ids.device)
        places = where.position_ids
        where.shared[key] = cosines[places][:, None], sines[places][:, None]
    return where.shared[key]


class Rotate(torch.autograd.Function):
    """Rotation of rows by their angles; the backward pass rotates the gradient back."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, x: Tensor, cosines: Tensor, sines: Tensor
    ) -> Tensor:
        """Map `(T, N, D)` and two `(T, 1, D/2)` tensors -> `(T, N, D)`."""
        ctx.save_for_backward(cosines, sines)
        return turn(x, cosines, sines)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        """Rotate the gradient `(T, N, D)` back."""
        cosines, sines = ctx.saved_tensors
        return turn(gradient, cosines, -sines), None, None


def turn(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate `(T, N, D)` in single precision or better; the result has `x`'s type."""
    first, second = x.chunk(2, -1)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    one, other = out.chunk(2, -1)
    one.copy_(first * cosines - second * sines)
    other.copy_(second * cosines + first * sines)
    return out


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate queries or keys `(T, N, D)` by the result of `rotation`."""
    return Rotate.apply(x, *angles)  # type: ignore[no-any-return, no-untyped-call]
