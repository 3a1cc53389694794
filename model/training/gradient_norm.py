"""A step of ZeRO in few launches, with one wait for the device: at the norm of all gradients.

DeepSpeed 0.19.8 looks for infinities with several kernels for each parameter, takes the norm with
more, and asks the device for an answer up to six times. A norm that is not finite says as much as a
look of its own: the same updates are skipped.
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def look_once(wrapper: Any) -> None:
    """Make a ZeRO optimizer take norms in few kernels, and wait for the device once in a step.

    The one wait is DeepSpeed's own check of the norm of all groups. Where gradients are offloaded
    they are in host memory already, and nothing changes.
    """
    if hasattr(wrapper, "fp16_partitioned_groups_flat"):  # stage 3
        if not wrapper.offload_optimizer:
            wrapper.get_grad_norm_direct = lambda gradients, _, norm_type=2: group_norms(
                [gradients], wrapper.dp_process_group
            )[0]
            wrapper.check_overflow = lambda partition_gradients=True: None
    elif hasattr(wrapper, "averaged_gradients") and not wrapper.cpu_offload:

        def whole_norm(norm_type: int = 2) -> Tensor:
            groups = [wrapper.averaged_gradients[i] for i in range(len(wrapper.bit16_groups))]
            norms = group_norms(groups, wrapper.dp_process_group)
            return torch.linalg.vector_norm(norms)  # type: ignore[no-any-return]

        wrapper.scaled_global_norm = whole_norm
        wrapper.check_overflow = lambda partition_gradients=True: None
        wrapper.unscale_and_clip_grads = lambda flat, norm: clip(wrapper, flat, norm)
        link = wrapper._update_model_bit16_weights
        wrapper._update_model_bit16_weights = lambda group: linked(wrapper, group) or link(group)


def group_norms(groups: Iterable[Iterable[Tensor | None]], process_group: Any) -> Tensor:
    """Return the norm of each group of gradients over all ranks, fp32, as a tensor on the device.

    Squares are summed in fp64, as in DeepSpeed: in fp32 they overflow before the gradients do.
    """
    sums: list[Tensor | None] = []
    for group in groups:
        gradients = [gradient for gradient in group if gradient is not None]
        if gradients:
            norms = torch._foreach_norm(gradients, 2, dtype=torch.float64)
            sums.append(torch.stack(list(norms)).square().sum().float())
        else:
            sums.append(None)
    known = next((total for total in sums if total is not None), None)
    device = torch.accelerator.current_accelerator() if known is None else known.device
    zero = torch.zeros((), device=device)
    total = torch.stack([zero if value is None else value for value in sums])
    dist.all_reduce(total, group=process_group)
    return total.sqrt()


def clip(wrapper: Any, flat: list[Tensor], norm: Tensor) -> None:
    """Unscale and clip as DeepSpeed does, without a second look at the norm."""
    scale: float | Tensor = wrapper.loss_scale
    if wrapper.clip_grad > 0:
        # The norm is that of scaled gradients.
        over = ((norm / wrapper.loss_scale) + 1e-6) / wrapper.clip_grad
        scale = over.clamp(min=1.0) * wrapper.loss_scale
    elif scale == 1.0:
        return
    for gradient in flat:
        gradient.mul_(1.0 / scale)


def linked(wrapper: Any, group: int) -> bool:
    """Return whether a group's parameters are views of its flat weights, in their places.

    DeepSpeed makes these views again after every step, which takes two operations for each
    parameter. They stay what they are unless weights were moved.
    """
    flat = wrapper.bit16_groups_flat[group]
    start, size = flat.data_ptr(), flat.element_size()
    offsets = wrapper.round_robin_bit16_offsets[group]
    places = wrapper.round_robin_bit16_indices[group]
    parameters = wrapper.bit16_groups[group]
    return all(
        parameter.data_ptr() == start + offsets[place] * size
        for parameter, place in zip(parameters, places, strict=True)
    )
