"""The running average of the weights that an optimizer updates."""

from typing import Any

import torch
from torch.optim import Optimizer

AVERAGE = "average"  # an optimizer's moment like the others


def keep_average(optimizer: Optimizer, decay: float) -> None:
    """Make an optimizer update the average of its parameters after each of its steps.

    Each rank averages the fp32 weights that it owns, so that checkpoints gather and scatter the
    average as they do moments. The mean after n updates has the weights decay^(n-1) (1 - decay), ...,
    1 - decay of the n states, divided by their sum: the initial weights have no part in it.
    """

    @torch.no_grad()
    def after(optimizer: Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:  # else it was not updated
                    state = optimizer.state[parameter]
                    if AVERAGE not in state:
                        state[AVERAGE] = torch.zeros_like(parameter)
                    newest = (1 - decay) / (1 - decay ** state["step"].double())  # the first has all
                    # A number if the step is in host memory, else a tensor: no device is waited for.
                    share = float(newest) if newest.device.type == "cpu" else newest.float()
                    state[AVERAGE].lerp_(parameter, share)

    optimizer.register_step_post_hook(after)
    optimizer.average_decay = decay  # type: ignore[attr-defined]
