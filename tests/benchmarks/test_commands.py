"""The benchmarks are commands that work; what they print is for people."""

import json
import re

import pytest

from benchmarks.shared import read
from tests.model import served_folders
from tests.support import forked


@pytest.mark.slow
def test_the_step_benchmark_measures_every_peer_on_the_same_tokens(tmp_path):
    options = ["--size", "tiny", "--batch", "4", "--batches", "1", "--passes", "1"]
    peers = ["ours", "hf", "textbook", "engine"]
    done = forked.fresh("-m", "benchmarks.model.train", *options, "--peers", *peers, "--out", tmp_path / "rows.jsonl")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["peer"] for row in rows] == peers
    assert len({(row["tokens"], row["flops"]) for row in rows}) == 1
    assert all(row["seconds"] > 0 and row["recompiled"] == 0 for row in rows)


def commands(root):
    return [
        path.relative_to(root).as_posix()
        for path in (root / "benchmarks").rglob("*.py")
        if "argparse" in path.read_text()
    ]


@pytest.mark.slow
def test_every_benchmark_starts(root):
    found = commands(root)
    named = re.findall(r"python -m (benchmarks[\w.]*)", (root / "docs" / "benchmarks.md").read_text())
    modules = {path.removesuffix(".py").removesuffix("/__main__").replace("/", ".") for path in found}
    assert set(named) <= modules
    for module in sorted(modules):
        done = forked.module(module, "--help")
        assert done.returncode == 0, (module, done.stderr)


# The three parts that a rented GPU runs, whole and tiny on a CPU.


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_parts_run_on_a_cpu(tmp_path):
    line = "from tests.model.encoders import flash_on_cpu; from benchmarks.gpu import __main__ as gpu; gpu.main()"
    done = forked.fresh("-c", line, "A", "B", "C", "--small", "--out", tmp_path)
    found = read(tmp_path / "rows.jsonl")
    assert done.returncode == 0, json.dumps([row for row in found if row.get("ok") is False])
    assert {row["part"] for row in found} == {"A", "B", "C"}
    names = {row["name"] for row in found}
    assert {"training, killed", "training, resumed", "curve"} <= names
    assert {f"engine, {way}" for way in ("zero0", "zero1", "lamb", "resumed")} <= names
    assert all(row["mfu"] > 0 for row in found if row["name"].startswith("step") and "mfu" in row)
    assert (tmp_path / "summary.md").read_text().startswith("| part | measurement |")


@pytest.mark.slow
def test_the_inference_benchmark_compares_the_vectors_of_every_peer(tmp_path):
    folder = served_folders.made(tmp_path, "bert", served_folders.pretrained)
    (tmp_path / "lines.txt").write_text("the a b c\n" * 20)
    options = ["--lengths", "16", "--lines", "20", "--passes", "1"]
    done = forked.fresh(
        "-m", "benchmarks.model.inference", "--pretrained", folder, "--text", tmp_path / "lines.txt", *options
    )
    assert done.returncode == 0, done.stderr
    apart = dict(re.findall(r"([a-z][a-z ]+) (\d+e[-+]\d+)", done.stdout.partition("lines, vectors")[2]))
    assert max(float(apart[name]) for name in ("onnxruntime", "transformers eager", "transformers sdpa")) < 1e-5
    assert "20 lines" in done.stdout
