"""The other ranks: waiting for them at the start, agreeing with them, and noticing their loss."""

import socket
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from model.resilience import rendezvous
from model.resilience.rank_card import RankCard
from pipeline.common.atomic import write_text
from pipeline.common.errors import InputError

VISIBLE = 15.0  # seconds until a file written on one node must be seen on another

_host_group: Any = None  # of all ranks, through host memory; None: the default one is such a group


def join(
    backend: str, card: RankCard, start_timeout: float, timeout: float, device: torch.device
) -> None:
    """Make the process group when all ranks are there; none of its operations waits for ever.

    Nodes may start late and names may not resolve yet, so the start has a time limit of its own.
    The other one holds for every group that is made later too: DeepSpeed makes some, and gives
    them none.

    With a backend of GPUs there is a second group, which the hosts agree by.

    Raises:
        ConfigError, InputError, Restart: what `rendezvous.meet` raises.
    """
    global _host_group
    limit = timedelta(seconds=timeout)
    distributed_c10d._get_default_timeout = lambda backend: limit
    store, rank, size = rendezvous.meet(card, start_timeout)
    store.set_timeout(limit)
    bound = device if device.type == "cuda" and size > 1 else None
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=limit, device_id=bound
    )
    _host_group = None if backend == "gloo" else dist.new_group(backend="gloo", timeout=limit)


def any_rank(flag: bool) -> bool:
    """Return whether `flag` is set on any rank, the same answer on all of them.

    The hosts agree among themselves: no GPU is waited for, and a rank that is gone is noticed by
    its closed connection, where GPUs would wait until the watchdog ends them.
    """
    flags = torch.zeros(1, dtype=torch.int32)
    flags.numpy()[0] = flag
    dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=_host_group)
    return bool(flags.numpy()[0])


def smallest(number: int) -> int:
    """Return the smallest of all ranks' numbers."""
    numbers = torch.zeros(1, dtype=torch.int64)
    numbers.numpy()[0] = number
    dist.all_reduce(numbers, op=dist.ReduceOp.MIN, group=_host_group)
    return int(numbers.numpy()[0])


def broadcast_from_rank0(value: Any) -> Any:
    """Rank 0's value, on every rank."""
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def check_shared_folder(folder: Path, timeout: float) -> None:
    """Make sure that all nodes see one and the same checkpoint folder.

    `timeout` is what one node waits for another, in seconds: a node must give up before that.

    Raises:
        InputError: some do not; on every rank.
    """
    if dist.get_world_size() == 1:
        return
    name = folder / f".shared-{broadcast_from_rank0(uuid.uuid4().hex)}"
    if dist.get_rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(name, "")
    dist.barrier()
    # Network file systems remember for a while what was not there.
    until = time.monotonic() + min(VISIBLE, timeout / 2)
    while not (seen := name.exists()) and time.monotonic() < until:
        time.sleep(0.2)
    hosts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(hosts, (seen, socket.gethostname()))
    if dist.get_rank() == 0:
        name.unlink()
    blind = sorted({host for sees, host in hosts if not sees})
    if blind:
        raise InputError(
            f"out: {', '.join(blind)} cannot see what rank 0 writes in {folder}; the folder must "
            "be on a file system that all nodes share"
        )


def is_peer_failure(error: BaseException) -> bool:
    """Whether an error says that another rank is gone or does not answer."""
    text = str(error)
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError)
        and any(word in text for word in ("gloo", "NCCL", "ProcessGroup"))
    )
