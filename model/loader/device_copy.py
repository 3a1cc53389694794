"""Make batches and copy them to the device before they are needed, without stopping what computes there.

A copy from pageable memory waits for the device and overlaps nothing. From pinned memory, on a
stream of its own, it runs while the micro-batch before it is computed. On a CPU nothing is copied.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from model.encoders.batch import Batch


@dataclass(frozen=True)
class CopiedBatch:
    """One micro-batch: on the host, and on its way to the device."""

    host: Batch
    device: Batch
    arrived: torch.cuda.Event | None = None  # None: there was nothing to copy

    def ready(self) -> Batch:
        """Return the batch on the device; kernels launched from here on wait for it, not the host.

        Its memory is given back only after these kernels, though another stream made it.
        """
        if self.arrived is not None:
            compute = torch.cuda.current_stream(self.device.input_ids.device)
            compute.wait_event(self.arrived)
            for tensor in self.device.tensors().values():
                tensor.record_stream(compute)
        return self.device


class Copier:
    """Starts copies; to be called by the thread that makes batches."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def __call__(self, batch: Batch) -> CopiedBatch:
        """Start to copy a batch; on a CPU, return it as it is."""
        if self._stream is None:
            return CopiedBatch(batch, batch)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        # A thread begins on the first GPU. Without `device`, `stream` would go back to it at its
        # end, for which CUDA takes hundreds of MB of that GPU's memory, from each rank of a node.
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            moved: dict[str, Any] = {
                name: tensor.pin_memory().to(self._device, non_blocking=True)
                for name, tensor in batch.tensors().items()
            }
            arrived.record(self._stream)
        return CopiedBatch(batch, replace(batch, **moved), arrived)


def send(array: npt.NDArray[np.integer[Any]], device: torch.device) -> torch.Tensor:
    """Return an array as a tensor on a device, on its way there: the host does not wait."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
