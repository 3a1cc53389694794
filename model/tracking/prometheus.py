"""The newest metrics, served to Prometheus."""

import time

from model.config import TrackingConfig
from model.tracking.sink import Row, Sink
from pipeline.common.prometheus import Exporter


class Prometheus(Sink):
    """The newest figures and times, to be asked for."""

    def __init__(self, config: TrackingConfig, start: int, steps: int):
        self._exporter = Exporter(config.prometheus_host, config.prometheus_port, "tracking.prometheus_port")
        self._set, self._last = self._exporter.set, time.time()  # the last update's end
        self._set("train_steps", steps, "total updates")
        self._set("train_step", start, "updates done")
        self._set("train_start_time_seconds", self._last, "when this process started")

    def checkpoint_saved(self) -> None:
        """Set its time."""
        self._set("train_last_checkpoint_time_seconds", time.time())

    def step_done(self, step: int) -> None:
        """Set the step and its times."""
        now = time.time()
        self._set("train_step", step)
        self._set("train_step_seconds", now - self._last, "that the last update took")
        self._set("train_last_step_time_seconds", now, "when the last update was done")
        self._last = now

    def log_metrics(self, row: Row) -> None:
        """Set the gauges of a row."""
        for key, value in row.figures.items():
            self._set(f"{row.kind}_{key}", value)

    def close(self) -> None:
        """Stop serving."""
        self._exporter.close()
