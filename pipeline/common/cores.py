"""The CPU cores available to this process, and whether the machine has GPUs."""

import os
from pathlib import Path


def available() -> int:
    """Return the number of cores that the system or Slurm grants this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Without a task plugin, Slurm does not restrict the CPU affinity of a job.
    granted = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return min(cores, int(granted)) if granted.isdecimal() and int(granted) else cores


NVIDIA = Path("/dev/nvidiactl")  # of NVIDIA's driver: a node with its GPUs has it


def gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip()]
    return [str(number) for number, _ in enumerate(NVIDIA.parent.glob("nvidia[0-9]*"))]


def gpus_present() -> bool:
    """Return whether the machine has a driver for NVIDIA's GPUs."""
    return NVIDIA.exists()
