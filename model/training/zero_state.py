"""Where the weights and moments of an optimizer are at each ZeRO stage: whole, divided, or the weights too."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from deepspeed import utils as fragments
from torch import Tensor, nn
from torch.optim import Optimizer

from model.config import Weights
from model.optim.average import AVERAGE
from model.optim.build import moment_keys
from model.optim.partitioned_adam import PartitionedAdam

Places = list[tuple[Tensor, Tensor]]  # where the module takes a weight from, each with its average


class Replicated:
    """Stage 0: each rank has all of it, in the optimizer's own state."""

    def __init__(self, wrapper: Any):
        """Look at `wrapper`, the optimizer of DeepSpeed's engine."""
        self.wrapper = wrapper

    @property
    def optimizer(self) -> Optimizer:
        """Return the torch optimizer inside ZeRO's wrapper."""
        return getattr(self.wrapper, "optimizer", self.wrapper)  # type: ignore[no-any-return]

    def owned(self) -> Iterator[tuple[nn.Parameter, dict[str, Any]]]:
        """Yield what the optimizer updates on this rank, with its group."""
        for group in self.optimizer.param_groups:
            yield from ((parameter, group) for parameter in group["params"])

    def create(self) -> None:
        """Create zero moments: before its first step the optimizer has none to write into.

        An average begins with the weights; the first update replaces it.
        """
        optimizer = self.optimizer
        for parameter, group in self.owned():
            # Ours count in host memory, PyTorch's fused ones on the device.
            counted = "cpu" if isinstance(optimizer, PartitionedAdam) else parameter.device
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=counted),
                **{
                    key: parameter.detach().clone() if key == AVERAGE else torch.zeros_like(parameter)
                    for key in moment_keys(optimizer, group)
                },
            }
        self.link()

    def link(self) -> None:
        """Let the parameters find their moments."""

    def gather(self, parameter: nn.Parameter, keys: Sequence[str]) -> tuple[Tensor, Weights]:
        """Return a parameter's fp32 weight and moments, gathered from the ranks."""
        state = self.optimizer.state[parameter]
        return parameter.detach(), {key: state[key] for key in keys}

    def held(self, parameter: nn.Parameter, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return what of a whole weight this rank has, and the same as the module computes with it."""
        return weight, parameter.detach()

    def scatter(self, parameter: nn.Parameter, weight: Tensor, moments: Mapping[str, Tensor]) -> None:
        """Set the optimizer's copies of a parameter's weight and moments, on the ranks that own them."""
        for key, moment in moments.items():
            self.optimizer.state[parameter][key].copy_(moment)

    def averages(self, parameter: Any) -> Places:
        """Return the tensors from which the module computes a parameter, each with its average."""
        return [(parameter.data, self.optimizer.state[parameter][AVERAGE])]


class Partitioned(Replicated):
    """Stages 1 and 2: the ranks share fp32 weights and moments in flat parts."""

    def link(self) -> None:
        """Link the parameters to their moments.

        DeepSpeed does so only once, after the first group's first step, when the other groups' moments
        do not exist yet.
        """
        wrapper = self.wrapper
        for parameters, flat in zip(wrapper.bit16_groups, wrapper.single_partition_of_fp32_groups, strict=True):
            fragments.lazy_init_hp_params_optimizer_state(parameters, flat, self.optimizer.state)

    def gather(self, parameter: nn.Parameter, keys: Sequence[str]) -> tuple[Tensor, Weights]:
        """Return a parameter's fp32 weight and moments, gathered from the ranks."""
        moments = {key: fragments.safe_get_full_optimizer_state(parameter, key) for key in keys}
        return fragments.safe_get_full_fp32_param(parameter), moments

    def scatter(self, parameter: nn.Parameter, weight: Tensor, moments: Mapping[str, Tensor]) -> None:
        """Set the optimizer's copies of a parameter's weight and moments, on the ranks that own them."""
        fragments.safe_set_full_fp32_param(parameter, weight)
        for key, moment in moments.items():
            fragments.safe_set_full_optimizer_state(parameter, moment, key)

    def averages(self, parameter: Any) -> Places:
        """Return the tensors from which the module computes a parameter, each with its average."""
        return [(parameter.data, fragments.safe_get_full_optimizer_state(parameter, AVERAGE))]


class FullyPartitioned(Partitioned):
    """Stage 3: the ranks share the module's weights too, each an equal part of every parameter."""

    def owned(self) -> Iterator[tuple[nn.Parameter, dict[str, Any]]]:
        """Yield what the optimizer updates on this rank, with its group."""
        groups, owner = self.optimizer.param_groups, self.wrapper.sub_group_to_group_id
        for number, flat in enumerate(self.wrapper.fp32_partitioned_groups_flat):
            yield flat, groups[owner[number]]

    def link(self) -> None:
        """Do nothing: the parameters find their moments."""

    def held(self, parameter: Any, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return what of a whole weight this rank has, and the same as the module computes with it."""
        own = part_of(parameter, weight)
        return own, parameter.ds_tensor.flatten()[: own.numel()]

    def scatter(self, parameter: nn.Parameter, weight: Tensor, moments: Mapping[str, Tensor]) -> None:
        """Set the optimizer's copies of a parameter's weight and moments, on the ranks that own them."""
        fragments.safe_set_local_fp32_param(parameter, pad_part(parameter, weight))
        for key, moment in moments.items():
            fragments.safe_set_local_optimizer_state(parameter, pad_part(parameter, moment), key)

    def averages(self, parameter: Any) -> Places:
        """Return the tensors from which the module computes a parameter, each with its average."""
        whole = fragments.safe_get_full_optimizer_state(parameter, AVERAGE)
        own = fragments.safe_get_local_optimizer_state(parameter, AVERAGE)
        small = parameter.data.numel() == whole.numel()  # held whole, too
        return [(parameter.ds_tensor.data, own), *([(parameter.data, whole)] if small else [])]


KINDS = (Replicated, Partitioned, Partitioned, FullyPartitioned)  # by stage


def part_of(parameter: Any, whole: Tensor) -> Tensor:
    """Return the part of a tensor that this rank owns at stage 3: an equal one, or what is left."""
    size = parameter.ds_tensor.numel()
    start = size * torch.distributed.get_rank()
    return whole.flatten()[start : start + size]


def pad_part(parameter: Any, whole: Tensor) -> Tensor:
    """Return this rank's part in the size that all ranks have, with zeros."""
    part = part_of(parameter, whole)
    return nn.functional.pad(part, (0, parameter.ds_tensor.numel() - part.numel()))
