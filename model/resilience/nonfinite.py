"""Non-finite updates: skipped, counted, and fatal after too many in a row."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from pipeline.errors import Diverged


def clip_and_skip(optimizer: torch.optim.Optimizer, clip: float) -> None:
    """Make an optimizer clip gradients and skip non-finite ones, as ZeRO's wrappers do.

    Without ZeRO such a gradient would reach the weights. DeepSpeed reads the results from
    `overflow` and `_global_grad_norm`.
    """

    def before(optimizer: Any, *_: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        optimizer.overflow = not math.isfinite(norm.item())
        optimizer._global_grad_norm = norm
        if optimizer.overflow:
            optimizer.zero_grad(set_to_none=True)  # what has no gradient is not updated
        elif clip:
            nn.utils.clip_grads_with_norm_(parameters, clip, norm)

    optimizer.register_step_pre_hook(before)


@dataclass
class Health:
    """Record of the updates that were skipped in a row."""

    limit: int  # abort after this many in a row
    consecutive_skips: list[tuple[int, int, int]] = field(default_factory=list)  # step, first sample, count

    def record(self, applied: bool, step: int, first: int, count: int) -> str | None:
        """Record update `step` (from 1) over `count` samples from `first`; return any warning."""
        if applied:
            self.consecutive_skips.clear()
            return None
        self.consecutive_skips.append((step, first, count))
        return (
            f"step {step:,}: loss or gradient not finite, update skipped ({len(self.consecutive_skips)} in a "
            f"row; samples {first:,} to {first + count - 1:,})"
        )

    @property
    def limit_reached(self) -> bool:
        """Return whether too many updates in a row were skipped."""
        return len(self.consecutive_skips) >= self.limit

    def divergence_error(self, checkpoint: str) -> Diverged:
        """Return the error that ends the run, with the checkpoint of the last finite weights."""
        (first_step, first, _), (last_step, last, count) = self.consecutive_skips[0], self.consecutive_skips[-1]
        return Diverged(
            f"the loss or its gradient was not finite in steps {first_step:,} to {last_step:,} "
            f"(samples {first:,} to {last + count - 1:,} in training order); these updates were "
            f"skipped and the weights before them are saved in {checkpoint}. Lower "
            "optimizer.learning_rate, inspect these samples, or raise bad_steps to continue"
        )
