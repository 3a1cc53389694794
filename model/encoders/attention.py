"""Self-attention over packed sequences: one interface, several backends.

`attend` is the only operation that mixes tokens of a sequence. Every backend computes
softmax(q k^T / sqrt(D)) v within each sequence (Vaswani et al. 2017, section 3.2.1); they differ
only in how they keep sequences apart. On a GPU `flash` is for half precision and `padded` for the
rest; on a CPU `each` is the fastest.

Forward and backward of one layer on one CPU core, milliseconds, 32 sequences of 116 tokens on
average and 128 at most, D = 64, dropout 0.1:

                      padded  each
    fp32,  2 heads      25     12
    fp32, 12 heads     174     84
    bf16,  2 heads      24     12
    bf16, 12 heads     165     71

Shapes: B sequences, L longest of them, T real tokens, N heads, D width of a head.
"""

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from model.encoders.dropout import drop
from pipeline.errors import ConfigError

HALF = (torch.float16, torch.bfloat16)
LONG = 1024  # tokens; scores of longer sequences are not kept for the backward pass
RUN = 16  # sequences of equal length that `each` computes at once in half precision
FAR = -1  # a window of all tokens
WIDEST = 256  # head that the kernels take; the width must be a multiple of EIGHT
EIGHT = 8

Three = tuple[Tensor, Tensor, Tensor]  # of queries, keys and values, or what the kernel returns

# The dropout mask differs from call to call: the compiler may neither merge nor repeat calls.
_TAGS = (torch.Tag.nondeterministic_seeded,)


class AttentionArgs(NamedTuple):
    """Arguments of a backend other than q, k and v, as documented in `attend`."""

    cu_seqlens: Tensor  # (B+1,) int32
    max_length: int
    dropout: float
    causal: bool
    window: int | None


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor,
    max_length: int,
    dropout: float,
    backend: str,
    causal: bool = False,
    window: int | None = None,
) -> Tensor:
    """Mix the values of each sequence's tokens: `(T, N, D)` three times -> `(T, N, D)`.

    `cu_seqlens` `(B+1,)` int32 holds the start of each sequence, and T; none is empty or longer
    than `max_length`, and B may be 0. `dropout` applies to the attention probabilities. `backend`
    is a name from `resolve`, or `EQUAL`. With `causal` a token attends only to itself and earlier
    tokens; with `window` only to tokens at most that many positions away, on either side.
    """
    if not q.shape[0]:  # no sequences: a rank's share of a batch smaller than the world
        return q + k + v  # all of them: ZeRO 3 compares the order of gradients between ranks
    if window is not None and window >= max_length - 1:
        window = None  # the window covers every sequence
    how = AttentionArgs(cu_seqlens, max_length, dropout, causal, window)
    return (equal_lengths if backend == EQUAL else BACKENDS[backend])(q, k, v, how)


def resolve(backend: str, device: torch.device, dtype: torch.dtype, width: int = EIGHT) -> str:
    """Return the name of the backend that `backend` means here; `auto` takes the fastest that fits.

    `width` is that of a head.

    Raises:
        ConfigError: The requested backend is unknown or not supported here.
    """
    if backend == "auto" or (backend == "flash" and device.type == "cpu"):  # as a model made on a GPU says
        if device.type != "cuda":
            return "each"
        return "padded" if unsupported_reason("flash", device, dtype, width) else "flash"
    if backend not in BACKENDS:
        raise ConfigError(f"must be one of auto, {', '.join(BACKENDS)}", "model.attention", backend)
    reason = unsupported_reason(backend, device, dtype, width)
    if reason:
        raise ConfigError(f"{reason}; use model.attention=auto", "model.attention", backend)
    return backend


def unsupported_reason(backend: str, device: torch.device, dtype: torch.dtype, width: int) -> str | None:
    """Return why a backend cannot work here; None if it can."""
    if backend != "flash" or device.type == "meta":  # nothing is computed there
        return None
    if dtype not in HALF:
        return f"needs precision bf16 or fp16, not {str(dtype).removeprefix('torch.')}"
    if width % EIGHT or width > WIDEST:
        return f"needs heads of a multiple of {EIGHT}, at most {WIDEST}, not {width}"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "needs a GPU of compute capability 8.0 or later"
    return None


def per_sequence(q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
    """Compute attention per sequence without padding; adjacent equal lengths are batched.

    The scores of a few sequences fit in a core's cache. In fp32 one at a time is faster. With a
    window, longer sequences are computed in blocks. Rows after the last sequence are padding: they
    keep their values.
    """
    heads, width = q.shape[1:]
    groups = equal_runs(how.cu_seqlens.diff().tolist(), RUN if q.dtype in HALF else 1)
    sizes = [count * length for count, length in groups]
    tokens, padding = sum(sizes), v[sum(sizes) :]
    pieces = (x[:tokens].split(sizes) for x in (q * width**-0.5, k, v))  # (nl, N, D) each
    mixed = []
    for (count, length), *piece in zip(groups, *pieces, strict=True):
        if how.window is not None and length > 3 * how.window:
            for q, k, v in zip(*(x.split(length) for x in piece), strict=True):
                mixed.append(in_blocks(q, k, v, how.window, how.dropout))
            continue
        if length > LONG and how.window is None and not how.dropout and not how.causal:
            mixed += [whole(*one) for one in zip(*(x.split(length) for x in piece), strict=True)]
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
        mixed.append(torch.bmm(share, value).view(count, heads, length, width).transpose(1, 2).flatten(0, 1))
    return torch.cat([*mixed, padding] if len(padding) else mixed)


def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute attention for one long sequence `(l, N, D)` without keeping scores; `q` is scaled."""
    row_q, row_k, row_v = (x.transpose(0, 1)[None] for x in (q, k, v))  # (1, N, l, D) each
    mixed = F.scaled_dot_product_attention(row_q, row_k, row_v, scale=1.0)
    return mixed[0].transpose(0, 1)


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
    mixed = torch.bmm(share, around(v)).view(heads, blocks * window, width)
    return mixed[:, :length].transpose(0, 1)


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


def equal_runs(lengths: list[int], longest: int) -> list[tuple[int, int]]:
    """Group adjacent equal lengths into runs of at most `longest`: (count, length)."""
    runs: list[tuple[int, int]] = []
    for length in lengths:
        count, same = runs[-1] if runs else (longest, 0)
        if same == length and count < longest:
            runs[-1] = (count + 1, length)
        else:
            runs.append((1, length))
    return runs


def padded(q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
    """Compute PyTorch's fused attention over padded sequences."""
    tokens, heads, width = q.shape
    cu_seqlens, max_length, dropout, causal, window = how
    lengths = cu_seqlens.diff()  # (B,)
    places = padded_places(cu_seqlens, max_length, tokens)  # (T,)
    rows = len(lengths) * max_length

    def pad(x: Tensor) -> Tensor:  # (T, N, D) -> (B, N, L, D)
        return put_rows(x, places, rows).view(-1, max_length, heads, width).transpose(1, 2)

    real = torch.arange(max_length, device=q.device) < lengths[:, None]  # (B, L)
    seen = real[:, None, None, :]  # (B, 1, 1 or L, L)
    if causal or window is not None:
        # Padding queries, whose output is unused, must attend to something: else they are NaN.
        seen = seen & (visible(max_length, causal, window, q.device) | ~real[:, None, :, None])
    mixed = F.scaled_dot_product_attention(pad(q), pad(k), pad(v), attn_mask=seen, dropout_p=dropout)  # (B, N, L, D)
    return take_rows(mixed.transpose(1, 2).reshape(rows, heads, width), places)


def flash_kernel(q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
    """Compute PyTorch's flash attention, one operator for all of it."""
    window = FAR if how.window is None else how.window
    mixed: Tensor = flash_attention(q, k, v, how.cu_seqlens, how.max_length, how.dropout, how.causal, window)[0]
    return mixed


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
        window_size_right=0 if causal else window,
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
) -> Three:
    """Return the gradients of queries, keys and values, each `(T, N, D)`."""
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
        window_size_right=0 if causal else window,
    )
    return found[0].contiguous(), found[1].contiguous(), found[2].contiguous()


@flash_attention.register_fake
def _forward_shapes(q: Tensor, *_: Any) -> Three:
    total = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.promote_types(q.dtype, torch.float32))
    return q.new_empty(q.shape), total, q.new_empty((2,), dtype=torch.uint64)


@flash_attention_backward.register_fake
def _backward_shapes(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Three:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Three) -> None:
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


def equal_lengths(q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
    """Compute PyTorch's fused attention over sequences that all have `max_length` tokens.

    Not a choice of users: samples of training differ in length.
    """
    tokens, heads, width = q.shape
    length = how.max_length
    query, key, value = (x.view(-1, length, heads, width).transpose(1, 2) for x in (q, k, v))
    all_seen = how.window is None and not how.causal
    seen = None if all_seen else visible(length, how.causal, how.window, q.device)
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, dropout_p=how.dropout)
    return mixed.transpose(1, 2).reshape(tokens, heads, width)


EQUAL = "equal"
BACKENDS = {"each": per_sequence, "padded": padded, "flash": flash_kernel}


def visible(length: int, causal: bool, window: int | None, device: torch.device) -> Tensor:
    """Return whether each query attends to each key, not after it, or near it: `(length, length)`."""
    position = torch.arange(length, device=device)
    away = position[:, None] - position
    seen = away >= 0 if causal else torch.ones_like(away, dtype=torch.bool)
    return seen if window is None else seen & (away.abs() <= window)


class TakeRows(torch.autograd.Function):
    """`x[index]` for distinct rows: its gradient is a parallel copy, not a serial sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        """Map `(R, ...)`, `(K,)` -> `(K, ...)`."""
        ctx.save_for_backward(index)
        ctx.rows = x.shape[0]
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Map `(K, ...)` -> `(R, ...)`, zero for rows not in `index`."""
        (index,) = ctx.saved_tensors
        return put_rows(gradient, index, ctx.rows), None


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return the rows `index` `(K,)`, all distinct, of `x` `(R, ...)`: `(K, ...)`."""
    return TakeRows.apply(x, index)  # type: ignore[no-any-return, no-untyped-call]


def pad_rows(x: Tensor, multiple: int) -> Tensor:
    """Append zeros to `x` `(R, ...)` up to a multiple of rows."""
    missing = -len(x) % multiple
    return torch.cat((x, x.new_zeros(missing, *x.shape[1:]))) if missing else x


def put_rows(x: Tensor, index: Tensor, rows: int) -> Tensor:
    """Scatter the rows of `x` `(K, ...)` to `index` `(K,)` of `(rows, ...)`, zero elsewhere."""
    out = x.new_zeros(rows, *x.shape[1:])
    out[index] = x
    return out


def padded_places(cu_seqlens: Tensor, max_length: int, tokens: int) -> Tensor:
    """Return each token's index in the sequences padded to `max_length`: `(T,)` into B x L."""
    lengths = cu_seqlens.diff()  # (B,)
    starts = torch.arange(len(lengths), device=cu_seqlens.device) * max_length
    shift = starts - cu_seqlens[:-1]  # (B,) from packed to padded
    token = torch.arange(tokens, device=cu_seqlens.device)
    return token + shift.repeat_interleave(lengths, output_size=tokens)
