"""Exponential moving average of the weights, kept next to the optimizer's moments.

Each rank averages the fp32 weights that it owns, so that checkpoints gather and scatter the average
as they do moments, under the name `average`. The mean after n updates has the weights
decay^(n-1) (1 - decay), ..., 1 - decay of the n states, divided by their sum: the initial weights
have no part in it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from deepspeed import utils as fragments
from torch import Tensor

from model.training.optimizer import AVERAGE


def keep_average(optimizer: torch.optim.Optimizer, decay: float) -> None:
    """Make an optimizer update the average of its parameters after each of its steps."""

    @torch.no_grad()
    def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:  # else it was not updated
                    state = optimizer.state[parameter]
                    if AVERAGE not in state:
                        state[AVERAGE] = torch.zeros_like(parameter)
                    state[AVERAGE].lerp_(parameter, share(state["step"], decay))

    optimizer.register_step_post_hook(after)
    optimizer.average_decay = decay  # type: ignore[attr-defined]


def share(step: Tensor, decay: float) -> Any:
    """Return the part of the newest weights in the average of `step` states, 1 for the first.

    A number if the step is in host memory, else a tensor: no device is waited for.
    """
    part = (1 - decay) / (1 - decay ** step.double())
    return float(part) if step.device.type == "cpu" else part.float()


@contextmanager
def averaged(engine: Any) -> Iterator[None]:
    """Let an engine's module compute with the averages instead of the weights; all ranks enter."""
    kept = []
    for parameter in engine.module.parameters():
        for place, value in copies(engine, parameter):
            kept.append((place, place.clone()))
            place.copy_(value.view_as(place))
    try:
        yield
    finally:
        for place, value in kept:
            place.copy_(value)


def copies(engine: Any, parameter: Any) -> list[tuple[Tensor, Tensor]]:
    """Return the tensors from which the module computes a parameter, each with its average."""
    if engine.zero_optimization_stage() == 0:
        return [(parameter.data, engine.optimizer.state[parameter][AVERAGE])]
    whole = fragments.safe_get_full_optimizer_state(parameter, AVERAGE)
    if engine.zero_optimization_stage() < 3:
        return [(parameter.data, whole)]
    own = fragments.safe_get_local_optimizer_state(parameter, AVERAGE)
    found = [(parameter.ds_tensor.data, own)]
    if parameter.data.numel() == whole.numel():  # small ones are held whole, too
        found.append((parameter.data, whole))
    return found
