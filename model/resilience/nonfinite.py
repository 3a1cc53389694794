"""Updates that came to nothing: skipped, counted, and after too many in a row the run's end."""

import math
from dataclasses import dataclass, field

import torch
from torch import nn

from pipeline.common.errors import Diverged


def clip_and_skip(optimizer: torch.optim.Optimizer, clip: float) -> None:
    """Make an optimizer clip gradients and pass over those not finite, as ZeRO's wrappers do.

    Without ZeRO nothing stands between such a gradient and the weights, and nobody keeps the norm.
    `overflow` and `_global_grad_norm` are where DeepSpeed looks for them.
    """
    step = optimizer.step

    def careful() -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        finite = math.isfinite(norm.item())
        optimizer.overflow = not finite  # type: ignore[attr-defined]
        optimizer._global_grad_norm = norm  # type: ignore[attr-defined]
        if finite:
            if clip:
                nn.utils.clip_grads_with_norm_(parameters, clip, norm)
            step()

    optimizer.step = careful  # type: ignore[method-assign,assignment]


@dataclass
class Health:
    """Whether the updates of a run take effect."""

    limit: int  # so many in a row that do not end it
    skipped: int = 0  # in all
    row: list[tuple[int, int, int]] = field(default_factory=list)  # step, first sample, how many

    def note(self, applied: bool, step: int, first: int, count: int) -> str | None:
        """What to say of update `step` (from 1) over `count` samples from `first`; None if good."""
        if applied:
            self.row.clear()
            return None
        self.skipped += 1
        self.row.append((step, first, count))
        return (
            f"step {step:,}: loss or gradient not finite, update skipped ({len(self.row)} in a "
            f"row; samples {first:,} to {first + count - 1:,})"
        )

    @property
    def hopeless(self) -> bool:
        """Whether there were too many in a row."""
        return len(self.row) >= self.limit

    def diagnosis(self, checkpoint: str) -> Diverged:
        """The error that ends the run, when the weights from before are saved."""
        (first_step, first, _), (last_step, last, count) = self.row[0], self.row[-1]
        return Diverged(
            f"the loss or its gradient was not finite in steps {first_step:,} to {last_step:,} "
            f"(samples {first:,} to {last + count - 1:,} in the order of training); no update was "
            f"made from them. The weights from before are saved in {checkpoint}; lower "
            "optimizer.learning_rate, look at these samples, or raise bad_steps to go on"
        )
