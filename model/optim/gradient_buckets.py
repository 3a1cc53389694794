"""The sums of a step's gradients in flat buffers, which buckets of neighbours fill."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from model.optim.zero_layout import TensorList, chunk_by_numel, flat_shards


@dataclass
class Bucket:
    """Neighbours in the flat weights of a parameter group, and what became of their gradients."""

    group: int
    first: int  # the index in the group of its first parameter
    start: int  # where they begin in the flat weights
    parameters: TensorList
    size: int
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
        reduced = [
            (flat.narrow(0, start, size), pieces)
            for flat, (start, size, pieces) in zip(self.flat, self.parts, strict=True)
        ]
        self.flat, self.views = [], []  # the optimizer frees them after its step
        return reduced

    def _make(self) -> None:
        """Make the buffers of a step, with zeros where a gradient is missing."""
        for weights, metas in zip(self.wrapper.bit16_groups_flat, self.wrapper.round_robin_bit16_meta, strict=True):
            flat = torch.zeros_like(weights, dtype=torch.float32)
            self.flat.append(flat)
            self.views.append(torch._C._nn.unflatten_dense_tensors(flat, metas))

    def _add(self, bucket: Bucket) -> None:
        """Add the gradients of a bucket to the sums, and free them."""
        views = self.views[bucket.group][bucket.first :]
        pairs = [
            (view, parameter.grad)
            for view, parameter in zip(views, bucket.parameters, strict=False)
            if parameter.grad is not None
        ]
        if not pairs:
            return
        sums, gradients = map(list, zip(*pairs, strict=True))
        if bucket.filled:
            torch._foreach_add_(sums, gradients)
        else:
            torch._foreach_copy_(sums, gradients)
        bucket.filled = True
        for parameter in bucket.parameters:
            parameter.grad = None


def buckets(group: int, parameters: TensorList, most: int) -> list[Bucket]:
    """Cut a parameter group into buckets of at most `most` elements, or of one parameter."""
    counts = [parameter.numel() for parameter in parameters]
    starts = [0, *accumulate(counts)]
    return [
        Bucket(group, first, starts[first], parameters[first:last], starts[last] - starts[first])
        for first, last in chunk_by_numel(counts, most)
    ]


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
    numels = [piece.size for piece in flat_shards(parameters, start, size)]
    padding = size - sum(numels)
    return [*numels, padding] if padding else numels
