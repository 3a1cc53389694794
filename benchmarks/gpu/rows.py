"""What a GPU run writes: one JSON line for each measurement as it is made, and a table of all."""

import json
import time
from pathlib import Path
from typing import Any

from benchmarks.shared import read

LIMIT = 500.0  # seconds, after which a part begins no further measurement


class Rows:
    """The rows of one part."""

    def __init__(self, out: Path, part: str, limit: float = LIMIT):
        """Begin a part; its rows of an earlier run are taken away."""
        out.mkdir(parents=True, exist_ok=True)
        self.path, self._part = out / "rows.jsonl", part
        self._ends = time.monotonic() + limit
        kept = [row for row in read(self.path) if row["part"] != part]
        self.path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")

    @property
    def late(self) -> bool:
        """Whether the part's time is over."""
        return time.monotonic() > self._ends

    @property
    def left(self) -> float:
        """Seconds that the part has left."""
        return self._ends - time.monotonic()

    def add(self, name: str, **figures: Any) -> None:
        """Write a measurement."""
        row = {"part": self._part, "name": name, **figures}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, default=str) + "\n")
        print(f"{self._part} {name}: {shown(row)}", flush=True)

    def skip(self, name: str, reason: str) -> None:
        """Write why something was not measured."""
        self.add(name, skipped=reason)

    def attempt(self, name: str, measure: Any, *given: Any) -> None:
        """Write what `measure` finds; an error is a row too, and the part continues."""
        if self.late:
            self.skip(name, "the part's time is over")
            return
        began = time.monotonic()
        try:
            figures = measure(*given)
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            self.add(name, ok=False, error=f"{type(error).__name__}: {first}")
            return
        self.add(name, **figures, took=round(time.monotonic() - began, 2))


def shown(row: dict[str, Any]) -> str:
    """Return the figures of a row as text."""
    kept = {key: value for key, value in row.items() if key not in ("part", "name")}
    return ", ".join(f"{key} {figure(value)}" for key, value in kept.items())


def figure(value: Any) -> str:
    """Return a figure as text."""
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table of all rows, failures first."""
    ordered = sorted(rows, key=lambda row: (row["part"], row.get("ok", True)))
    lines = ["| part | measurement | |", "|---|---|---|"]
    lines += [f"| {row['part']} | {row['name']} | {shown(row)} |" for row in ordered]
    return "\n".join(lines) + "\n"
