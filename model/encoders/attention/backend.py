"""What a backend of attention is and gets."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


class AttentionArgs(NamedTuple):
    """Arguments of a backend other than q, k and v."""

    cu_seqlens: Tensor  # (B+1,) int32: where each sequence starts, and T; none is empty, and B may be 0
    max_length: int  # no sequence is longer
    dropout: float  # of the attention probabilities
    causal: bool = False  # a token attends only to itself and earlier tokens
    window: int | None = None  # a token attends only to those at most that far away, on either side
    queries: Tensor | None = None  # (K,) int64, ascending: the places of the queries; None: all tokens


class Backend(NamedTuple):
    """How attention is computed, and why not here; `unsupported_reason` gets device, type and width of a head."""

    run: Callable[[Tensor, Tensor, Tensor, AttentionArgs], Tensor]
    unsupported_reason: Callable[[torch.device, torch.dtype, int], str | None] = lambda *_: None
    takes_queries: bool = False  # can attend from some of the tokens alone


def visible(length: int, causal: bool, window: int | None, device: torch.device) -> Tensor:
    """Return whether each query attends to each key, not after it, or near it: `(length, length)`."""
    position = torch.arange(length, device=device)
    away = position[:, None] - position
    seen = away >= 0 if causal else torch.ones_like(away, dtype=torch.bool)
    return seen if window is None else seen & (away.abs() <= window)
