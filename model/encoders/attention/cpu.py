"""Attention on a CPU: sequence by sequence, without padding."""

import functools

import torch
from torch import Tensor
from torch.nn import functional as F

from model.encoders.attention.backend import HALF, AttentionArgs, visible
from model.encoders.dropout import drop

LONG = 1024  # tokens; scores of longer sequences are not kept for the backward pass
RUN = 16  # sequences of equal length that `each` computes at once in half precision
SHORT = 1024  # tokens of such sequences in fp32 without a backward pass: a quarter faster at 17 tokens each


def per_sequence(q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
    """Compute attention per sequence without padding; adjacent equal lengths are batched.

    The scores of a few sequences fit in a core's cache. In fp32 one at a time is faster with a
    backward pass; without, scores are not kept. With a window, longer sequences are computed in
    blocks. Rows after the last sequence are padding: they keep their values.
    """
    heads, width = q.shape[1:]
    lasting = torch.is_grad_enabled() or q.dtype in HALF
    groups = equal_runs(how.cu_seqlens.diff().tolist(), RUN if q.dtype in HALF else 1, 0 if lasting else SHORT)
    sizes = [count * length for count, length in groups]
    tokens, padding = sum(sizes), v[sum(sizes) :]
    pieces = (x[:tokens].split(sizes) for x in (q * width**-0.5, k, v))  # (nl, N, D) each
    attn_out = []
    for (count, length), *piece in zip(groups, *pieces, strict=True):
        if how.window is not None and length > 3 * how.window:
            for q, k, v in zip(*(x.split(length) for x in piece), strict=True):
                attn_out.append(in_blocks(q, k, v, how.window, how.dropout))
            continue
        if (length > LONG or not lasting) and how.window is None and not how.dropout and not how.causal:
            attn_out.append(whole(count, *piece))
            continue
        query, key, value = (
            x.view(count, length, heads, width).transpose(1, 2).reshape(-1, length, width) for x in piece
        )  # (nN, l, D) each
        unseen = unseen_scores(length, how, q)
        score = (
            torch.bmm(query, key.transpose(1, 2))
            if unseen is None
            else torch.baddbmm(unseen, query, key.transpose(1, 2))
        )  # (nN, l, l)
        share = drop(score.softmax(-1), how.dropout)
        attn_out.append(torch.bmm(share, value).view(count, heads, length, width).transpose(1, 2).flatten(0, 1))
    return torch.cat([*attn_out, padding] if len(padding) else attn_out)


def whole(count: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute attention for `count` equal sequences `(nl, N, D)` without keeping scores; `q` is scaled."""
    row_q, row_k, row_v = (x.view(count, -1, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))  # (n, N, l, D) each
    return F.scaled_dot_product_attention(row_q, row_k, row_v, scale=1.0).transpose(1, 2).flatten(0, 1)


def in_blocks(q: Tensor, k: Tensor, v: Tensor, window: int, dropout: float) -> Tensor:
    """Compute windowed attention for one sequence `(l, N, D)` in blocks of `window` queries.

    A block attends to its own keys and those of its two neighbours: the cost is proportional to
    length times window. `q` is already scaled.
    """
    length, heads, width = q.shape
    blocks = -(-length // window)
    spare = blocks * window - length

    def around(x: Tensor) -> Tensor:  # (l, N, D) -> (N b, 3w, D)
        x = F.pad(x.transpose(0, 1), (0, 0, window, spare + window))
        cut = x.view(heads, blocks + 2, window, width)
        three = torch.cat((cut[:, :-2], cut[:, 1:-1], cut[:, 2:]), 2)
        return three.view(heads * blocks, 3 * window, width)

    query = F.pad(q.transpose(0, 1), (0, 0, 0, spare)).reshape(heads * blocks, window, width)
    score = torch.bmm(query, around(k).transpose(1, 2))  # (N b, w, 3w)
    unseen = ~block_mask(length, window, q.device)
    score.view(heads, blocks, window, 3 * window).masked_fill_(unseen, -torch.inf)
    share = drop(score.softmax(-1), dropout)
    attn_out = torch.bmm(share, around(v)).view(heads, blocks * window, width)
    return attn_out[:, :length].transpose(0, 1)


def unseen_scores(length: int, how: AttentionArgs, like: Tensor) -> Tensor | None:
    """Return what to add to scores `(..., length, length)`: minus infinity where not attended."""
    window = None if how.window is None or how.window >= length - 1 else how.window
    if window is None and not how.causal:
        return None
    if length > LONG:
        return score_bias(length, how.causal, window, like.dtype, like.device)
    size = 1 << (length - 1).bit_length()  # a few tables, of which all lengths have a corner
    return kept_score_bias(size, how.causal, window, like.dtype, like.device)[:length, :length]


def score_bias(size: int, causal: bool, window: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return 0 where a query attends to a key, minus infinity elsewhere: `(size, size)`."""
    bias = torch.zeros(size, size, dtype=dtype, device=device)
    return bias.masked_fill_(~visible(size, causal, window, device), -torch.inf)


kept_score_bias = functools.lru_cache(maxsize=16)(score_bias)


@functools.lru_cache(maxsize=64)
def block_mask(length: int, window: int, device: torch.device) -> Tensor:
    """Return which of its block's keys each query of `in_blocks` attends to: `(b, w, 3w)` bool."""
    blocks = -(-length // window)
    query = torch.arange(blocks * window, device=device).view(blocks, window, 1)
    first = torch.arange(blocks, device=device).view(blocks, 1, 1) * window - window
    key = first + torch.arange(3 * window, device=device)
    return ((query - key).abs() <= window) & (key >= 0) & (key < length)


def equal_runs(lengths: list[int], longest: int, tokens: int = 0) -> list[tuple[int, int]]:
    """Group adjacent equal lengths into runs of at most `longest`, or as many as have `tokens`: (count, length)."""
    runs: list[tuple[int, int]] = []
    for length in lengths:
        count, same = runs[-1] if runs else (0, 0)
        if same == length and count < max(longest, tokens // length):
            runs[-1] = (count + 1, length)
        else:
            runs.append((1, length))
    return runs
