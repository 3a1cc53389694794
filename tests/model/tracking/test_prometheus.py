"""A real Prometheus scrapes a real training, and finds what the alerts and the board ask for."""

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import kubeflow_trainer_api.models as kubeflow
import pytest
import requests

from model.config import TrackingConfig
from model.tracking.kubeflow import TRAINER_AUTHORITY, TRAINER_TOKEN, TRAINER_URL
from model.tracking.tracker import Tracker
from pipeline.common.ports import free_port
from tests.model.conftest import SMALL
from tests.support.certificates import certify

MONITORING = Path("k8s", "components", "monitoring")
ASKED = re.compile(r"\bbert_(?:train|validation)_\w+")


@pytest.fixture
def prometheus(tmp_path):
    """A Prometheus that scrapes a port twice a second; its address and that port."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not on this machine (Debian's package prometheus)")
    scraped, own = free_port(), free_port()
    settings = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
        "scrape_configs": [{"job_name": "train", "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(settings))
    places = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/db", "--log.level=error"]
    words = [program, *places, f"--web.listen-address=127.0.0.1:{own}"]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    yield f"http://127.0.0.1:{own}", scraped
    process.kill()
    process.wait()


def query(address, expression):
    """What Prometheus answers; nothing while it starts."""
    try:
        answer = requests.get(f"{address}/api/v1/query", {"query": expression}, timeout=30)
    except requests.ConnectionError:
        return []
    found = answer.json().get("data", {}).get("result", [])
    return found


@pytest.mark.slow
def test_prometheus_finds_what_alerts_and_board_ask_for(root, work, tmp_path, prometheus):
    address, port = prometheus
    settings = [*SMALL, f"workdir={work}", f"out={tmp_path}/train", f"tracking.prometheus_port={port}", "steps=100000"]
    settings += ["save_every=20", "evaluate_every=20"]
    words, env = [sys.executable, "model/train.py", *settings], os.environ | {"OMP_NUM_THREADS": "1"}
    training = subprocess.Popen(words, cwd=root, stdout=subprocess.DEVNULL, env=env)
    asked = {
        name for path in ("alerts.yaml", "board.json") for name in ASKED.findall((root / MONITORING / path).read_text())
    }
    assert {"bert_train_loss", "bert_train_last_checkpoint_time_seconds"} < asked
    found = set()
    try:
        until = time.monotonic() + 240
        while not asked <= found:
            assert training.poll() is None, "training ended"
            assert time.monotonic() < until, asked - found
            found = {row["metric"]["__name__"] for row in query(address, '{__name__=~"bert_.*"}')}
            time.sleep(0.5)
        steps = [float(row["value"][1]) for row in query(address, "bert_train_steps")]
    finally:
        training.kill()
        training.wait()
    assert steps == [100000.0]


# A training's progress arrives at Kubeflow Trainer's server in the form of its own models.


class Server(ThreadingHTTPServer):
    """Trainer's server of statuses, by TLS with a certificate of its own authority."""

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []
        self.authority, key = certify(folder, "127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.authority, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server_port}/trainjobs/bert/train/status"


class Handler(BaseHTTPRequestHandler):
    """Keep what is sent."""

    server: Server

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers["Authorization"], body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words):
        """Print nothing."""


@pytest.fixture
def server(tmp_path, monkeypatch):
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


def train(out):
    """Log three of four steps."""
    tracker = Tracker(TrackingConfig(name="none"), out, 0, 0, 4, {})
    for step in (1, 2, 3):
        tracker.log_metrics("train", step, {"loss": 8 / step, "tokens_per_second": 1e6})
    tracker.close()


def test_the_newest_progress_arrives(server, tmp_path):
    train(tmp_path)
    path, authorization, body = server.asked[-1]
    assert (path, authorization) == ("/trainjobs/bert/train/status", "Bearer abc")
    request = kubeflow.TrainerV1alpha1UpdateTrainJobStatusRequest.from_dict(body)
    status = request.trainer_status
    assert request.to_dict()["trainerStatus"].keys() == body["trainerStatus"].keys()
    assert status.progress_percentage == 75
    figures = {one.name: float(one.value) for one in status.metrics or []}
    assert figures == {"loss": pytest.approx(8 / 3, rel=1e-5), "tokens_per_second": 1e6}


def test_a_server_that_refuses_is_one_warning(server, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(TRAINER_AUTHORITY)  # its certificate is nobody's then
    train(tmp_path)
    assert (server.asked, capsys.readouterr().out.count("warning: ")) == ([], 1)


def test_a_training_elsewhere_starts_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv(TRAINER_URL, raising=False)
    before = threading.active_count()
    train(tmp_path)
    assert threading.active_count() == before
