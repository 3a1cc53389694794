"""The benchmarks are commands that work; what they print is for people."""

import json
from pathlib import Path

import pytest

from tests.support import forked


@pytest.mark.slow
def test_the_step_benchmark_measures_every_peer_on_the_same_tokens(tmp_path: Path) -> None:
    options = ["--size", "tiny", "--batch", "4", "--batches", "1", "--passes", "1"]
    peers = ["ours", "hf", "textbook", "engine"]
    done = forked.fresh("-m", "benchmarks.model.train", *options, "--peers", *peers, "--out", tmp_path / "rows.jsonl")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["peer"] for row in rows] == peers
    assert len({(row["tokens"], row["flops"]) for row in rows}) == 1
    assert all(row["seconds"] > 0 and row["recompiled"] == 0 for row in rows)
