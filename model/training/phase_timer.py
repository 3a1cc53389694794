"""Where the time of a training step goes."""

import time
from collections.abc import Iterable

import torch

PHASES = ("data", "forward", "backward", "step")


class PhaseTimer:
    """Seconds by phase: each lap is the time since the one before.

    On a CUDA device a lap is what the device did, and marking it does not wait for the device; the
    lap of `data` is then how long the device stood idle for want of a batch.
    """

    def __init__(self, device: torch.device):
        self._events = device.type == "cuda"
        self.restart()

    def restart(self) -> None:
        """Begin anew."""
        self._marks: list[tuple[str | None, float | torch.cuda.Event]] = []
        self.skip()

    def skip(self) -> None:
        """The time until now belongs to no phase."""
        self._mark(None)

    def lap(self, phase: str) -> None:
        """The time since the last mark belongs to `phase`."""
        self._mark(phase)

    def _mark(self, phase: str | None) -> None:
        if self._events:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._marks.append((phase, event))
        else:
            self._marks.append((phase, time.perf_counter()))

    def seconds(self, phases: Iterable[str] = PHASES) -> dict[str, float]:
        """Of each phase since `restart`; waits for the device."""
        total = dict.fromkeys(phases, 0.0)
        if self._events:
            torch.cuda.synchronize()
        for (_, before), (phase, now) in zip(self._marks, self._marks[1:], strict=False):
            if phase is not None:
                total[phase] += between(before, now)
        return total


def between(before: float | torch.cuda.Event, now: float | torch.cuda.Event) -> float:
    """Seconds from one mark to another."""
    if isinstance(before, float) and isinstance(now, float):
        return now - before
    assert isinstance(before, torch.cuda.Event)
    assert isinstance(now, torch.cuda.Event)
    return float(before.elapsed_time(now)) / 1000
