"""What benchmarks have in common: processor time, which other load hardly affects, tables and ratios."""

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
RATIOS = "BENCHMARK_RATIOS"  # environment: a file that gets each ratio as a line of JSON


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call and its CPU seconds."""
    began = time.process_time()
    result = work()
    return result, time.process_time() - began


def mean(values: Sequence[float]) -> str:
    """Return the mean and the standard deviation."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.3f} ± {spread:.3f}"


def heading(columns: str) -> str:
    """Return the first two lines of a table, whose columns `|` divides; numbers stand to the right."""
    return f"| {columns} |\n|---|{'---:|' * columns.count('|')}"


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON-lines file; no rows if the file does not exist."""
    return list(map(json.loads, path.read_text(encoding="utf-8").splitlines())) if path.exists() else []


def keep(name: str, ratio: float) -> None:
    """Keep how many times as fast ours is as another, for `benchmarks.check`."""
    if path := os.environ.get(RATIOS):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps([name, round(ratio, 3)]) + "\n")
