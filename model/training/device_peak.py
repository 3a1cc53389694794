"""What a device could do at best: the denominator of MFU, and how much memory was taken."""

import re
import resource
import sys
import time

import torch

# Dense bf16 or fp16 matrix products, TFLOP/s, by the makers' data sheets. The first name that
# is a word of the device's own counts.
PUBLISHED = {
    "B200": 2250.0,
    "GH200": 989.4,
    "H200": 989.4,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.4,
    "L40S": 362.0,
    "L40": 181.0,
    "L4": 121.0,
    "A100": 312.0,
    "A10G": 70.0,
    "A10": 125.0,
    "V100": 125.0,
    "T4": 65.0,
}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def tflops(device: torch.device, precision: str) -> float:
    """TFLOP/s of the device: published, else measured on matrix products."""
    if device.type == "cuda" and precision != "fp32":
        figure = published(torch.cuda.get_device_name(device))
        if figure is not None:
            return figure
    return measured(device, TYPES[precision])


def published(name: str) -> float | None:
    """Return the published figure of a device by its name; None where it is unknown."""
    for known, figure in PUBLISHED.items():
        if re.search(rf"\b{known}\b", name):
            return figure
    return None


@torch.no_grad()
def measured(device: torch.device, dtype: torch.dtype, repeats: int = 5) -> float:
    """The best of some matrix products, TFLOP/s; a few hundredths of a second."""
    size = 8192 if device.type == "cuda" else 1024
    # Random numbers: of ones a GPU makes more products, because it needs less power for them.
    a, b = torch.randn(2, size, size, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(repeats + 1):  # the first one warms up
        synchronize(device)
        began = time.perf_counter()
        a @ b
        synchronize(device)
        best = min(best, time.perf_counter() - began)
    return float(2 * size**3 / best / 1e12)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def memory(device: torch.device) -> float:
    """The most GiB that this process has had: of a GPU's memory, else of the machine's."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device) / 2**30)
    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
