"""Time of a training step by phase."""

import time
from collections.abc import Iterable

import torch

PHASES = ("data", "forward", "backward", "step")


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
        self._marks: list[tuple[str | None, float | torch.cuda.Event]] = []
        self.skip()

    def skip(self) -> None:
        """Assign the time since the last mark to no phase."""
        self._mark(None)

    def lap(self, phase: str) -> None:
        """Assign the time since the last mark to `phase`."""
        self._mark(phase)

    def _mark(self, phase: str | None) -> None:
        if self._events:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._marks.append((phase, event))
        else:
            self._marks.append((phase, time.perf_counter()))

    def seconds(self, phases: Iterable[str] = PHASES) -> dict[str, float]:
        """Return the seconds of each phase since `restart`; waits for the device."""
        total = dict.fromkeys(phases, 0.0)
        if self._events:
            torch.cuda.synchronize()
        for (_, before), (phase, now) in zip(self._marks, self._marks[1:], strict=False):
            if phase is not None:
                total[phase] += between(before, now)
        return total


def between(before: float | torch.cuda.Event, now: float | torch.cuda.Event) -> float:
    """Return the seconds from one mark to another."""
    if isinstance(before, float) and isinstance(now, float):
        return now - before
    assert isinstance(before, torch.cuda.Event)
    assert isinstance(now, torch.cuda.Event)
    return float(before.elapsed_time(now)) / 1000
