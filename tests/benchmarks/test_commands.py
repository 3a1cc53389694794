"""The benchmarks are commands that work; what they print is for people."""

import json
import re

import pytest

from benchmarks.gpu.rows import Rows, table
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


@pytest.mark.slow
def test_the_loader_benchmark_measures_each_kind_of_batch():
    done = forked.fresh("-m", "benchmarks.data.loader", "--rows", "4000", "--shards", "2", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    assert "two folders by weight" in done.stdout


# The three parts that a rented GPU runs, whole and tiny on a CPU.


BARE = """
import sys
for name in ("omegaconf", "hydra", "deepspeed", "pyarrow", "tokenizers", "transformers", "yaml"):
    sys.modules[name] = None  # as if it were not installed
sys.argv[1:] = ["C", "--small", "--out", sys.argv[1]]
from benchmarks.gpu import __main__ as gpu
gpu.main()
"""


def test_a_row_is_there_as_soon_as_it_is_made_and_a_failure_ends_nothing(tmp_path):
    def breaks():
        raise ValueError("first line\nsecond line")

    rows = Rows(tmp_path, "A", limit=60)
    rows.attempt("good", lambda: {"distance": 0.25})
    assert read(tmp_path / "rows.jsonl")[0]["distance"] == 0.25
    rows.attempt("bad", breaks)
    again = Rows(tmp_path, "B", limit=0)
    again.attempt("late", breaks)
    found = {row["name"]: row for row in read(tmp_path / "rows.jsonl")}
    assert found["bad"]["error"] == "ValueError: first line"
    assert "over" in found["late"]["skipped"]
    assert table(list(found.values())).splitlines()[2].startswith("| A | bad |")
    Rows(tmp_path, "A")
    assert [row["part"] for row in read(tmp_path / "rows.jsonl")] == ["B"]


@pytest.mark.slow
def test_where_only_pytorch_is_installed_it_says_what_is_missing(tmp_path):
    done = forked.fresh("-c", BARE, tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = [row for row in read(tmp_path / "rows.jsonl") if "skipped" in row]
    assert "deepspeed" in row["skipped"]


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
