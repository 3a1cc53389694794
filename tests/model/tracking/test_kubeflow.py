"""A training's progress arrives at Kubeflow Trainer's server in the form of its own models."""

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import kubeflow_trainer_api.models as kubeflow
import pytest

from model.config import TrackingConfig
from model.tracking.kubeflow import TRAINER_AUTHORITY, TRAINER_TOKEN, TRAINER_URL
from model.tracking.tracker import Tracker
from tests.support.certificates import certify


class Server(ThreadingHTTPServer):
    """Trainer's server of statuses, by TLS with a certificate of its own authority."""

    def __init__(self, folder: Path):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.authority, key = certify(folder, "127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.authority, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server_port}/trainjobs/bert/train/status"


class Handler(BaseHTTPRequestHandler):
    """Keep what is sent."""

    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers["Authorization"], body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Print nothing."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The server, and what Trainer gives a pod to reach it."""
    made = Server(tmp_path)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    (tmp_path / "token").write_text("abc\n")
    monkeypatch.setenv(TRAINER_URL, made.url)
    monkeypatch.setenv(TRAINER_AUTHORITY, str(made.authority))
    monkeypatch.setenv(TRAINER_TOKEN, str(tmp_path / "token"))
    yield made
    made.shutdown()
    made.server_close()


def train(out: Path) -> None:
    """Log three of four steps."""
    tracker = Tracker(TrackingConfig(name="none"), out, 0, 0, 4, {})
    for step in (1, 2, 3):
        tracker.log_metrics("train", step, {"loss": 8 / step, "tokens_per_second": 1e6})
    tracker.close()


def test_the_newest_progress_arrives(server: Server, tmp_path: Path) -> None:
    train(tmp_path)
    path, authorization, body = server.asked[-1]
    assert (path, authorization) == ("/trainjobs/bert/train/status", "Bearer abc")
    request = kubeflow.TrainerV1alpha1UpdateTrainJobStatusRequest.from_dict(body)
    assert request is not None
    status = request.trainer_status
    assert request.to_dict()["trainerStatus"].keys() == body["trainerStatus"].keys()
    assert status is not None
    assert status.progress_percentage == 75
    assert status.estimated_remaining_seconds is not None
    figures = {one.name: float(one.value) for one in status.metrics or []}
    assert figures == {"loss": pytest.approx(8 / 3, rel=1e-5), "tokens_per_second": 1e6}


def test_a_server_that_refuses_is_one_warning(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(TRAINER_AUTHORITY)  # its certificate is nobody's then
    train(tmp_path)
    assert server.asked == []
    assert capsys.readouterr().out.count("warning: ") == 1


def test_a_training_elsewhere_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRAINER_URL, raising=False)
    before = threading.active_count()
    train(tmp_path)
    assert threading.active_count() == before
