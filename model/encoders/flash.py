"""Flash attention over sequences laid end to end, as one operator: with dropout, causal or local.

PyTorch's own kernels `aten::_flash_attention_forward` and `_backward` do all of it, but its public
faces do not: `varlen_attn` has no dropout, and nested tensors cost milliseconds of Python for each
layer. The operator here is a direct call. The compiler sees it as one node, so that a layer is one
graph. On a CPU it computes the same by plain softmax attention: to check the mathematics and the
graph without a GPU; speed does not matter there.

Shapes: B sequences, L longest of them, T tokens, N heads, D width of a head.
"""

from itertools import pairwise
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


@flash_attention.register_kernel("cpu")
def _forward_on_cpu(
    q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, longest: int, dropout: float, causal: bool, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    kind = _sum_type(q)
    seed = torch.empty(2, dtype=torch.int64).random_()
    out, total = q.new_empty(q.shape), q.new_empty((q.shape[1], len(q)), dtype=kind)
    draws = torch.Generator().manual_seed(int(seed[0]))
    for start, end in pairwise(bounds.tolist()):
        query, key, value = (x[start:end].transpose(0, 1).to(kind) for x in (q, k, v))
        score = _scores(query, key, causal, window)  # (N, l, l)
        total[:, start:end] = score.logsumexp(-1)
        share = score.softmax(-1) * _kept(score, dropout, draws)
        out[start:end] = (share @ value).transpose(0, 1).to(q.dtype)
    return out, total, seed.view(torch.uint64)


@flash_attention_backward.register_kernel("cpu")
def _backward_on_cpu(
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
    kind = _sum_type(q)
    found = (q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape))
    draws = torch.Generator().manual_seed(int(seed.view(torch.int64)[0]))
    for start, end in pairwise(bounds.tolist()):
        query, key, value, above, mixed = (x[start:end].transpose(0, 1).to(kind) for x in (q, k, v, gradient, out))
        score = _scores(query, key, causal, window)
        share = (score - total[:, start:end, None]).exp()  # (N, l, l)
        kept = _kept(score, dropout, draws)
        inner = share * (above @ value.transpose(1, 2) * kept - (above * mixed).sum(-1, True))
        inner = inner * q.shape[-1] ** -0.5
        pieces = (inner @ key, inner.transpose(1, 2) @ query, (share * kept).transpose(1, 2) @ above)
        for whole, piece in zip(found, pieces, strict=True):
            whole[start:end] = piece.transpose(0, 1).to(q.dtype)
    return found


def _sum_type(q: Tensor) -> torch.dtype:
    """Return the type that weights are summed in: fp32 at least."""
    return torch.promote_types(q.dtype, torch.float32)


def _scores(query: Tensor, key: Tensor, causal: bool, window: int) -> Tensor:
    """Return the scores of one sequence, `(N, l, l)`, minus infinity where nothing is seen."""
    score = query @ key.transpose(1, 2) * query.shape[-1] ** -0.5
    place = torch.arange(query.shape[1])
    ahead = place - place[:, None]  # (l, l)
    hidden = (ahead > 0) & causal
    if window != FAR:
        hidden = hidden | (ahead.abs() > window)
    seen: Tensor = score.masked_fill(hidden, -torch.inf)
    return seen


def _kept(score: Tensor, dropout: float, draws: torch.Generator) -> Tensor:
    """Return 0 where dropout falls, elsewhere what keeps the mean."""
    kept = torch.rand(score.shape, generator=draws) >= dropout
    return kept.to(score.dtype).div_(1 - dropout)


@flash_attention.register_fake
def _forward_shapes(
    q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, longest: int, dropout: float, causal: bool, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    total = q.new_empty((q.shape[1], q.shape[0]), dtype=_sum_type(q))
    return q.new_empty(q.shape), total, q.new_empty((2,), dtype=torch.uint64)


@flash_attention_backward.register_fake
def _backward_shapes(
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
