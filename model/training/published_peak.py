"""Published throughput of GPUs, by their names; without PyTorch, for estimates."""

import re

# Dense bf16 or fp16 matrix products, TFLOP/s, from the vendors' data sheets. The first name that
# is a word of the device's own name applies.
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


def published(name: str) -> float | None:
    """Return the published figure of a device by its name; None where it is unknown."""
    for known, figure in PUBLISHED.items():
        if re.search(rf"\b{known}\b", name):
            return figure
    return None
