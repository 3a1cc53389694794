"""The benchmarks are commands that work; what they print is for people."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_step_benchmark_measures_every_peer_on_the_same_tokens(root: Path, tmp_path: Path) -> None:
    options = ["--size", "tiny", "--batch", "4", "--batches", "1", "--passes", "1"]
    peers = ["ours", "hf", "textbook", "engine"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.train", *options, "--peers", *peers, "--out", str(tmp_path / "rows.jsonl")],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["peer"] for row in rows] == peers
    assert len({(row["tokens"], row["flops"]) for row in rows}) == 1
    assert all(row["seconds"] > 0 and row["recompiled"] == 0 for row in rows)
