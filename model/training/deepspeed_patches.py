"""Every patch of DeepSpeed and torch.distributed, each with the reason why it is there.

They replace private parts of one version, so that another is refused at the start. Those marked
"exact" decide what is learnt; without the others training is slower and the same to the bit.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime.engine import ZERO_OPTIMIZATION, DeepSpeedEngine
from torch import Tensor
from torch.distributed import distributed_c10d

from model.optim.gradient_buckets import FlatGradients
from model.optim.zero_layout import TensorList
from pipeline.errors import InputError

VERSION = "0.19.8"  # `pyproject.toml` has the range; a test compares them

# DeepSpeed calls functions that PyTorch 2.13 is about to rename.
warnings.filterwarnings("ignore", ".* is deprecated", FutureWarning, r"torch\.distributed")


def require_version() -> None:
    """Check that the installed DeepSpeed is the one that is patched here.

    Raises:
        InputError: It is another one.
    """
    if deepspeed.__version__.partition("+")[0] != VERSION:
        raise InputError(
            f"version {deepspeed.__version__} is not supported, as weights could be "
            f"silently wrong; run python -m pip install deepspeed=={VERSION}",
            "deepspeed",
        )


def before_start(timeout: timedelta, on_gpus: bool) -> None:
    """Patch what DeepSpeed's start depends on."""
    # Exact: DeepSpeed clones the world group without a timeout; a lost peer would be waited for.
    room: Any = distributed_c10d
    room.default_pg_timeout = room.default_pg_nccl_timeout = timeout
    if not on_gpus:
        # Speed: DeepSpeed compiles an unused op at the first start, which takes minutes.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


@contextmanager
def force_zero_wrapper() -> Iterator[None]:
    """Make engines at ZeRO 1 that add up bf16 in fp32 take the optimizer wrapper of all others.

    Speed: DeepSpeed takes a third one there, which reduces gradients after the backward pass, and
    waits three times in a step. The usual one adds up in fp32 as well: in an attribute of each
    parameter.
    """
    room: Any = DeepSpeedEngine
    choose = room._do_optimizer_sanity_check

    def choose_usual(engine: Any, optimizer: Any) -> Any:
        return ZERO_OPTIMIZATION if engine.zero_optimization() else choose(engine, optimizer)

    room._do_optimizer_sanity_check = choose_usual
    try:
        yield
    finally:
        room._do_optimizer_sanity_check = choose


def install_flat_gradients(wrapper: Any, parameters: Iterable[Tensor]) -> None:
    """Make a ZeRO 1 optimizer that adds up bf16 in fp32 do so in flat buffers.

    Speed: DeepSpeed's hook of each parameter takes 7 ms longer in a backward pass of 12 layers.
    Other optimizers keep these hooks, and so do options that lay out or scale gradients in another
    way. The parameters are those of the model, about in the order of its forward pass.
    """
    if not FlatGradients.suits(wrapper):
        return
    # Here, as earlier versions lack it: `require_version` says so in a line.
    from deepspeed.runtime.zero.stage_1_and_2 import GradPartitionBufferGroup

    flat = FlatGradients(wrapper, parameters)

    def reduce(pipeline_parallel: bool = False) -> None:
        for group, (part, sizes) in enumerate(flat.reduced()):
            parts = list(torch.split(part, sizes))
            wrapper.averaged_gradients[group] = GradPartitionBufferGroup(parts, part)

    for hook in wrapper._grad_acc_hooks:
        hook.remove()
    wrapper._grad_acc_hooks = flat.hooks()
    wrapper.reduce_gradients = reduce  # at the end of a step's last backward pass
    wrapper.fill_grad_accum_attribute = flat.finish_pass  # at the end of every one


def fuse_grad_norm(wrapper: Any) -> None:
    """Make a ZeRO optimizer take norms in few kernels, and wait for the device once in a step.

    Speed: DeepSpeed looks for infinities with several kernels for each parameter, takes the norm
    with more, and asks the device for an answer up to six times. A norm that is not finite says as
    much as a look of its own: the same updates are skipped. The one wait is DeepSpeed's own check
    of the norm of all groups. Where gradients are offloaded they are in host memory already, and
    nothing changes.
    """
    if hasattr(wrapper, "fp16_partitioned_groups_flat"):  # stage 3
        if not wrapper.offload_optimizer:
            wrapper.get_grad_norm_direct = lambda gradients, _: group_norms([gradients], wrapper.dp_process_group)[0]
            wrapper.check_overflow = lambda **_: None
    elif hasattr(wrapper, "averaged_gradients") and not wrapper.cpu_offload:

        def whole_norm() -> Tensor:
            groups = [wrapper.averaged_gradients[i] for i in range(len(wrapper.bit16_groups))]
            norms = group_norms(groups, wrapper.dp_process_group)
            return torch.linalg.vector_norm(norms)  # type: ignore[no-any-return]

        wrapper.scaled_global_norm = whole_norm
        wrapper.check_overflow = lambda **_: None
        wrapper.unscale_and_clip_grads = lambda flat, norm: clip(wrapper, flat, norm)
        link = wrapper._update_model_bit16_weights
        wrapper._update_model_bit16_weights = lambda group: is_linked(wrapper, group) or link(group)


def group_norms(groups: Iterable[Iterable[Tensor | None]], process_group: Any) -> Tensor:
    """Return the norm of each group of gradients over all ranks, fp32, as a tensor on the device.

    Squares are summed in fp64, as in DeepSpeed: in fp32 they overflow before the gradients do.
    """
    gradients = [[gradient for gradient in group if gradient is not None] for group in groups]
    device = next((one.device for group in gradients for one in group), torch.accelerator.current_accelerator())
    total = torch.zeros(len(gradients), device=device)
    for number, group in enumerate(gradients):
        if group:
            norms = torch._foreach_norm(group, 2, dtype=torch.float64)
            total[number] = torch.stack(list(norms)).square().sum()
    dist.all_reduce(total, group=process_group)
    return total.sqrt()


def clip(wrapper: Any, flat: TensorList, norm: Tensor) -> None:
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


def is_linked(wrapper: Any, group: int) -> bool:
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
