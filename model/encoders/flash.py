"""Flash attention over sequences laid end to end, as one operator: with dropout, causal or local.

PyTorch's own kernels `aten::_flash_attention_forward` and `_backward` do all of it, but its public
faces do not: `varlen_attn` has no dropout, and nested tensors cost milliseconds of Python for each
layer. The operator here is a direct call. The compiler sees it as one node, so that a layer is one
graph. It has no kernel for a CPU.

Shapes: B sequences, L longest of them, T tokens, N heads, D width of a head.
"""

from typing import Any

import torch
from torch import Tensor

FAR = -1  # a window of all tokens
WIDEST = 256  # head that the kernels take; the width must be a multiple of EIGHT
EIGHT = 8

# The dropout mask differs from call to call: the compiler may neither merge nor repeat calls.
_TAGS = (torch.Tag.nondeterministic_seeded,)


@torch.library.custom_op("bert_pipeline::flash_attention", mutates_args=(), device_types="cuda", tags=_TAGS)
def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, longest: int, dropout: float, causal: bool, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what each token mixes `(T, N, D)`, the logarithm of its weights' sum, and the seed.

    Three times `(T, N, D)`; `bounds` `(B+1,)` int32; no sequence is longer than `longest`. A token
    sees those at most `window` places away, or all of its sequence with `FAR`.
    """
    right = 0 if causal else window
    out, total, seed, _, _ = torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        bounds,
        bounds,
        longest,
        longest,
        dropout,
        causal,
        False,
        window_size_left=window,
        window_size_right=right,
    )
    return out.contiguous(), total, seed


@torch.library.custom_op("bert_pipeline::flash_attention_backward", mutates_args=(), device_types="cuda")
def flash_attention_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    total: Tensor,
    seed: Tensor,
    bounds: Tensor,
    longest: int,
    dropout: float,
    causal: bool,
    window: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values, each `(T, N, D)`."""
    right = 0 if causal else window
    found = torch.ops.aten._flash_attention_backward(
        gradient,
        q,
        k,
        v,
        out,
        total,
        bounds,
        bounds,
        longest,
        longest,
        dropout,
        causal,
        seed,
        torch.empty(0, device=q.device),
        window_size_left=window,
        window_size_right=right,
    )
    return found[0].contiguous(), found[1].contiguous(), found[2].contiguous()


@flash_attention.register_fake
def _forward_shapes(q: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    total = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.promote_types(q.dtype, torch.float32))
    return q.new_empty(q.shape), total, q.new_empty((2,), dtype=torch.uint64)


@flash_attention_backward.register_fake
def _backward_shapes(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, bounds, *how = inputs
    ctx.save_for_backward(q, k, v, *output, bounds)
    ctx.how = how
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if gradient is None:
        return (None,) * 8
    *saved, bounds = ctx.saved_tensors
    found = flash_attention_backward(gradient.contiguous(), *saved, bounds, *ctx.how)
    return (*found, *(None,) * 5)


flash_attention.register_autograd(_gradients, setup_context=_remember)
