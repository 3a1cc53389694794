"""All trackers of a training: metrics.jsonl (authoritative), Weights & Biases, the terminal and more."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from model.config import Json, TrackingConfig
from model.tracking.kubeflow import TRAINER_URL, TrainJobStatus
from model.tracking.metrics_file import MetricsFile
from model.tracking.prometheus import Prometheus
from model.tracking.sink import Row, Sink
from model.tracking.terminal import Terminal
from model.tracking.wandb import WeightsAndBiases, open_wandb
from pipeline.console import terminal


class Tracker:
    """The sinks of rank 0; other ranks have none."""

    def __init__(self, config: TrackingConfig, out: Path, rank: int, start: int, steps: int, settings: Json):
        self._start, self._steps, self._began = start, steps, time.monotonic()
        self.sinks: list[Sink] = []
        if rank == 0:
            self.sinks += [
                MetricsFile(out, start),
                WeightsAndBiases(open_wandb(config, out, start, settings), out),
                *([TrainJobStatus(os.environ[TRAINER_URL], steps)] if TRAINER_URL in os.environ else []),
                Prometheus(config, start, steps),
                Terminal(start, steps),
            ]

    def log_metrics(self, kind: str, step: int, figures: Mapping[str, float]) -> None:
        """Pass metrics to all sinks; `step` counts updates from 1, `kind` is train or validation."""
        spent = (time.monotonic() - self._began) / max(step - self._start, 1)
        row = Row(kind, step, dict(figures), (self._steps - step) * spent)
        for sink in self.sinks:
            sink.log_metrics(row)

    def step_done(self, step: int) -> None:
        """Tell all sinks of an update."""
        for sink in self.sinks:
            sink.step_done(step)

    def before_save(self) -> None:
        """Tell all sinks that a checkpoint is about to be written."""
        for sink in self.sinks:
            sink.before_save()

    def checkpoint_saved(self) -> None:
        """Tell all sinks that it was."""
        for sink in self.sinks:
            sink.checkpoint_saved()

    def alert(self, title: str, text: str) -> None:
        """Pass an alert to all sinks."""
        for sink in self.sinks:
            sink.alert(title, text)

    def say(self, text: str) -> None:
        """Print a line on rank 0."""
        if self.sinks:
            terminal.say(text)

    def close(self) -> None:
        """Close all sinks, the bar first."""
        for sink in reversed(self.sinks):
            sink.close()
