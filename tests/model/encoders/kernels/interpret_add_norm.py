"""Run the Triton kernels on the CPU, by Triton's interpreter, and print what they make as JSON.

A process of its own: whether kernels are interpreted is decided where Triton is imported.
"""

import json
import os
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import Tensor
from torch.nn import functional as F

from model.encoders.kernels import add_norm_triton

ROWS, WIDTH = 9, 200
KEY, EPSILON = 2**40 + 7, 1e-6
PROGRAMS = 4  # each has more than one row


def mask(share: float) -> Tensor:
    """Return what the forward pass multiplies with, read from a sum with zero."""
    ones, zeros = torch.ones(ROWS, WIDTH), torch.zeros(ROWS, WIDTH)
    _, saved = add_norm_triton.forward(ones, zeros, ones[0], None, KEY, share, EPSILON)
    return saved.total


def compare(kind: torch.dtype, share: float, biased: bool, summed: bool) -> dict[str, Any]:
    """Return the distance of each result from PyTorch's in fp64, by its name."""
    torch.manual_seed(0)
    x, residual, above, above_total = (torch.randn(ROWS, WIDTH).to(kind) for _ in range(4))
    weight, bias = (torch.randn(WIDTH).to(kind) for _ in range(2))
    normed, saved = add_norm_triton.forward(x, residual, weight, bias if biased else None, KEY, share, EPSILON)
    d_residual, d_x, d_weight, d_bias = add_norm_triton.backward(
        above, above_total if summed else None, saved, PROGRAMS
    )
    found = [normed, saved.total, d_residual if d_x is None else d_x, d_residual, d_weight, d_bias]
    leaves = [one.double().requires_grad_() for one in (x, residual, weight, bias)]
    total = leaves[1] + leaves[0] * mask(share).double()
    shift = leaves[3] if biased else leaves[3] * 0
    expected = F.layer_norm(total, (WIDTH,), leaves[2], None, EPSILON) + shift
    loss = (expected * above).sum() + (leaves[3] * above).sum() * (not biased)
    if summed:
        loss = loss + (total * above_total).sum()
    gradients = torch.autograd.grad(loss, leaves)
    expected, total = expected.detach(), total.detach()
    names = ("normed", "total", "d_x", "d_residual", "d_weight", "d_bias")
    pairs = zip(names, found, [expected, total, *gradients], strict=True)
    return {name: float((a.double() - b).abs().max() / b.abs().max()) for name, a, b in pairs}


if __name__ == "__main__":
    kept = mask(0.3)
    result = {
        "bert fp32": compare(torch.float32, 0.3, biased=True, summed=False),
        "modernbert fp32": compare(torch.float32, 0.0, biased=False, summed=True),
        "bert bf16": compare(torch.bfloat16, 0.3, biased=True, summed=True),
        "dropped": float((kept == 0).float().mean()),
        "rows alike": int((kept[1:] == kept[0]).all(1).sum()),
        "kept": float(kept.max()),
    }
    print(json.dumps(result))
