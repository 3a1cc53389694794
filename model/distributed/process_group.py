"""Process-group setup, cross-rank flags, and detection of lost peers."""

import json
import os
import socket
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from model.distributed import rendezvous
from model.distributed.rank_card import RankCard
from pipeline.errors import InputError
from pipeline.storage.atomic import write_text

VISIBLE = 15.0  # seconds until a file written on one node must be seen on another

_host_group: Any = None  # of all ranks, through host memory; None: the default one is such a group


def join(card: RankCard, start_timeout: float, timeout: float, device: torch.device) -> None:
    """Create the process group when all ranks have joined, with a timeout for every operation.

    The start has a timeout of its own, as nodes may start late and names may not resolve yet.

    GPUs have a second group, which their hosts agree by.

    Raises:
        ConfigError, InputError, Restart: As `rendezvous.meet`.
    """
    global _host_group
    limit, on_gpus = timedelta(seconds=timeout), device.type == "cuda"
    store, rank, size = rendezvous.meet(card, start_timeout)
    if size == 1 or os.environ["MASTER_ADDR"] in ("127.0.0.1", "::1", "localhost"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # else where the machine's name leads
    store.set_timeout(limit)
    backend, bound = ("nccl", device if size > 1 else None) if on_gpus else ("gloo", None)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit, device_id=bound)
    _host_group = dist.new_group(backend="gloo", timeout=limit) if on_gpus else None


def any_rank(flag: bool) -> bool:
    """Return whether `flag` is set on any rank, the same answer on all of them.

    The hosts agree among themselves: no GPU is waited for, and a rank that is gone is noticed by
    its closed connection, where GPUs would wait until the watchdog ends them.
    """
    flags = torch.zeros(1, dtype=torch.int32)
    flags.numpy()[0] = flag
    dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=_host_group)
    return bool(flags.numpy()[0])


def gather(value: Any) -> list[Any]:
    """Return every rank's value, of types that JSON has, on all ranks, in rank order.

    PyTorch's own unpickles, and so runs, what other ranks send.
    """
    size, rank, data = dist.get_world_size(), dist.get_rank(), json.dumps(value).encode()
    lengths = torch.zeros(size, dtype=torch.int64)
    lengths.numpy()[rank] = len(data)
    dist.all_reduce(lengths, group=_host_group)
    rows = torch.zeros(size, int(lengths.numpy().max()), dtype=torch.uint8)
    rows.numpy()[rank, : len(data)] = np.frombuffer(data, np.uint8)
    dist.all_reduce(rows, group=_host_group)
    texts = zip(rows.numpy(), lengths.tolist(), strict=True)
    return [json.loads(row[:length].tobytes()) for row, length in texts]


def check_shared_folder(folder: Path, timeout: float) -> None:
    """Check that all nodes see the same checkpoint folder; every rank raises the same error.

    `timeout` is the process group's, in seconds: a node must give up before it expires.
    """
    if dist.get_world_size() == 1:
        return
    name = folder / f".shared-{gather(uuid.uuid4().hex)[0]}"
    if dist.get_rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(name, "")
    dist.barrier()
    # Network file systems cache negative lookups for a while.
    until = time.monotonic() + min(VISIBLE, timeout / 2)
    while not (sees := name.exists()) and time.monotonic() < until:
        time.sleep(0.2)
    answers = gather((sees, socket.gethostname()))  # all have looked
    if dist.get_rank() == 0:
        name.unlink()
    if unshared := sorted({host for sees, host in answers if not sees}):
        raise InputError(
            f"{', '.join(unshared)} cannot see files that rank 0 writes there; set out= "
            "to a folder on a file system shared by all nodes",
            "out",
            folder,
        )


def is_peer_failure(error: BaseException) -> bool:
    """Return whether an error means that another rank is lost or does not respond."""
    text = str(error)
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(word in text for word in ("gloo", "NCCL", "ProcessGroup"))
    )
