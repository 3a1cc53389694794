"""The liveness probe of a stage's container."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.common import heartbeat
from pipeline.common.heartbeat import Heartbeat
from pipeline.errors import InputError
from tests.support.refusals import refused


def probe(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline.common.heartbeat", str(folder), "60"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_probe_fails_for_a_rank_that_has_stopped_and_for_no_other(tmp_path: Path) -> None:
    assert probe(tmp_path).returncode == 0, "no rank has begun"
    ranks = [Heartbeat(tmp_path, f"rank-{rank}") for rank in range(2)]
    assert probe(tmp_path).returncode == 0
    os.utime(tmp_path / "rank-1", (0, 0))
    told = probe(tmp_path)
    assert told.returncode == 1
    assert "rank-1" in told.stderr
    assert "rank-0" not in told.stderr
    ranks[1].close()
    assert probe(tmp_path).returncode == 0, "one that is done owes no sign"


def test_a_file_that_goes_while_the_probe_looks_is_of_a_process_that_is_done(tmp_path: Path) -> None:
    (tmp_path / "rank-0").symlink_to(tmp_path / "gone")  # listed, and then not found
    (tmp_path / "rank-1").touch()
    os.utime(tmp_path / "rank-1", (0, 0))
    assert heartbeat.stale(tmp_path, 60) == ["rank-1"]


def test_a_stage_has_a_heartbeat_while_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with heartbeat.during("prepare") as nowhere:
        nowhere.beat()
    monkeypatch.setenv(heartbeat.FOLDER, str(tmp_path))
    with heartbeat.during("prepare") as kept:
        kept.beat()
        assert [path.name for path in tmp_path.iterdir()] == ["prepare"]
        os.utime(tmp_path / "prepare", (0, 0))
        assert heartbeat.stale(tmp_path, 60) == ["prepare"]
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refused(InputError, key="heartbeat", value=str(tmp_path / "file")):
        heartbeat.Heartbeat(tmp_path / "file", "rank-0")
