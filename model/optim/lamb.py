"""LAMB: updates scaled to the norms of their parameters."""

import torch

from model.optim.partitioned_adam import PartitionedAdam, Step, multiply, squares, whole_sums
from model.optim.zero_layout import Layout, TensorList


class Lamb(PartitionedAdam):
    """LAMB: Adam with each update scaled to the norm of its parameter.

    You et al. 2020, "Large batch optimization for deep learning: training BERT in 76 minutes",
    algorithm 2. `adapt` of a parameter group enables trust ratios for its parameters: as in the
    published code, biases and layer norms have none.
    """

    def _scale(self, step: Step, updates: TensorList) -> None:
        if step.group["adapt"]:
            super()._scale(step, updates)

    def _rescale(self, measured: TensorList, updates: TensorList, layout: Layout | None) -> None:
        """Multiply updates by trust ratios, |parameter| / |update|; by 1 where a norm is zero."""
        weight, update = whole_sums((squares(measured), squares(updates)), layout).sqrt()
        multiply(updates, torch.where((weight > 0) & (update > 0), weight / update, 1.0))
