"""Every patch of DeepSpeed and torch.distributed, each with the reason why it is there.

They replace private parts of one version, so that another is refused at the start. Those marked
"exact" decide what is learnt; without the others training is slower and the same to the bit.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime.engine import ZERO_OPTIMIZATION, DeepSpeedEngine
from torch import Tensor
from torch.distributed import distributed_c10d

from model.training.partitioned import TensorList, fragments
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
def usual_wrapper() -> Iterator[None]:
    """Make engines at ZeRO 1 that add up bf16 in fp32 take the optimizer wrapper of all others.

    Speed: DeepSpeed takes a third one there, which reduces gradients after the backward pass, and
    waits three times in a step. The usual one adds up in fp32 as well: in an attribute of each
    parameter.
    """
    room: Any = DeepSpeedEngine
    choose = room._do_optimizer_sanity_check

    def choose_usual(made: Any, optimizer: Any) -> Any:
        return ZERO_OPTIMIZATION if made.zero_optimization() else choose(made, optimizer)

    room._do_optimizer_sanity_check = choose_usual
    try:
        yield
    finally:
        room._do_optimizer_sanity_check = choose


def gather_flat(wrapper: Any, parameters: Iterable[Tensor]) -> None:
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


def look_once(wrapper: Any) -> None:
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
        wrapper._update_model_bit16_weights = lambda group: linked(wrapper, group) or link(group)


def group_norms(groups: Iterable[Iterable[Tensor | None]], process_group: Any) -> Tensor:
    """Return the norm of each group of gradients over all ranks, fp32, as a tensor on the device.

    Squares are summed in fp64, as in DeepSpeed: in fp32 they overflow before the gradients do.
    """
    found = [[gradient for gradient in group if gradient is not None] for group in groups]
    device = next((one.device for group in found for one in group), torch.accelerator.current_accelerator())
    total = torch.zeros(len(found), device=device)
    for number, group in enumerate(found):
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


@dataclass
class Bucket:
    """Neighbours in the flat weights of a parameter group, and what became of their gradients."""

    group: int
    first: int  # the index in the group of its first parameter
    start: int  # where they begin in the flat weights
    parameters: TensorList = field(default_factory=list)
    size: int = 0
    filled: bool = False  # whether an earlier micro-batch of this step is in the sums
    sent: Any = None  # the reduction over the ranks, once it has begun


class FlatGradients:
    """The sums of a step's gradients at ZeRO 1, in fp32, in one flat buffer for each group.

    DeepSpeed 0.19.8 has a Python hook for each parameter, which casts its gradient, adds it to a sum,
    copies the sum into a bucket, and cuts the bucket by ranks again: a dozen operations for each
    parameter. At ZeRO 1 every rank has all gradients until the optimizer's step, so that they may be
    laid out as the flat weights are: a bucket is a range of them, its gradients are added by one
    operation for many tensors, and the optimizer takes this rank's part of the buffer as it is.
    """

    def __init__(self, wrapper: Any, parameters: Iterable[Tensor]) -> None:
        self.wrapper, self.ranks = wrapper, wrapper.dp_process_group
        self.world = dist.get_world_size(self.ranks)
        self.flat: TensorList = []  # of each group; none between steps
        self.views: list[TensorList] = []  # of each group and parameter
        groups = list(enumerate(wrapper.bit16_groups))
        places = {parameter: place for place, parameter in enumerate(parameters)}
        self.buckets = in_backward_order(
            [b for n, group in groups for b in buckets(n, group, wrapper.reduce_bucket_size)], places
        )
        rank = dist.get_rank(self.ranks)
        self.parts = [  # of each group: where this rank's begins, its size, and those of its pieces
            (rank * size, size, sizes(group, rank * size, size))
            for (_, group), size in zip(groups, wrapper.partition_size, strict=True)
        ]
        self._last: list[Any] = [min(one.parameters, key=places.__getitem__) for one in self.buckets]

    @staticmethod
    def suits(wrapper: Any) -> bool:
        """Return whether an optimizer wrapper adds up bf16 in fp32, laid out as its weights are."""
        return getattr(wrapper, "use_grad_accum_attribute", False) and bool(
            wrapper.gradient_accumulation_dtype == wrapper.communication_data_type == torch.float32
            and wrapper.postscale_gradients
            and wrapper.gradient_predivide_factor == 1.0
            and wrapper.sequence_parallel_size == 1
            and not wrapper.cpu_offload
        )

    def hooks(self) -> list[Any]:
        """Register a hook on the parameter of each bucket whose gradient is computed last."""
        return [one.register_post_accumulate_grad_hook(lambda _: self.take()) for one in self._last]

    @torch.no_grad()
    def take(self, at_the_end: bool = False) -> None:
        """Add the gradients of full buckets to the sums; at the end of a pass, of all.

        In the last pass of a step reductions begin, on every rank in the same order, while other
        gradients are computed.
        """
        last = self.wrapper.is_gradient_accumulation_boundary()
        if not self.flat:
            self._make()
        for bucket in self.buckets:
            if bucket.sent is not None:
                continue
            if not at_the_end and any(parameter.grad is None for parameter in bucket.parameters):
                if last and self.world > 1:
                    return  # the order
                continue
            self._add(bucket)
            if last and self.world > 1:
                where = self.flat[bucket.group].narrow(0, bucket.start, bucket.size)
                where.div_(self.world)
                bucket.sent = dist.all_reduce(where, group=self.ranks, async_op=True)

    def finish_pass(self) -> None:
        """Add what is left of a pass; `reduced` does so in the last one of a step."""
        if not self.wrapper.is_gradient_accumulation_boundary():
            self.take(at_the_end=True)

    def reduced(self) -> list[tuple[Tensor, list[int]]]:
        """Finish the sums over micro-batches and ranks; return this rank's part of each group.

        With each part come the sizes of its pieces.
        """
        self.take(at_the_end=True)
        for bucket in self.buckets:
            if bucket.sent is not None:
                bucket.sent.wait()
            bucket.sent, bucket.filled = None, False
        found = [
            (flat.narrow(0, start, size), pieces)
            for flat, (start, size, pieces) in zip(self.flat, self.parts, strict=True)
        ]
        self.flat, self.views = [], []  # the optimizer frees them after its step
        return found

    def _make(self) -> None:
        """Make the buffers of a step, with zeros where a gradient is missing."""
        for weights, metas in zip(self.wrapper.bit16_groups_flat, self.wrapper.round_robin_bit16_meta, strict=True):
            flat = torch.zeros_like(weights, dtype=torch.float32)
            self.flat.append(flat)
            self.views.append(torch._C._nn.unflatten_dense_tensors(flat, metas))

    def _add(self, bucket: Bucket) -> None:
        """Add the gradients of a bucket to the sums, and free them."""
        views = self.views[bucket.group][bucket.first :]
        found = [
            (view, parameter.grad)
            for view, parameter in zip(views, bucket.parameters, strict=False)
            if parameter.grad is not None
        ]
        if not found:
            return
        sums, gradients = map(list, zip(*found, strict=True))
        if bucket.filled:
            torch._foreach_add_(sums, gradients)
        else:
            torch._foreach_copy_(sums, gradients)
        bucket.filled = True
        for parameter in bucket.parameters:
            parameter.grad = None


def buckets(group: int, parameters: TensorList, most: int) -> list[Bucket]:
    """Cut a parameter group into buckets of at most `most` elements, or of one parameter."""
    found: list[Bucket] = []
    start = 0
    for number, parameter in enumerate(parameters):
        if not found or found[-1].size + parameter.numel() > most:
            found.append(Bucket(group, number, start))
        found[-1].parameters.append(parameter)
        found[-1].size += parameter.numel()
        start += parameter.numel()
    return found


def in_backward_order(every: list[Bucket], places: Mapping[Tensor, int]) -> list[Bucket]:
    """Return buckets in the order in which a backward pass completes them: the earliest one last.

    `places` are those of the parameters in the forward pass. One that waits for the end of the pass
    would hold up all behind it, as reductions have one order on all ranks.
    """
    return sorted(every, key=lambda one: -min(places[p] for p in one.parameters))


def sizes(parameters: TensorList, start: int, size: int) -> list[int]:
    """Return the sizes of what a partition of the flat weights has: parts of parameters, padding.

    >>> sizes([torch.empty(3), torch.empty(2, 2)], start=2, size=7)
    [1, 4, 2]
    """
    found = [piece.size for piece in fragments(parameters, start, size)]
    padding = size - sum(found)
    return [*found, padding] if padding else found
