"""Peak throughput of a device, the denominator of MFU, and peak memory."""

import resource
import time

import torch

from model.encoders.device import TYPES
from model.training.cost import published_peak


def tflops(device: torch.device, precision: str) -> float:
    """Return the device's peak TFLOP/s: published, else measured on matrix products."""
    if device.type == "cuda" and precision != "fp32":
        figure = published_peak(torch.cuda.get_device_name(device))
        if figure is not None:
            return figure
    return measure_peak(device, TYPES[precision])


@torch.no_grad()
def measure_peak(device: torch.device, dtype: torch.dtype) -> float:
    """Measure the fastest of a few matrix products, in TFLOP/s; takes hundredths of a second."""
    size = 8192 if device.type == "cuda" else 1024
    # Random numbers: of ones a GPU makes more products, because it needs less power for them.
    a, b = torch.randn(2, size, size, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(6):  # the first one warms up
        synchronize(device)
        began = time.perf_counter()
        a @ b
        synchronize(device)
        best = min(best, time.perf_counter() - began)
    return float(2 * size**3 / best / 1e12)


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its queue."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def memory(device: torch.device) -> float:
    """Return the peak memory of this process in GiB: the GPU's, else the machine's."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device) / 2**30)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
