"""AdamW with smaller updates where gradients exceed their running average.

Wortsman et al. 2023, "Stable and low-precision training for large-scale vision-language models",
algorithm 2 (Adafactor's update clipping): a parameter's learning rate is divided by the root mean
square of g / sqrt(v) over its elements, where that is above one. It replaces gradient-norm
clipping.
"""

from typing import Any

import torch
from torch import Tensor

from model.training.partitioned import Layout, PartitionedAdam, multiply, on_device, pieces_of, squares, whole_sums


class StableAdamW(PartitionedAdam):
    """AdamW with update clipping, including biases and layer norms."""

    def _scale(self, parameters: list[Tensor], updates: list[Tensor], group: dict[str, Any]) -> None:
        """Divide each parameter's update by the RMS of its ratios where above one, in place."""
        ratios = self._ratios(parameters, group)
        if not self.partitions:
            clip(ratios, updates, None)
            return
        for parameter, ratio, update in zip(parameters, ratios, updates, strict=True):
            layout = self.partitions[parameter]
            clip(pieces_of(ratio, layout), pieces_of(update, layout), layout)

    def _ratios(self, parameters: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Return g / sqrt(v) per element, v bias-corrected and at least epsilon^2."""
        beta2, states = group["betas"][1], [self.state[p] for p in parameters]
        size = torch._foreach_sqrt([state["exp_avg_sq"] for state in states])
        torch._foreach_div_(size, (1 - beta2 ** int(states[0]["step"].numpy())) ** 0.5)
        torch._foreach_clamp_min_(size, group["eps"])
        gradients = [p.grad.to(p.dtype) for p in parameters if p.grad is not None]
        return list(torch._foreach_div(gradients, size))


def clip(ratios: list[Tensor], updates: list[Tensor], layout: Layout | None) -> None:
    """Divide `updates` by the RMS of their parameters' ratios where it is above one, in place."""
    found = squares(ratios)
    counts = on_device(tuple(ratio.numel() for ratio in ratios), found.device).float()
    total, count = whole_sums((found, counts), layout)
    multiply(updates, 1 / (total / count).sqrt().clamp_min(1.0))
