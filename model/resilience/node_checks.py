"""Measurements of a training's nodes before it starts: links, disks, clocks, memory, GPUs.

Those between ranks are collective: every rank calls them in the same order.
"""

import os
import shutil
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from model.resilience import process_group
from pipeline.common import storage
from pipeline.common.errors import Restart, UserError
from pipeline.common.stores import objects

BLOCK = 2**26  # bytes that a disk is written by, each of them to its end, and read by
FILE = 2**29  # bytes of the file that a disk is measured by, at most
OBJECT = 2**25  # bytes of the object that a store is measured by
MESSAGE = 2**24  # bytes sent between two nodes at a time
ROUNDS = 5  # of questions for the time: the fastest answer counts
SHM = Path("/dev/shm")


@dataclass
class Findings:
    """What was measured on one rank."""

    host: str
    rank: int
    local_rank: int
    device: str = ""  # with its driver
    flops: float = 0.0  # per second, of matrix products
    shm: float = 0.0  # bytes of /dev/shm
    clock: float = 0.0  # seconds ahead of rank 0's
    link: float = 0.0  # bytes per second to the better of two neighbour nodes
    places: dict[str, tuple[float, float]] = field(default_factory=dict)  # bytes/s put and got
    faults: list[str] = field(default_factory=list)


def device_name(device: torch.device) -> str:
    """Return what all ranks should have alike: the device, its memory, driver and CUDA."""
    if device.type != "cuda":
        return "CPU"
    properties = torch.cuda.get_device_properties(device)
    try:
        driver = Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        driver = "unknown"
    memory = f"{properties.total_memory / 2**30:.0f} GiB"
    return f"{properties.name}, {memory}, driver {driver}, CUDA {torch.version.cuda}"


def shared_memory() -> float:
    """Return the size of /dev/shm in bytes; 0 where there is none."""
    try:
        return float(shutil.disk_usage(SHM).total)
    except OSError:
        return 0.0


def all_reduce(device: torch.device, seconds: float) -> tuple[float, bool]:
    """Return the bandwidth of an all-reduce, as NCCL's own tests count it, and if its sum is right.

    The bytes per second are those that each rank sends and receives: 2 (n-1)/n of the message.
    """
    size = dist.get_world_size()
    count = 2**26 if device.type == "cuda" else 2**22
    numbers = torch.full((count,), float(dist.get_rank() + 1), device=device)
    dist.all_reduce(numbers)  # it connects the ranks
    right = bool((numbers == size * (size + 1) / 2).all())
    numbers.zero_()
    once = _timed(numbers, 1)
    repeats = process_group.smallest(max(1, min(50, int(seconds / once))))
    spent = _timed(numbers, repeats)
    moved = 2 * (size - 1) / size * numbers.nbytes * repeats
    return moved / spent, not process_group.any_rank(not right)


def _timed(numbers: torch.Tensor, repeats: int) -> float:
    process_group.any_rank(False)  # all begin together
    began = time.perf_counter()
    for _ in range(repeats):
        dist.all_reduce(numbers)
    if numbers.is_cuda:
        torch.cuda.synchronize(numbers.device)
    return time.perf_counter() - began


def link(leaders: list[int]) -> float:
    """Return the better bandwidth of this node's links to the two nodes next to it, by the hosts.

    `leaders` is one rank of each node. Pairs are measured at the same time, and no node is in two.
    """
    best, rank, count = 0.0, dist.get_rank(), len(leaders)
    for start in (0, 1) if count > 2 else (0,):
        process_group.any_rank(False)
        order = leaders[start:] + leaders[:start]
        for first, second in zip(order[::2], order[1::2], strict=False):
            if rank in (first, second):
                best = max(best, _exchange(first, second))
    return best


def _exchange(first: int, second: int) -> float:
    """Return the bytes per second between two ranks, sent there and back."""
    group, mine = process_group.host_group(), dist.get_rank() == first
    other = second if mine else first
    message = torch.zeros(MESSAGE, dtype=torch.uint8)
    began, moved = time.perf_counter(), 0
    for turn in range(6):
        if turn == 1:
            began = time.perf_counter()  # the first one connects them
        if mine:
            dist.send(message, other, group=group)
            dist.recv(message, other, group=group)
        else:
            dist.recv(message, other, group=group)
            dist.send(message, other, group=group)
        moved += 2 * MESSAGE if turn else 0
    return moved / (time.perf_counter() - began)


def clock_ahead() -> float:
    """Return how many seconds this rank's clock is ahead of rank 0's, as well as it can be said."""
    group, rank, ahead = process_group.host_group(), dist.get_rank(), 0.0
    for other in range(1, dist.get_world_size()):
        if rank not in (0, other):
            continue
        best = float("inf")
        for _ in range(ROUNDS):
            stamp = torch.zeros(1, dtype=torch.float64)
            if rank == 0:
                dist.recv(stamp, other, group=group)
                stamp[0] = time.time()
                dist.send(stamp, other, group=group)
                continue
            asked = time.time()
            dist.send(stamp, 0, group=group)
            dist.recv(stamp, 0, group=group)
            answered = time.time()
            if answered - asked < best:
                best = answered - asked
                ahead = (asked + answered) / 2 - float(stamp[0])
    return ahead


def bandwidth(place: str, seconds: float) -> tuple[float, float]:
    """Return the bytes per second written to and read from a folder or an object store.

    Raises:
        OSError, UserError, Restart: it cannot be written or read.
    """
    return _of_store(place) if storage.is_address(place) else _of_folder(Path(place), seconds)


def _of_folder(folder: Path, seconds: float) -> tuple[float, float]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".preflight-{uuid.uuid4().hex}"
    block = np.random.default_rng(0).bytes(BLOCK)
    try:
        with path.open("wb", buffering=0) as file:
            began = time.perf_counter()
            while file.tell() < FILE and time.perf_counter() - began < seconds:
                file.write(block)
                os.fdatasync(file.fileno())  # else a slow disk would take minutes at the end
            written = file.tell() / (time.perf_counter() - began)
            # Else this node's memory is read; for a network file system it is a hint at most.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with path.open("rb", buffering=0) as file:
            began, read = time.perf_counter(), 0
            while time.perf_counter() - began < seconds and (part := file.read(BLOCK)):
                read += len(part)
            return written, read / (time.perf_counter() - began)
    finally:
        path.unlink(missing_ok=True)


def _of_store(address: str) -> tuple[float, float]:
    name = f"{address.rstrip('/')}/.preflight-{uuid.uuid4().hex}"
    data = np.random.default_rng(0).bytes(OBJECT)
    began = time.perf_counter()
    objects.put(name, data)
    written = OBJECT / (time.perf_counter() - began)
    try:
        began = time.perf_counter()
        storage.Remote(name).read_bytes()
        return written, OBJECT / (time.perf_counter() - began)
    finally:
        objects.delete([name])


def measure_places(found: Findings, places: list[str], seconds: float) -> None:
    """Measure folders and stores, and note those that cannot be used."""
    for place in places:
        try:
            found.places[place] = bandwidth(place, seconds)
        except (OSError, UserError, Restart) as error:
            text = getattr(error, "strerror", None) or " ".join(str(error).split())
            found.faults.append(f"{place} cannot be used: {text}")


def note_unshared(found: Findings, place: str, timeout: float) -> None:
    """Note where a folder is another one than on rank 0; collective, of folders that all can use.

    Training needs one that is shared, an object store is.
    """
    usable = storage.is_address(place) or place in found.places or found.local_rank != 0
    if process_group.any_rank(not usable) or storage.is_address(place):
        return
    if not process_group.sees_shared_folder(Path(place), timeout):
        found.faults.append(f"{place} is not the folder that rank 0 has; it must be shared")
