"""Rank, device and world size of this process, once it has joined the others."""

import os
from dataclasses import dataclass

import torch

from model.distributed import process_group
from model.distributed.gpus import device_of_rank
from model.distributed.rank_card import RankCard
from model.encoders.device import allow_tf32
from pipeline.common import cores


@dataclass(frozen=True)
class World:
    """Rank, device and world size of this process."""

    rank: int
    size: int
    device: torch.device


def join_world(card: RankCard, threads: int | None, start_timeout: float, timeout: float) -> World:
    """Join the launcher's process group, or make one of this process alone.

    Raises:
        ConfigError: Fewer GPUs are usable than the environment announces or ranks need.
    """
    device = device_of_rank()
    allow_tf32(device)
    if device.type == "cpu":
        torch.set_num_threads(threads or max(1, cores.available() // ranks_of_this_node()))
        torch.set_flush_denormal(True)  # products with denormals are 25 times slower
    process_group.join(card, start_timeout, timeout, device)
    return World(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), device)


def ranks_of_this_node() -> int:
    """Return the number of ranks that share this machine, as torchrun's or deepspeed's says."""
    names = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE", "WORLD_SIZE")
    return int(next(os.environ[name] for name in names if name in os.environ))
