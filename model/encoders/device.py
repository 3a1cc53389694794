"""The device that computes, and the precision of its products in fp32."""

import contextlib
from collections.abc import Iterator

import torch


def device_of(worker: int = 0) -> torch.device:
    """Return the device of a worker: GPUs round-robin, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", worker % torch.cuda.device_count())
    choose_products(device)
    return device


def choose_products(device: torch.device, precision: str = "fp32") -> None:
    """Let products of fp32 be computed faster, where that costs less than `precision` does.

    A GPU computes them in TF32, at eight times the rate. A CPU keeps fp32, unless passes are in
    bf16: then the optimizer's products are, too, on a CPU that has instructions for it.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    elif precision == "bf16":
        torch.set_float32_matmul_precision("medium")


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """Compute products of fp32 in fp32, on a GPU too, for results that are compared with others."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
