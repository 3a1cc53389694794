"""Dropout with cheap random numbers on CPU.

PyTorch draws one Bernoulli number per element on CPU: 16.6 ms for 2.9 million elements on one core,
an eighth of a bf16 step of `base`. Here one 64-bit word serves four elements: 4 ms in total.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 1 << 16


def drop(x: Tensor, share: float) -> Tensor:
    """Zero a random `share` of the elements and scale up the others, preserving the mean.

    Draws from PyTorch's global generator of the device. On CPU the share is rounded to a multiple
    of 1/65536, and the scale matches the rounded share; compiled code calls the same there.
    """
    if share == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, share)
    if torch.compiler.is_compiling():
        return times_drawn(x, share)[0]  # type: ignore[no-any-return]
    return x * drawn(x, share)


def drawn(x: Tensor, share: float) -> Tensor:
    """Return the factors of the elements of `x`."""
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    return factors(bits, round(share * LEVELS), x.dtype)


# One node for the compiler, which may neither merge, repeat nor move it: each takes the product of the one before.
@torch.library.custom_op("bert_pipeline::times_drawn", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def times_drawn(x: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Return the product of `x` with the factors that are drawn, and these."""
    mask = drawn(x, share)
    return x * mask, mask


times_drawn.register_fake(lambda x, share: (torch.empty_like(x), x.new_empty(x.shape)))
times_drawn.register_autograd(
    lambda ctx, gradient, _: (gradient * ctx.saved_tensors[0], None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output[1]),
)


def factors(bits: Tensor, dropped: int, dtype: torch.dtype) -> Tensor:
    """Return 0 where `bits` (int16) are among the `dropped` lowest values, else the scale."""
    scale = LEVELS / (LEVELS - dropped)
    half = dtype in (torch.bfloat16, torch.float16)  # multiply the scale's bits by 0 or 1: twice as fast
    mask = torch.empty(bits.shape, dtype=torch.int16 if half else dtype)
    torch.ge(bits, dropped - LEVELS // 2, out=mask)
    return mask.mul_(torch.tensor(scale, dtype=dtype).view(mask.dtype)).view(dtype)


class Dropout(nn.Module):
    """Module that applies `drop` while training."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to a tensor of any shape."""
        return drop(x, self.share if self.training else 0.0)
