"""The three parts that a rented GPU runs, whole and tiny on a CPU."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu.rows import Rows, table
from benchmarks.shared import read
from tests.support import forked

BARE = """
import sys
for name in ("omegaconf", "hydra", "deepspeed", "pyarrow", "tokenizers", "transformers", "yaml"):
    sys.modules[name] = None  # as if it were not installed
sys.argv[1:] = ["C", "--small", "--out", sys.argv[1]]
from benchmarks.gpu import __main__ as gpu
gpu.main()
"""


def test_a_row_is_there_as_soon_as_it_is_made_and_a_failure_ends_nothing(tmp_path: Path) -> None:
    def breaks() -> dict[str, float]:
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
def test_where_only_pytorch_is_installed_it_says_what_is_missing(tmp_path: Path) -> None:
    done = forked.fresh("-c", BARE, tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = [row for row in read(tmp_path / "rows.jsonl") if "skipped" in row]
    assert "deepspeed" in row["skipped"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_parts_run_on_a_cpu(tmp_path: Path) -> None:
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
