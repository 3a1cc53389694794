"""StableAdamW: AdamW with the update clipping of Adafactor."""

import torch

from model.optim.partitioned_adam import PartitionedAdam, Step, multiply, on_device, squares, whole_sums
from model.optim.zero_layout import Layout, TensorList


class StableAdamW(PartitionedAdam):
    """AdamW with smaller updates where gradients exceed their running average.

    Wortsman et al. 2023, "Stable and low-precision training for large-scale vision-language models",
    algorithm 2 (Adafactor's update clipping), in place of gradient-norm clipping: a parameter's
    learning rate is divided by the root mean square of g / sqrt(v) over its elements, where that is
    above one. It includes biases and layer norms.
    """

    def _measured(self, step: Step) -> TensorList:
        """Return g / sqrt(v) per element, v bias-corrected and at least epsilon^2."""
        size = torch._foreach_sqrt([state["exp_avg_sq"] for state in step.states])
        count = int(step.states[0]["step"].numpy())
        torch._foreach_div_(size, (1 - step.group["betas"][1] ** count) ** 0.5)
        torch._foreach_clamp_min_(size, step.group["eps"])
        return list(torch._foreach_div(step.gradients, size))

    def _rescale(self, measured: TensorList, updates: TensorList, layout: Layout | None) -> None:
        """Divide updates by the RMS of their parameters' ratios where it is above one."""
        sums = squares(measured)
        counts = on_device(tuple(ratio.numel() for ratio in measured), sums.device).float()
        total, count = whole_sums((sums, counts), layout)
        multiply(updates, 1 / (total / count).sqrt().clamp_min(1.0))
