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
    """Return cosines, for both halves, and sines of all angles: `(P, D)`, `(P, D/2)` fp32."""
    steps = torch.arange(0, width, 2, dtype=torch.float32) / width
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * (1.0 / base**steps)
    return angles.cos().repeat(1, 2).to(device), angles.sin().to(device)


def rotation(where: Sequences, positions: int, width: int, base: float) -> tuple[Tensor, Tensor]:
    """Return cosines `(T, 1, D)` and sines `(T, 1, D/2)` at the tokens of a pass, for all layers.

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
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """Map `(T, N, D)`, `(T, 1, D)` and `(T, 1, D/2)` -> `(T, N, D)`."""
        ctx.save_for_backward(cosines, sines)
        return turn(x, cosines, sines, 1.0)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
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


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate queries or keys `(T, N, D)` by the result of `rotation`."""
    return Rotate.apply(x, *angles)  # type: ignore[no-any-return, no-untyped-call]
