"""LAMB: Adam with each update scaled to the norm of its parameter.

You et al. 2020, "Large batch optimization for deep learning: training BERT in 76 minutes",
algorithm 2. As in the published code, biases and layer norms have no decay and no trust ratio.
"""

from typing import Any

import torch
from torch import Tensor

from model.training.partitioned import Layout, PartitionedAdam, multiply, pieces_of, squares, whole_sums


class Lamb(PartitionedAdam):
    """LAMB; `adapt` of a parameter group enables trust ratios for its parameters."""

    def _scale(self, parameters: list[Tensor], updates: list[Tensor], group: dict[str, Any]) -> None:
        """Scale each parameter's update by its trust ratio, |parameter| / |update|, in place."""
        if not group["adapt"]:
            return
        if not self.partitions:
            adapt(parameters, updates, None)
            return
        for parameter, update in zip(parameters, updates, strict=True):
            layout = self.partitions[parameter]
            adapt(pieces_of(parameter, layout), pieces_of(update, layout), layout)


def adapt(pieces: list[Tensor], updates: list[Tensor], layout: Layout | None) -> None:
    """Multiply `updates` by their parameters' trust ratios, in place; 1 where a norm is zero."""
    weight, update = whole_sums((squares(pieces), squares(updates)), layout).sqrt()
    multiply(updates, torch.where((weight > 0) & (update > 0), weight / update, 1.0))
