"""The progress of a TrainJob, sent to Kubeflow Trainer."""

import datetime
import os
import threading
from pathlib import Path

from model.config import Json
from model.tracking.sink import Row, Sink

TRAINER_URL = "KUBEFLOW_TRAINER_SERVER_URL"
TRAINER_AUTHORITY = "KUBEFLOW_TRAINER_SERVER_CA_CERT"  # a file
TRAINER_TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # a file, which Kubernetes renews
TRAINER_ANSWER = 5.0  # seconds for a request
TRAINER_EVERY = 5.0  # seconds between two requests


class TrainJobStatus(Sink):
    """Sender of the newest progress to Kubeflow Trainer, which shows it in the TrainJob's status.

    Trainer sets the environment of a TrainJob's pods if its feature TrainJobStatus is on. Requests
    have a thread of their own: a slow server delays no update.
    """

    def __init__(self, url: str, steps: int):
        self._url, self._steps = url, steps
        self._newest: Json | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        self._thread.start()

    def log_metrics(self, row: Row) -> None:
        """Pass on progress; one that was not sent yet is replaced."""
        if row.kind == "train":
            self._newest = {
                "lastUpdatedTime": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "progressPercentage": 100 * row.step // max(self._steps, 1),
                "estimatedRemainingSeconds": int(row.left),
                "metrics": [{"name": name, "value": f"{value:g}"} for name, value in row.figures.items()],
            }

    def close(self) -> None:
        """Send what waits, for a few seconds at most."""
        self._closing.set()
        self._thread.join(2 * TRAINER_ANSWER)

    def _send_all(self) -> None:
        sent, failed, closing = None, False, False
        while not closing:
            closing = self._closing.wait(TRAINER_EVERY)
            status = self._newest
            if status is sent:
                continue
            sent = status
            try:
                self._send(status)
            except (OSError, ValueError) as error:  # no failure of Trainer's may stop training
                if not failed:
                    print(f"warning: progress of the TrainJob is not shown ({error})", flush=True)
                failed = True

    def _send(self, status: Json | None) -> None:
        import requests  # takes 0.1 s

        token = Path(os.environ.get(TRAINER_TOKEN, "")).read_text().strip()
        answer = requests.post(
            self._url,
            json={"trainerStatus": status},
            headers={"Authorization": f"Bearer {token}"},
            timeout=TRAINER_ANSWER,
            verify=os.environ.get(TRAINER_AUTHORITY, True),
        )
        answer.raise_for_status()
