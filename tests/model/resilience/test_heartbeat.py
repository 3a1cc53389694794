"""The liveness probe of a training container."""

import os
import subprocess
import sys
from pathlib import Path

from model.resilience.heartbeat import Heartbeat


def probe(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "model.resilience.heartbeat", str(folder), "60"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_probe_fails_for_a_rank_that_has_stopped_and_for_no_other(tmp_path: Path) -> None:
    assert probe(tmp_path).returncode == 0, "no rank has begun"
    ranks = [Heartbeat(tmp_path, rank) for rank in range(2)]
    assert probe(tmp_path).returncode == 0
    os.utime(tmp_path / "rank-1", (0, 0))
    told = probe(tmp_path)
    assert told.returncode == 1
    assert "rank-1" in told.stderr
    assert "rank-0" not in told.stderr
    ranks[1].close()
    assert probe(tmp_path).returncode == 0, "one that is done owes no sign"
