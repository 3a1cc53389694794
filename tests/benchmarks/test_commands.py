"""The benchmarks are commands that work; what they print is for people."""

import json
import re
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


def commands(root: Path) -> list[str]:
    return [
        path.relative_to(root).as_posix()
        for path in (root / "benchmarks").rglob("*.py")
        if "argparse" in path.read_text()
    ]


@pytest.mark.slow
def test_every_benchmark_starts(root: Path) -> None:
    found = commands(root)
    named = re.findall(r"python -m (benchmarks[\w.]*)", (root / "docs" / "benchmarks.md").read_text())
    modules = {path.removesuffix(".py").removesuffix("/__main__").replace("/", ".") for path in found}
    assert set(named) <= modules
    for module in sorted(modules):
        done = forked.module(module, "--help")
        assert done.returncode == 0, (module, done.stderr)


@pytest.mark.slow
def test_the_loader_benchmark_measures_each_kind_of_batch() -> None:
    done = forked.fresh("-m", "benchmarks.data.loader", "--rows", "4000", "--shards", "2", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    assert "two folders by weight" in done.stdout
