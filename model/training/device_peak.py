"""Peak throughput of a device, the denominator of MFU, and peak memory."""

import resource
import sys
import time

import torch

# Dense bf16 or fp16 matrix products, TFLOP/s, from the vendors' data sheets. The first name that
# the device's own name contains applies.
PUBLISHED = {
    "B200": 2250.0,
    "H200": 989.4,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.4,
    "L40S": 362.0,
    "L4": 121.0,
    "A100": 312.0,
    "A10G": 70.0,
    "A10": 125.0,
    "V100": 125.0,
    "T4": 65.0,
}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def tflops(device: torch.device, precision: str) -> float:
    """Return the device's peak TFLOP/s: published, else measured on matrix products."""
    if device.type == "cuda" and precision != "fp32":
        name = torch.cuda.get_device_name(device)
        for known, figure in PUBLISHED.items():
            if known in name:
                return figure
    return measured(device, TYPES[precision])


@torch.no_grad()
def measured(device: torch.device, dtype: torch.dtype, repeats: int = 5) -> float:
    """Measure the fastest of a few matrix products, in TFLOP/s; takes hundredths of a second."""
    size = 8192 if device.type == "cuda" else 1024
    a, b = torch.ones(2, size, size, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(repeats + 1):  # the first one warms up
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
    unit = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
