"""The projections that attention begins with."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`(T, H)` -> query, key and value, each `(T, N, D)`."""
        weight = torch.cat((self.query, self.key, self.value))  # (3H, H)
        bias = None
        if self.biased:
            bias = torch.cat((self.query_bias, self.key_bias, self.value_bias))
        tokens, hidden = x.shape
        shape = (tokens, 3, self.heads, hidden // self.heads)
        q, k, v = F.linear(x, weight, bias).view(shape).unbind(1)
        return q, k, v
