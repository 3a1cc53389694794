"""Attention on a CPU: sequence by sequence, without padding."""

import functools
import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from model.encoders.attention.backend import HALF, AttentionArgs, visible
from model.encoders.dropout import drawn

LONG = 1024  # tokens; scores of longer sequences are not kept for the backward pass
RUN = 16  # sequences of equal length that `each` computes at once in half precision
SHORT = 1024  # tokens of such sequences in fp32 without a backward pass: a quarter faster at 17 tokens each


class Group(NamedTuple):
    """Adjacent sequences with equally many tokens and queries."""

    number: int  # of sequences
    length: int  # tokens of each
    queries: int  # of each

    @property
    def rows(self) -> tuple[int, int]:
        """Return the numbers of all queries, and of all tokens."""
        return self.number * self.queries, self.number * self.length


class Part(NamedTuple):
    """Queries that are computed at once, and the keys that they attend to: rows of the tensors."""

    equal: int  # sequences
    queries: tuple[int, int]
    keys: tuple[int, int]


def per_sequence(q: Tensor, k: Tensor, v: Tensor, args: AttentionArgs) -> Tensor:
    """Compute attention per sequence without padding; adjacent equal lengths are batched.

    The scores of a few sequences fit in a core's cache. In fp32 one at a time is faster with a
    backward pass; without, scores are not kept. Rows after the last sequence are padding: they keep
    their values.
    """
    lasting = torch.is_grad_enabled() or q.dtype in HALF
    lengths = queries = args.cu_seqlens.diff().tolist()
    if args.queries is not None:
        queries = torch.searchsorted(args.queries, args.cu_seqlens.to(args.queries.dtype)).diff().tolist()
    bare = args.window is None and not args.dropout and not args.causal
    alike = bare or args.queries is None  # sequences of equal length see the same
    longest = RUN if q.dtype in HALF and alike else 1
    tokens = SHORT if alike and not lasting else 0
    groups = equal_runs(list(zip(lengths, queries, strict=True)), longest, tokens)

    def unscored(group: Group) -> bool:
        return bare and (group.length > LONG or not lasting)

    runs = [
        (attend_fused if alone else attend_scored, list(same)) for alone, same in itertools.groupby(groups, unscored)
    ]
    of_queries, of_keys = ([sum(group.rows[side] for group in same) for _, same in runs] for side in (0, 1))
    if of_keys == [len(v)]:  # without the copies that a part of a tensor costs its gradient
        return runs[0][0](q, k, v, runs[0][1], args)
    padding = v[sum(of_keys) :] if args.queries is None else v[:0]
    pieces = [torch.split(x[: sum(sizes)], sizes) for x, sizes in ((q, of_queries), (k, of_keys), (v, of_keys))]
    attn_out = [way(*piece, same, args) for (way, same), *piece in zip(runs, *pieces, strict=True)]
    return torch.cat([*attn_out, padding])


def attend_fused(q: Tensor, k: Tensor, v: Tensor, groups: list[Group], args: AttentionArgs) -> Tensor:
    """Compute attention for groups, `(t, N, D)` together, without keeping scores."""
    of_queries, of_keys = zip(*(group.rows for group in groups), strict=True)
    attn_out = []
    scaled = q * q.shape[-1] ** -0.5
    pieces = [x.transpose(0, 1).split(sizes, 1) for x, sizes in ((scaled, of_queries), (k, of_keys), (v, of_keys))]
    for (count, length, queries), *piece in zip(groups, *pieces, strict=True):
        shapes = (count, queries), (count, length), (count, length)
        query, key, value = (x.unflatten(1, shape).transpose(0, 1) for x, shape in zip(piece, shapes, strict=True))
        attn_out.append(F.scaled_dot_product_attention(query, key, value, scale=1.0).transpose(1, 2).flatten(0, 1))
    return torch.cat(attn_out)


def attend_scored(q: Tensor, k: Tensor, v: Tensor, groups: list[Group], args: AttentionArgs) -> Tensor:
    """Compute attention for groups, `(t, N, D)` together, from scores that are kept."""
    parts = list(parts_of(groups, args.window, range(len(q)) if args.queries is None else args.queries.tolist()))
    return Scored.apply(q, k, v, parts, args)  # type: ignore[no-any-return, no-untyped-call]


def parts_of(groups: list[Group], window: int | None, queries: Sequence[int]) -> Iterator[Part]:
    """Yield the parts of groups: each is one, but with a window longer sequences are cut into blocks.

    A block attends to the keys of its own and its two neighbours: the cost is proportional to length times window.
    `queries` are the places of all, ascending.
    """
    start = first = 0
    for group in groups:
        last, stop = first + group.rows[0], start + group.rows[1]
        if window is None or group.length <= 3 * window:
            yield Part(group.number, (first, last), (start, stop))
        else:
            for block in (range(begin, begin + group.length, window) for begin in range(start, stop, group.length)):
                for place in block:
                    keys = max(block.start, place - window), min(block.stop, place + 2 * window)
                    low, high = (bisect_left(queries, at) for at in (place, min(block.stop, place + window)))
                    if low < high:
                        yield Part(1, (low, high), keys)
        start, first = stop, last


class Scored(torch.autograd.Function):
    """`softmax(q k^T) v` of parts, as one node: nodes of its operations would cost short sequences as much again."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, parts: list[Part], args: AttentionArgs) -> Tensor:
        """Map `(t, N, D)` three times -> `(t, N, D)`."""
        ctx.scale = q.shape[-1] ** -0.5
        q = q * ctx.scale
        out, saved = torch.empty_like(q, memory_format=torch.contiguous_format), list[Tensor | None]()
        of_queries, of_keys = [part.queries for part in parts], [part.keys for part in parts]
        for part, *pieces, place in zip(
            parts, *cut(of_queries, q), *cut(of_keys, k, v), *cut(of_queries, out), strict=True
        ):
            query, key, value = (batch(x, part.equal) for x in pieces)  # (nN, l or m, D) each
            unseen = unseen_scores(part, args, q)
            score = torch.bmm(query, key.mT) if unseen is None else torch.baddbmm(unseen, query, key.mT)  # (nN, l, m)
            share = score.softmax(-1)
            factors = drawn(share, args.dropout) if args.dropout else None
            put(place, torch.bmm(share if factors is None else share * factors, value), part.equal)
            saved += share, factors
        ctx.parts = parts
        ctx.save_for_backward(q, k, v, *saved)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Map the gradient of the output to those of `q`, `k` and `v`, `(t, N, D)` each."""
        q, k, v, *saved = ctx.saved_tensors
        of_queries, of_keys = [part.queries for part in ctx.parts], [part.keys for part in ctx.parts]
        shared = not adjacent(of_keys, len(k))  # a key by several blocks, whose gradients are added
        make = torch.zeros_like if shared else torch.empty_like
        gradients = [make(x, memory_format=torch.contiguous_format) for x in (q, k, v)]
        cuts = *cut(of_queries, q, gradient), *cut(of_keys, k, v)
        places = zip(*cut(of_queries, gradients[0]), *cut(of_keys, *gradients[1:]), strict=True)
        for part, share, factors, place, *pieces in zip(ctx.parts, saved[::2], saved[1::2], places, *cuts, strict=True):
            query, upstream, key, value = (batch(x, part.equal) for x in pieces)  # (nN, l or m, D) each
            of_share = torch.bmm(upstream, value.mT)
            used = share if factors is None else share * factors
            of_share = of_share if factors is None else of_share.mul_(factors)
            of_score = torch._softmax_backward_data(of_share, share, -1, share.dtype)
            put(place[0], torch.bmm(of_score, key), part.equal)
            put(place[1], torch.bmm(of_score.mT, query), part.equal, shared)
            put(place[2], torch.bmm(used.mT, upstream), part.equal, shared)
        return gradients[0].mul_(ctx.scale), *gradients[1:], None, None


def cut(places: list[tuple[int, int]], *tensors: Tensor) -> list[Sequence[Tensor]]:
    """Return the places of every tensor `(t, N, D)` in lists of `(N, n l, D)`."""
    turned, sizes = [x.transpose(0, 1) for x in tensors], [stop - start for start, stop in places]
    if adjacent(places, len(tensors[0])):  # which takes a quarter of the time
        return [torch.split(x, sizes, 1) for x in turned]
    return [[x[:, start:stop] for start, stop in places] for x in turned]


def adjacent(places: list[tuple[int, int]], rows: int) -> bool:
    """Return whether places are all rows, one after the other."""
    return [0, *(stop for _, stop in places)] == [*(start for start, _ in places), rows]


def batch(x: Tensor, count: int) -> Tensor:
    """Return `n` sequences `(N, n l, D)` as `(n N, l, D)`."""
    return x if count == 1 else x.view(len(x), count, -1, x.shape[2]).transpose(0, 1).flatten(0, 1)


def put(place: Tensor, source: Tensor, count: int, more: bool = False) -> None:
    """Copy `(n N, l, D)` to its place `(N, n l, D)`, or add it to what is there."""
    if count > 1:
        source = source.view(count, len(place), -1, source.shape[2]).transpose(0, 1)  # (N, n, l, D)
        place = place.view(source.shape)
    (place.add_ if more else place.copy_)(source)


def unseen_scores(part: Part, args: AttentionArgs, like: Tensor) -> Tensor | None:
    """Return what to add to the scores `(..., l, m)` of a part: minus infinity where not attended."""
    start, width = part.keys[0], (part.keys[1] - part.keys[0]) // part.equal
    window = None if args.window is None or args.window >= width - 1 else args.window
    if window is None and not args.causal:
        return None
    kind = args.causal, window, like.dtype, like.device
    # A few tables, of which all lengths have a corner.
    bias = score_bias(width, *kind) if width > LONG else kept_score_bias(1 << (width - 1).bit_length(), *kind)
    if args.queries is not None:
        return bias[args.queries[slice(*part.queries)] - start, :width]
    before, length = part.queries[0] - start, (part.queries[1] - part.queries[0]) // part.equal
    return bias[before : before + length, :width]


def score_bias(size: int, causal: bool, window: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return 0 where a query attends to a key, minus infinity elsewhere: `(size, size)`."""
    bias = torch.zeros(size, size, dtype=dtype, device=device)
    return bias.masked_fill_(~visible(size, causal, window, device), -torch.inf)


kept_score_bias = functools.lru_cache(maxsize=16)(score_bias)


def equal_runs(sizes: list[tuple[int, int]], longest: int, tokens: int = 0) -> list[Group]:
    """Group adjacent sequences with equal numbers of tokens and queries: at most `longest`, or as have `tokens`."""
    runs: list[Group] = []
    for length, queries in sizes:
        last = runs[-1] if runs else Group(0, 0, 0)
        if last[1:] == (length, queries) and last.number < max(longest, tokens // length):
            runs[-1] = Group(last.number + 1, length, queries)
        else:
            runs.append(Group(1, length, queries))
    return runs
