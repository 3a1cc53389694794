"""Training metrics: losses, correct predictions, tokens, and time by phase.

Shapes: M masked positions, V vocabulary, B sequences.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from model.config import Metrics
from model.encoders.batch import Batch
from model.encoders.cross_entropy import cross_entropy
from model.training.device_peak import memory, synchronize

PHASES = ("data", "forward", "backward", "step")

_LEARNT = ("masked_lm_loss", "masked_lm_correct", "next_sentence_loss", "next_sentence_correct")
SUMS = (*_LEARNT, "masked", "sequences", "samples", "tokens")
WORK = ("samples", "tokens")  # always counted; the others only if all are finite


class PhaseTimer:
    """Seconds by phase; each lap is the time since the previous mark.

    On a CUDA device, laps measure device time without synchronising; the `data` lap is then the
    time that the device idled waiting for a batch.
    """

    def __init__(self, device: torch.device):
        self._events = device.type == "cuda"
        self.restart()

    def restart(self) -> None:
        """Discard all laps and start over."""
        self._marks: list[tuple[str | None, Any]] = []  # times, or events of the device
        self.lap(None)

    def lap(self, phase: str | None) -> None:
        """Assign the time since the last mark to `phase`; None: to none."""
        now: Any = time.perf_counter()
        if self._events:
            now = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            now.record()
        self._marks.append((phase, now))

    def seconds(self) -> Metrics:
        """Return the seconds of each phase since `restart`; waits for the device."""
        total = dict.fromkeys(PHASES, 0.0)
        if self._events:
            torch.cuda.synchronize()
        for (_, before), (phase, now) in zip(self._marks, self._marks[1:], strict=False):
            if phase is not None:
                total[phase] += before.elapsed_time(now) / 1000 if self._events else now - before
        return total


def losses(masked_logits: Tensor, pair_logits: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return both losses of logits `(M, V)` and `(B, 2)`, summed, and the metrics of `SUMS`.

    Overwrites the masked-LM logits. Without pair logits (no next-sentence head) the pair loss is
    that of a uniform guess.
    """
    masked, right = cross_entropy(masked_logits, batch.masked_labels)
    if pair_logits is None:
        pair_logits = masked.new_zeros((len(batch.next_sentence_labels), 2))
    pair_logits = pair_logits.float()
    pair = functional.cross_entropy(pair_logits, batch.next_sentence_labels, reduction="sum")
    with torch.no_grad():
        sums = torch.stack(
            [
                masked.double(),
                right.double(),
                pair.double(),
                (pair_logits.argmax(-1) == batch.next_sentence_labels).sum().double(),
                *(
                    masked.new_full((), size, dtype=torch.float64)  # by a kernel, not a copy
                    for size in (len(batch.masked_labels), len(pair_logits), len(pair_logits), len(batch.input_ids))
                ),
            ]
        )
    return masked, pair, sums


class Meter:
    """Metrics summed over micro-batches and ranks, and time by phase, since the last read."""

    def __init__(self, device: torch.device, work: Callable[[Batch], float] | None = None, peak: float = 0):
        """`work` counts the operations of learning from a batch; `peak` TFLOP/s could be done."""
        self.device, self.rate = device, 0.0
        self.clock = PhaseTimer(device)
        self._work, self._peak = work, peak
        self._always = torch.tensor([name in WORK for name in SUMS], device=device)
        self.restart()

    def restart(self) -> None:
        """Reset all sums and times."""
        self._sums = torch.zeros(len(SUMS), dtype=torch.float64, device=self.device)
        self._operations, self._began = 0.0, time.perf_counter()
        self.clock.restart()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time of the body, which ends when the device has done its work."""
        synchronize(self.device)  # what is still computed is training
        began = time.perf_counter()
        yield
        self._began += time.perf_counter() - began

    def seconds(self) -> float:
        """Return the time since the last `restart`, without pauses."""
        return time.perf_counter() - self._began

    def add(self, sums: Tensor, finite_only: bool = True) -> None:
        """Add one micro-batch's metrics, without waiting for the device.

        If they are not finite, its update is skipped and only the micro-batch's size counts.
        """
        counted = sums.isfinite().all() | self._always | (not finite_only)
        self._sums += torch.where(counted, sums, 0.0)

    def count(self, batch: Batch) -> None:
        """Count the operations of a micro-batch that is still on the host."""
        if self._work is not None:
            self._operations += self._work(batch)

    def totals(self) -> list[float]:
        """Return the sums of `SUMS` over all ranks since the last `read`; every rank must call it."""
        totals = self._sums.clone()
        dist.all_reduce(totals)
        return cast("list[float]", totals.tolist())

    def carry(self, totals: list[float]) -> None:
        """Add the sums of an earlier start, up to its checkpoint, but for what rates are of."""
        self._sums += torch.tensor(totals, device=self._sums.device) * ~self._always

    def read(self, next_sentence: bool) -> Metrics:
        """Return the metrics over all ranks since the last call; every rank must call it.

        Losses and accuracies are omitted if no update was finite: zero would look like the best
        possible loss.
        """
        sums = dict(zip(SUMS, self.totals(), strict=True))  # waits for the device
        self._sums.zero_()
        seconds = self.seconds()
        masked, sequences = sums["masked"], sums["sequences"]
        figures: Metrics = {}
        if masked:
            figures["loss"] = figures["masked_lm_loss"] = sums["masked_lm_loss"] / masked
            figures["masked_lm_accuracy"] = sums["masked_lm_correct"] / masked
        if masked and sequences and next_sentence:
            figures["next_sentence_loss"] = sums["next_sentence_loss"] / sequences
            figures["next_sentence_accuracy"] = sums["next_sentence_correct"] / sequences
            figures["loss"] += figures["next_sentence_loss"]
        return figures | {
            "learning_rate": self.rate,
            "tokens": sums["tokens"],
            "tokens_per_second": sums["tokens"] / seconds,
            "samples_per_second": sums["samples"] / seconds,
            **self._efficiency(seconds),
        }

    def _efficiency(self, seconds: float) -> Metrics:
        """Return this rank's shares of time, MFU of all ranks and peak memory of any rank."""
        shares = {
            "data_wait_share" if phase == "data" else f"{phase}_share": spent / seconds
            for phase, spent in self.clock.seconds().items()
        }
        if self._work is None:
            return shares
        done = torch.tensor([self._operations, self._peak * 1e12], dtype=torch.float64, device=self.device)
        most = torch.tensor(memory(self.device), device=self.device)
        dist.all_reduce(done)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        operations, peak = done.tolist()
        return {"mfu": operations / seconds / peak, "memory_gib": most.item(), **shares}
