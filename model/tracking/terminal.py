"""A training's bar and lines."""

import sys

from model.config import Metrics
from model.tracking.sink import Row, Sink, tables
from pipeline.console.bars import Bar
from pipeline.console.formatting import duration


class Terminal(Sink):
    """A bar; where no terminal is, lines as well."""

    def __init__(self, start: int, steps: int):
        self._steps, self._bar = steps, Bar("train", steps, "steps", start)

    def step_done(self, step: int) -> None:
        """Move the bar."""
        self._bar.move(step)

    def log_metrics(self, row: Row) -> None:
        """Show metrics of training, on the bar or in a line."""
        if row.kind == "train":
            self._bar.move(row.step, one_line(row.figures))
            if not sys.stderr.isatty():
                left = duration(row.left)
                print(f"step {row.step:,}/{self._steps:,}, {left} left: {one_line(row.figures)}", flush=True)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()


def one_line(figures: Metrics) -> str:
    """Format the metrics of the progress line."""
    return ", ".join(shown.format(figures[key]) for key, shown in tables()["line"].items() if key in figures)
