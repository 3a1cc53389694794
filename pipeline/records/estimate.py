"""How long work will take and how much room it needs, said before it starts; and measured rates."""

import contextlib
import json
from pathlib import Path
from typing import NamedTuple

from pipeline.console.formatting import duration
from pipeline.storage import strict_json

RATES = "rates.json"  # in a run's folder: what its last stages did per second on this machine
WORTH = 10.0  # seconds from which an estimate is worth a line
MINUTE, HOUR = 60.0, 3600.0


class Estimate(NamedTuple):
    """What a stage will take."""

    seconds: float | None  # None: not known, as on a device that was not measured
    disk: float = 0.0  # bytes at most, while it runs
    memory: float = 0.0  # bytes, of all its processes
    about: str = ""  # how much work it is
    gpu_hours: float | None = None  # on the device that was named

    def __str__(self) -> str:
        """Return it as people say it: `about 14 min (4,500 steps), 0.1 GB on disk`."""
        parts = [] if self.seconds is None else [f"about {rounded(self.seconds)}"]
        parts = [" ".join([*parts, f"({self.about})"])] if self.about else parts
        parts += [] if self.gpu_hours is None else [f"about {hours(self.gpu_hours)}"]
        parts += [f"{size(self.disk)} on disk"] if self.disk else []
        parts += [f"{size(self.memory)} of memory"] if self.memory else []
        return ", ".join(parts)

    @property
    def worth_saying(self) -> bool:
        """Whether the work is long, or of unknown length."""
        return self.seconds is None or self.seconds >= WORTH


def rounded(seconds: float) -> str:
    """Return a time without the digits that an estimate does not have: `40 s`, `14 min`, `5 h`."""
    if seconds < MINUTE:
        return f"{max(1, round(seconds, -1 if seconds >= 10 else 0)):.0f} s"
    if seconds < HOUR:
        return f"{round(seconds / MINUTE)} min"
    return f"{seconds / HOUR:,.0f} h" if seconds > 10 * HOUR else duration(seconds)


def hours(count: float) -> str:
    """Return GPU hours without the digits that an estimate does not have: `0.3 GPU hours`."""
    return f"{count:,.0f} GPU hours" if count >= 10 else f"{count:.2g} GPU hours"


def size(count: float) -> str:
    """Return bytes in the unit that people would choose: `45 MB`, `1.3 GB`."""
    if count < 1e8:
        return f"{max(int(count > 0), round(count / 1e6))} MB"
    return f"{count / 1e9:,.1f} GB"


def rate_of(workdir: Path | str, name: str) -> float | None:
    """Return what the last stage of this kind did per second in this run's folder; None if none."""
    value = strict_json.own(Path(workdir, RATES)).get(name)
    return float(value) if isinstance(value, int | float) and value > 0 else None


def remember_rate(workdir: Path | str, name: str, value: float) -> None:
    """Keep what a stage did per second; where nothing can be written, nothing is kept."""
    path = Path(workdir, RATES)
    with contextlib.suppress(OSError):  # half of it is as good as none
        path.write_text(json.dumps(strict_json.own(path) | {name: value}) + "\n", encoding="utf-8")
