"""Input of the encoder: packed samples without padding.

Shapes: B sequences in a micro-batch, T real tokens in it, M masked positions.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packed:
    """Sequences laid end to end; every tensor on one device."""

    input_ids: Tensor  # (T,) int64
    segment_ids: Tensor  # (T,) int64: 0 up to the first [SEP], 1 after it
    position_ids: Tensor  # (T,) int64: 0 .. length-1 in each sequence
    cu_seqlens: Tensor  # (B+1,) int32: where each sequence starts, and T
    max_length: int  # of a sequence in the batch


@dataclass(frozen=True)
class Batch(Packed):
    """One micro-batch of pre-training; without labels, as much of it as a model reads."""

    masked_positions: Tensor  # (M,) int64 into T, ascending
    masked_labels: Tensor = torch.zeros(0, dtype=torch.long)  # (M,) int64: the original tokens
    next_sentence_labels: Tensor = masked_labels  # (B,) int64: 0 if B follows A, else 1

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on another device; copies from pinned memory are asynchronous."""
        moved: dict[str, Any] = {n: x.to(device, non_blocking=True) for n, x in self.tensors().items()}
        return replace(self, **moved)
