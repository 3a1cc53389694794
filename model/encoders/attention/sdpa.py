"""PyTorch's fused attention, over sequences that are padded."""

import torch
from torch import Tensor
from torch.nn import functional as F

from model.encoders.attention.backend import AttentionArgs, visible
from model.encoders.attention.rows import padded_places, put_rows, take_rows


def padded(q: Tensor, k: Tensor, v: Tensor, args: AttentionArgs) -> Tensor:
    """Compute PyTorch's fused attention over padded sequences."""
    tokens, heads, width = q.shape
    cu_seqlens, max_length, dropout, causal, window, _ = args
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
    attn_out = F.scaled_dot_product_attention(pad(q), pad(k), pad(v), attn_mask=seen, dropout_p=dropout)  # (B, N, L, D)
    return take_rows(attn_out.transpose(1, 2).reshape(rows, heads, width), places)
