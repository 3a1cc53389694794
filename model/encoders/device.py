"""The device that computes, the precision of its products in fp32, and the compiler of its kernels."""

import contextlib
import os
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}  # of each precision
COMPILERS = ("cc", "gcc", "clang")  # Triton builds its launchers with one of them, at run time


def device_of(worker: int = 0) -> torch.device:
    """Return the device of a worker: GPUs round-robin, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", worker % torch.cuda.device_count())
    allow_tf32(device)
    return device


def allow_tf32(device: torch.device) -> None:
    """Let a GPU compute products of fp32 in TF32, at eight times the rate; a CPU keeps fp32."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")


@contextlib.contextmanager
def fp32_matmul() -> Iterator[None]:
    """Compute products of fp32 in fp32, on a GPU too, for results that are compared with others."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def has_compiler() -> bool:
    """Return whether this machine has a C compiler and Python's headers."""
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return headers.exists() and any(shutil.which(name) for name in (os.environ.get("CC", ""), *COMPILERS) if name)
