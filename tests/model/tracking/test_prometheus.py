"""A real Prometheus scrapes a real training, and finds what the alerts and the board ask for."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from pipeline.common.ports import free_port
from tests.model.conftest import SMALL

MONITORING = Path("k8s", "components", "monitoring")
ASKED = re.compile(r"\bbert_(?:train|validation)_\w+")


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[tuple[str, int]]:
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
    process = subprocess.Popen(
        [
            program,
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/db",
            f"--web.listen-address=127.0.0.1:{own}",
            "--log.level=error",
        ],
        stdin=subprocess.DEVNULL,
    )
    yield f"http://127.0.0.1:{own}", scraped
    process.kill()
    process.wait()


def query(address: str, expression: str) -> list[dict[str, Any]]:
    """What Prometheus answers; nothing while it starts."""
    try:
        answer = requests.get(f"{address}/api/v1/query", {"query": expression}, timeout=30)
    except requests.ConnectionError:
        return []
    found: list[dict[str, Any]] = answer.json().get("data", {}).get("result", [])
    return found


@pytest.mark.slow
def test_prometheus_finds_what_alerts_and_board_ask_for(
    root: Path, work: Path, tmp_path: Path, prometheus: tuple[str, int]
) -> None:
    address, port = prometheus
    settings = [
        *SMALL,
        f"workdir={work}",
        f"out={tmp_path}/train",
        f"tracking.prometheus_port={port}",
        "steps=100000",
        "save_every=20",
        "evaluate_every=20",
    ]
    training = subprocess.Popen(
        [sys.executable, "model/train.py", *settings],
        cwd=root,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    asked = {
        name for path in ("alerts.yaml", "board.json") for name in ASKED.findall((root / MONITORING / path).read_text())
    }
    assert {"bert_train_loss", "bert_train_last_checkpoint_time_seconds"} < asked
    found: set[str] = set()
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
