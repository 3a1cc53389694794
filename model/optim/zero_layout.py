"""Where ZeRO has put the elements of parameters: the flat partitions of a rank, and their pieces."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

TensorList = list[Tensor]


@dataclass(frozen=True)
class ParamShard:
    """A contiguous range of one parameter's elements in a flat partition."""

    parameter: int  # index in the partition's parameter group
    start: int
    size: int
    offset: int  # of its first element in the parameter


@dataclass(frozen=True)
class Layout:
    """Contents of one flat partition and the process group that shares its parameters."""

    pieces: list[ParamShard]
    shapes: list[torch.Size]  # of the parameters of the whole group, over all ranks
    group: Any  # the process group that shares them
    device: torch.device  # on which that group communicates
    split: frozenset[int]  # parameters that no rank has whole


def pieces_of(tensor: Tensor, layout: Layout) -> TensorList:
    """Split a flat partition, or a tensor of its size, into one piece per parameter."""
    return [tensor[piece.start : piece.start + piece.size] for piece in layout.pieces]


def layouts(engine: Any) -> dict[Tensor, Layout]:
    """Return the layout of each flat partition of a DeepSpeed engine; empty at stage 0."""
    stage, wrapper = engine.zero_optimization_stage(), engine.optimizer
    if stage == 0:
        return {}
    common = (wrapper.dp_process_group, engine.device)
    rank = dist.get_rank(wrapper.dp_process_group)
    if stage == 3:
        return {
            flat: layout_of(equal_shares(group, rank), [p.ds_shape for p in group], *common)
            for flat, group in zip(wrapper.fp32_partitioned_groups_flat, wrapper.fp16_groups, strict=True)
        }
    return {
        flat: layout_of(flat_shards(group, rank * flat.numel(), flat.numel()), [p.shape for p in group], *common)
        for flat, group in zip(wrapper.single_partition_of_fp32_groups, wrapper.bit16_groups, strict=True)
    }


def layout_of(pieces: list[ParamShard], shapes: list[torch.Size], group: Any, device: torch.device) -> Layout:
    """Return the layout of a partition. Every rank of its group must call it."""
    whole = torch.zeros(len(shapes), device=device)
    whole[[p.parameter for p in pieces if p.size == shapes[p.parameter].numel()]] = 1
    dist.all_reduce(whole, group=group)
    split = (number for number, ranks in enumerate(whole.tolist()) if not ranks)
    return Layout(pieces, shapes, group, device, frozenset(split))


def flat_shards(parameters: list[Any], start: int, size: int) -> list[ParamShard]:
    """Return the pieces in `size` elements from `start` of parameters laid end to end.

    So ZeRO 1 and 2 cut a parameter group, into equal partitions of which the last is padded.
    """
    shards, place = [], 0
    for number, parameter in enumerate(parameters):
        begin, end = max(place, start), min(place + parameter.numel(), start + size)
        if begin < end:
            shards.append(ParamShard(number, begin - start, end - begin, begin - place))
        place += parameter.numel()
    return shards


def equal_shares(parameters: list[Any], rank: int) -> list[ParamShard]:
    """Return this rank's pieces at stage 3: an equal part of each parameter, the last padded."""
    shards, start = [], 0
    for number, parameter in enumerate(parameters):
        share = parameter.partition_numel()
        real = min(share, max(0, parameter.ds_numel - rank * share))
        if real:
            shards.append(ParamShard(number, start, real, rank * share))
        start += share
    return shards


def chunk_by_numel(sizes: list[int], most: int) -> list[tuple[int, int]]:
    """Return ranges of tensors that together have at most `most` elements, or are one."""
    ranges, first, total = [], 0, 0
    for number, size in enumerate(sizes):
        if number > first and total + size > most:
            ranges.append((first, number))
            first, total = number, 0
        total += size
    return [*ranges, (first, len(sizes))] if sizes else []
