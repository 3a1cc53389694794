"""Report of a training's progress to Kubeflow Trainer, which shows it in the TrainJob's status.

Trainer sets the environment of a TrainJob's pods if its feature TrainJobStatus is on. Requests have
a thread of their own, so that a slow server cannot delay an update.
"""

import contextlib
import datetime
import json
import os
import queue
import ssl
import threading
import urllib.request
from pathlib import Path
from typing import Any

URL = "KUBEFLOW_TRAINER_SERVER_URL"
AUTHORITY = "KUBEFLOW_TRAINER_SERVER_CA_CERT"  # a file
TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # a file, which Kubernetes renews
ANSWER = 5.0  # seconds for a request
EVERY = 5.0  # seconds between two requests


class TrainJobStatus:
    """Sender of the newest progress; without Trainer's environment every method is a no-op."""

    def __init__(self) -> None:
        self.url = os.environ.get(URL)
        if self.url is None:
            return
        self._waiting: queue.Queue[dict[str, Any]] = queue.Queue(maxsize=1)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        self._thread.start()

    def report(self, step: int, steps: int, seconds_left: float, figures: dict[str, float]) -> None:
        """Pass on the newest progress; one that was not sent yet is replaced."""
        if self.url is None:
            return
        status = {
            "lastUpdatedTime": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "progressPercentage": 100 * step // max(steps, 1),
            "estimatedRemainingSeconds": int(seconds_left),
            "metrics": [{"name": name, "value": f"{value:g}"} for name, value in figures.items()],
        }
        while True:
            try:
                self._waiting.put_nowait(status)
                return
            except queue.Full:
                with contextlib.suppress(queue.Empty):
                    self._waiting.get_nowait()

    def close(self) -> None:
        """Send what waits, for a few seconds at most."""
        if self.url is not None:
            self._closing.set()
            self._thread.join(2 * ANSWER)

    def _send_all(self) -> None:
        failed = False
        while True:
            try:
                status = self._waiting.get(timeout=0.2)
            except queue.Empty:
                if self._closing.is_set():
                    return
                continue
            try:
                self._send(status)
            except (OSError, ValueError) as error:  # no failure of Trainer's may stop training
                if not failed:
                    print(f"warning: progress of the TrainJob is not shown ({error})", flush=True)
                failed = True
            self._closing.wait(EVERY)

    def _send(self, status: dict[str, Any]) -> None:
        assert self.url is not None
        token = Path(os.environ.get(TOKEN, "")).read_text().strip()
        request = urllib.request.Request(
            self.url,
            data=json.dumps({"trainerStatus": status}).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            method="POST",
        )
        trusted = ssl.create_default_context(cafile=os.environ.get(AUTHORITY))
        with urllib.request.urlopen(request, timeout=ANSWER, context=trusted):
            pass
