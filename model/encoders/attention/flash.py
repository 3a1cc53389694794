"""PyTorch's flash attention over packed sequences, as an operator that the compiler sees as one node."""

from typing import Any

import torch
from torch import Tensor

from model.encoders.attention.backend import HALF, AttentionArgs

FAR = -1  # a window of all tokens
WIDEST = 256  # head that the kernels take; the width must be a multiple of EIGHT
EIGHT = 8

Three = tuple[Tensor, Tensor, Tensor]  # of queries, keys and values, or what the kernel returns

# The dropout mask differs from call to call: the compiler may neither merge nor repeat calls.
_TAGS = (torch.Tag.nondeterministic_seeded,)


def unsupported_reason(device: torch.device, dtype: torch.dtype, width: int) -> str | None:
    """Return why the kernels cannot work here, with heads of a width; None if they can."""
    if device.type == "meta":  # nothing is computed there
        return None
    if dtype not in HALF:
        return f"needs precision bf16 or fp16, not {str(dtype).removeprefix('torch.')}"
    if width % EIGHT or width > WIDEST:
        return f"needs heads of a multiple of {EIGHT}, at most {WIDEST}, not {width}"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "needs a GPU of compute capability 8.0 or later"
    return None


def flash_kernel(q: Tensor, k: Tensor, v: Tensor, args: AttentionArgs) -> Tensor:
    """Compute PyTorch's flash attention, one operator for all of it."""
    window = FAR if args.window is None else args.window
    attn_out: Tensor = flash_attention(q, k, v, args.cu_seqlens, args.max_length, args.dropout, args.causal, window)[0]
    return attn_out


def _placed_and_named(
    bounds: Tensor, longest: int, dropout: float, causal: bool, window: int
) -> tuple[tuple[Any, ...], dict[str, int]]:
    """Return what both kernels get of sequences, of queries and of keys, and how far a token sees."""
    sides = {"window_size_left": window, "window_size_right": 0 if causal else window}
    return (bounds, bounds, longest, longest, dropout, causal), sides


# PyTorch's own kernels `aten::_flash_attention_forward` and `_backward` do dropout, causal and local
# attention over sequences laid end to end, but its public faces do not: `varlen_attn` has no dropout, and
# nested tensors cost milliseconds of Python for each layer. The operator here is a direct call. The compiler
# sees it as one node, so that a layer is one graph. It has no kernel for a CPU.
@torch.library.custom_op("bert_pipeline::flash_attention", mutates_args=(), device_types="cuda", tags=_TAGS)
def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, longest: int, dropout: float, causal: bool, window: int
) -> Three:
    """Return what each token mixes `(T, N, D)`, the logarithm of its weights' sum, and the seed.

    Three times `(T, N, D)`; `bounds` `(B+1,)` int32; no sequence is longer than `longest`. A token
    sees those at most `window` places away, or all of its sequence with `FAR`.
    """
    placed, sides = _placed_and_named(bounds, longest, dropout, causal, window)
    out, total, seed, _, _ = torch.ops.aten._flash_attention_forward(q, k, v, *placed, False, **sides)
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
) -> Three:
    """Return the gradients of queries, keys and values, each `(T, N, D)`."""
    placed, sides = _placed_and_named(bounds, longest, dropout, causal, window)
    saved, spare = (gradient, q, k, v, out, total), torch.empty(0, device=q.device)
    gradients = torch.ops.aten._flash_attention_backward(*saved, *placed, seed, spare, **sides)
    return gradients[0].contiguous(), gradients[1].contiguous(), gradients[2].contiguous()


@flash_attention.register_fake
def _forward_shapes(q: Tensor, *_: Any) -> Three:
    total = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.promote_types(q.dtype, torch.float32))
    return q.new_empty(q.shape), total, q.new_empty((2,), dtype=torch.uint64)


@flash_attention_backward.register_fake
def _backward_shapes(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Three:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Three) -> None:
    q, k, v, bounds, *args = inputs
    ctx.save_for_backward(q, k, v, *output, bounds)
    ctx.how = args
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if gradient is None:
        return (None,) * 8
    *saved, bounds = ctx.saved_tensors
    gradients = flash_attention_backward(gradient.contiguous(), *saved, bounds, *ctx.how)
    return (*gradients, *(None,) * 5)


flash_attention.register_autograd(_gradients, setup_context=_remember)
