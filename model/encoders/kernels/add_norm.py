"""Dropout, residual and layer norm as one operator: for GPUs, where each alone is bound by memory.

The operator takes two kernels of `add_norm_triton`. It costs the host more than PyTorch's three do,
and pays where the GPU is behind the host: `fits` says where. The compiler fuses the same by itself,
together with what is around it, so that a compiled layer does without. On a CPU the operator is a
reference in plain PyTorch, to check the mathematics and the graph without a GPU.

Shapes: T rows, H columns.
"""

import functools
import importlib.util
from typing import Any

import torch
from torch import Tensor, nn

from model.encoders.dropout import drop
from model.encoders.kernels.c_compiler import has_compiler

# Elements, 11,000 tokens of `base`: with fewer a GPU would wait for the host. Estimated from the
# memory that is saved and the host's time for a launch, not measured.
FEWEST = 1 << 23
WIDEST = 1 << 13  # columns that the registers of a program hold
PROGRAMS = 4  # of the backward pass, for each multiprocessor
OLDEST = (8, 0)  # compute capability that the kernels are built for

# The dropout mask differs from call to call: the compiler may neither merge nor repeat calls.
_TAGS = (torch.Tag.nondeterministic_seeded,)


class AddNorm(nn.LayerNorm):
    """Layer norm of a sum; its parameters are those of a plain layer norm."""

    def forward(  # type: ignore[override]
        self, x: Tensor, residual: Tensor, share: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Return the norm of `residual` plus `x` after dropout, and the sum: `(T, H)` each."""
        if fits(x):
            normed, total, _, _, _ = add_norm(x, residual, self.weight, self.bias, share, self.eps)
            return normed, total
        total = residual + drop(x, share)
        return super().forward(total), total


def fits(x: Tensor) -> bool:
    """Return whether the operator is the faster one for `x` `(T, H)`."""
    if torch.compiler.is_compiling() or not x.is_cuda:
        return False
    return x.numel() >= FEWEST and x.shape[1] <= WIDEST and _can_be_built(x.device)


@functools.cache
def _can_be_built(device: torch.device) -> bool:
    """Return whether Triton can build kernels for a device here."""
    return (
        importlib.util.find_spec("triton") is not None
        and has_compiler()
        and torch.cuda.get_device_capability(device) >= OLDEST
    )


@torch.library.custom_op("bert_pipeline::add_norm", mutates_args=(), device_types="cuda", tags=_TAGS)
def add_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, share: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the norm, the sum, its rows' means and inverse deviations, and the mask's key.

    `x` and `residual` are `(T, H)`. The key is drawn on the host, which thus waits for nothing.
    """
    from model.encoders.kernels import add_norm_triton

    key = _draw_key()
    with torch.cuda.device(x.device):
        normed, saved = add_norm_triton.forward(
            x.contiguous(), residual.contiguous(), weight, bias, int(key), share, epsilon
        )
    return normed, saved.total, saved.mean, saved.rstd, key


@torch.library.custom_op("bert_pipeline::add_norm_backward", mutates_args=(), device_types="cuda")
def add_norm_backward(
    above: Tensor,
    above_total: Tensor | None,
    total: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor,
    key: Tensor,
    share: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of residual, x, weight and bias; that of x is empty without dropout."""
    from model.encoders.kernels import add_norm_triton

    saved = add_norm_triton.Saved(total, mean, rstd, weight, int(key), share)
    with torch.cuda.device(above.device):
        d_residual, d_x, d_weight, d_bias = add_norm_triton.backward(
            above.contiguous(),
            None if above_total is None else above_total.contiguous(),
            saved,
            _programs(above.device),
        )
    return d_residual, above.new_empty(0) if d_x is None else d_x, d_weight, d_bias


def _draw_key() -> Tensor:
    """Return a number of 63 bits; below 32 bits Triton would build another kernel for it."""
    return torch.empty((), dtype=torch.int64).random_(2**32, 2**63 - 1)


@functools.cache
def _programs(device: torch.device) -> int:
    """Return the number of programs that keep a device busy."""
    return PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count


@add_norm.register_kernel("cpu")
def _forward_on_cpu(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, share: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    key = _draw_key()
    total = residual + x * _kept(x, share, key)
    normed, mean, rstd = torch.native_layer_norm(total, x.shape[1:], weight, bias, epsilon)
    kind = _sum_type(x)
    return normed, total, mean.view(-1).to(kind), rstd.view(-1).to(kind), key


@add_norm_backward.register_kernel("cpu")
def _backward_on_cpu(
    above: Tensor,
    above_total: Tensor | None,
    total: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor,
    key: Tensor,
    share: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gradient, d_weight, d_bias = torch.ops.aten.native_layer_norm_backward(
        above,
        total,
        total.shape[1:],
        mean[:, None].to(total.dtype),
        rstd[:, None].to(total.dtype),
        weight,
        torch.zeros_like(weight),
        [True, True, True],
    )
    if above_total is not None:
        gradient = gradient + above_total
    d_x = gradient * _kept(total, share, key) if share else above.new_empty(0)
    return gradient, d_x, d_weight, d_bias


def _sum_type(x: Tensor) -> torch.dtype:
    """Return the type that rows are summed in: fp32 at least."""
    return torch.promote_types(x.dtype, torch.float32)


def _kept(like: Tensor, share: float, key: Tensor) -> Tensor:
    """Return 0 where dropout falls, elsewhere what keeps the mean."""
    draws = torch.Generator().manual_seed(int(key))
    kept = torch.rand(like.shape, generator=draws) >= share
    return kept.to(like.dtype).div_(1 - share)


@add_norm.register_fake
def _forward_shapes(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, share: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows = [x.new_empty(x.shape[0], dtype=_sum_type(x)) for _ in range(2)]
    whole = [residual.new_empty(residual.shape) for _ in range(2)]
    return *whole, *rows, torch.empty((), dtype=torch.int64, device="cpu")  # type: ignore[return-value]


@add_norm_backward.register_fake
def _backward_shapes(
    above: Tensor,
    above_total: Tensor | None,
    total: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor,
    key: Tensor,
    share: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_x = above.new_empty(above.shape if share else 0)
    return above.new_empty(above.shape), d_x, torch.empty_like(weight), torch.empty_like(weight)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, weight, bias, ctx.share, _ = inputs
    _, *saved = output
    ctx.save_for_backward(*saved, weight)
    ctx.biased = bias is not None
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, above: Tensor | None, above_total: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    total, mean, rstd, key, weight = ctx.saved_tensors
    if above is None:
        above = torch.zeros_like(total)
    d_residual, d_x, d_weight, d_bias = add_norm_backward(above, above_total, total, mean, rstd, weight, key, ctx.share)
    d_x = d_x if ctx.share else d_residual
    return d_x, d_residual, d_weight, d_bias if ctx.biased else None, None, None


add_norm.register_autograd(_gradients, setup_context=_remember)
