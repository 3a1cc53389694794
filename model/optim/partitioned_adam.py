"""Adam over flat partitions, for rules that scale an update by a norm of its whole parameter.

ZeRO gives an optimizer flat partitions that may split a parameter anywhere: no rank sees whole
parameters. Sums over elements are computed per piece and reduced over the ranks, which gives the
sums of whole parameters at every stage and world size.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from model.optim.zero_layout import Layout, TensorList, pieces_of

Group = dict[str, Any]  # of parameters: an optimizer's settings for them

ADAM = ("exp_avg", "exp_avg_sq")  # first and second moment


class Step(NamedTuple):
    """One step of the parameters of a group that have gradients."""

    parameters: TensorList
    gradients: TensorList
    states: list[dict[str, Any]]
    group: Group


class PartitionedAdam(torch.optim.Optimizer):
    """Adam over parameters or, once `partitions` describes them, over flat partitions.

    A subclass implements `_rescale`.
    """

    def __init__(self, groups: list[Group], lr: float, betas: tuple[float, float], eps: float):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "moments": ADAM})
        self.partitions: dict[Tensor, Layout] = {}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                gradients = [p.grad.to(p.dtype) for p in parameters if p.grad is not None]
                self._step_group(Step(parameters, gradients, self._states(parameters, group), group))

    def _step_group(self, step: Step) -> None:
        updates = self._updates(step)
        self._scale(step, updates)
        torch._foreach_add_(step.parameters, updates, alpha=-step.group["lr"])

    def _scale(self, step: Step, updates: TensorList) -> None:
        """Scale the updates in place, by norms of whole parameters."""
        measured = self._measured(step)
        if not self.partitions:
            self._rescale(measured, updates, None)
            return
        for parameter, one, update in zip(step.parameters, measured, updates, strict=True):
            layout = self.partitions[parameter]
            self._rescale(pieces_of(one, layout), pieces_of(update, layout), layout)

    def _measured(self, step: Step) -> TensorList:
        """Return what `_rescale` takes norms of, in the parameters' shapes."""
        return step.parameters

    def _rescale(self, measured: TensorList, updates: TensorList, layout: Layout | None) -> None:
        """Scale parameters' updates in place, or the pieces of one partition."""
        raise NotImplementedError

    def _updates(self, step: Step) -> TensorList:
        """Update the moments; return Adam's updates with decay, in the parameters' shapes."""
        parameters, gradients, states, group = step
        beta1, beta2 = group["betas"]
        first = [state["exp_avg"] for state in states]
        second = [state["exp_avg_sq"] for state in states]
        for state in states:
            state["step"] += 1
        count = int(states[0]["step"].numpy())  # in host memory: no device is waited for
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        size = torch._foreach_sqrt(second)
        torch._foreach_div_(size, (1 - beta2**count) ** 0.5)
        torch._foreach_add_(size, group["eps"])
        updates = torch._foreach_div(first, 1 - beta1**count)
        torch._foreach_div_(updates, size)
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        return list(updates)

    def _states(self, parameters: TensorList, group: Group) -> list[dict[str, Any]]:
        """Return each parameter's state, which begins with zeros."""
        for parameter in parameters:
            if not self.state[parameter]:
                moments = {key: torch.zeros_like(parameter) for key in group["moments"]}
                self.state[parameter] = {"step": torch.zeros(()), **moments}
        return [self.state[parameter] for parameter in parameters]


def whole_sums(sums: Sequence[Tensor], layout: Layout | None) -> Tensor:
    """Reduce sums over pieces, `(pieces,)` each, to their parameters': `(len(sums), pieces)`.

    Without a layout each piece is a whole parameter. Every rank of the layout's group must call it,
    even with no pieces.
    """
    local = torch.stack(list(sums))  # (S, pieces)
    if layout is None:
        return local
    which = on_device(tuple(piece.parameter for piece in layout.pieces), layout.device)
    total = torch.zeros(len(sums), len(layout.shapes), device=layout.device)
    total[:, which] = local.to(layout.device)
    dist.all_reduce(total, group=layout.group)
    return total[:, which]


@functools.lru_cache(maxsize=256)
def on_device(numbers: tuple[int, ...], device: torch.device) -> Tensor:
    """Return whole numbers as a tensor on a device, copied there once: a copy waits for it."""
    return torch.tensor(numbers, dtype=torch.int64, device=device)


def squares(tensors: TensorList) -> Tensor:
    """Return the sum of squares of each tensor, `(len(tensors),)` fp32."""
    if not tensors:
        return torch.zeros(0)
    return torch.stack(list(torch._foreach_norm(tensors))).float().square()


def multiply(updates: TensorList, factors: Tensor) -> None:
    """Multiply each update by its factor, in place."""
    if updates:
        torch._foreach_mul_(updates, list(factors.to(updates[0].device).unbind()))
