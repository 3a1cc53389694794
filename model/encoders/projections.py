"""The projections that attention begins with."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.encoders.attention.rows import take_rows


class QueryKeyValue(nn.Module):
    """Three projections with parameters of their own, computed as one.

    Apart in the checkpoint, because a fused matrix would have one trust ratio under LAMB; the
    parameters are held here, by the module that uses them, because ZeRO-3 gathers them by module.
    """

    def __init__(self, hidden: int, heads: int, bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Parameter(torch.empty(hidden, hidden))
        self.key = nn.Parameter(torch.empty(hidden, hidden))
        self.value = nn.Parameter(torch.empty(hidden, hidden))
        self.biased = bias
        if bias:
            self.query_bias = nn.Parameter(torch.empty(hidden))
            self.key_bias = nn.Parameter(torch.empty(hidden))
            self.value_bias = nn.Parameter(torch.empty(hidden))

    def forward(self, x: Tensor, queries: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """`(T, H)` -> query, key and value, each `(T, N, D)`; queries only at the places `(K,)`, if given."""
        weights = self.query, self.key, self.value
        biases = (self.query_bias, self.key_bias, self.value_bias) if self.biased else ()
        if queries is None:
            q, k, v = self._projected(x, weights, biases)
        else:
            (q,) = self._projected(take_rows(x, queries), weights[:1], biases[:1])
            k, v = self._projected(x, weights[1:], biases[1:])
        return q, k, v

    def _projected(self, x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Compute several projections as one product: `(T, H)` -> `(T, N, D)` each."""
        joined = F.linear(x, torch.cat(tuple(weights)), torch.cat(tuple(biases)) if biases else None)
        return joined.view(len(x), len(weights), self.heads, x.shape[1] // self.heads).unbind(1)
