"""The operator of flash attention on a CPU, by plain softmax attention: importing this registers it.

It checks the mathematics and the graph without a GPU; speed does not matter here.
"""

from itertools import pairwise

import torch
from torch import Tensor

from model.encoders.attention.flash import flash_attention, flash_attention_backward


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
    if window >= 0:  # as of the kernels on a GPU: else all is seen
        hidden = hidden | (ahead.abs() > window)
    seen: Tensor = score.masked_fill(hidden, -torch.inf)
    return seen


def _kept(score: Tensor, dropout: float, draws: torch.Generator) -> Tensor:
    """Return 0 where dropout falls, elsewhere what keeps the mean."""
    kept = torch.rand(score.shape, generator=draws) >= dropout
    return kept.to(score.dtype).div_(1 - dropout)
