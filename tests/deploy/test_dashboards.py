"""The dashboards are built and validated by W&B's own library, without a network."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.dashboards import SECTIONS, report, workspace
from model.training.tracking import RUN_ID
from pipeline.common.errors import InputError
from pipeline.common.manifest import Manifest

DONE = {
    "documents": {"read": 106, "written": 100, "short": 6},
    "totals": {"tokens": 6400, "train": 100},
    "lengths": {"32": 50, "64": 50},
    "sequence_length": 64,
}
SCORES = {
    "task": "rte", "title": "RTE", "sample": False, "metric": "accuracy", "score": 0.65,
    "baseline": 0.53, "majority": 0.527,
}  # fmt: skip


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A run's folder, as the stages leave it."""
    for name in ("prepare", "train", "evaluate-rte"):
        (tmp_path / name).mkdir()
    (tmp_path / "train" / RUN_ID).write_text("12ab34cd")
    (tmp_path / "evaluate-rte" / "results.json").write_text(json.dumps(SCORES))
    values = {
        "stage": "prepare", "fingerprint": "f", "version": 1, "config": {}, "inputs": {},
        "files": {}, "figures": DONE, "summary": "106 documents", "seconds": 1.0, "finished": "",
    }  # fmt: skip
    names = {field.name for field in dataclasses.fields(Manifest)}
    Manifest(**{k: v for k, v in values.items() if k in names}).write(tmp_path / "prepare")
    return tmp_path


def test_the_workspace_has_a_panel_for_everything_that_is_asked(work: Path) -> None:
    text = json.dumps(workspace("me", "bert")._to_model().model_dump(mode="json", by_alias=True))
    for name in ("loss", "masked_lm_accuracy", "tokens_per_second", "mfu", "gradient_norm"):
        assert f"train/{name}" in text
    assert "train/data_wait_share" in text
    assert re.search(r"system.*gpu.*temp", text)


def test_the_report_holds_the_corpus_the_scores_and_the_run(work: Path) -> None:
    made = report("me", "bert", work)
    text = json.dumps(made._to_model().model_dump(mode="json", by_alias=True))
    assert "| 106 | documents read |" in text.replace("\\n", "\n")
    assert "Mean length 48.0 of 64 tokens; 50.0% are full." in text
    assert "| RTE | accuracy | 0.650 | 0.530 | 0.527 | 0.664 |" in text
    assert text.count('"12ab34cd"') == len(SECTIONS)


def test_a_folder_without_a_run_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tracking=wandb"):
        report("me", "bert", tmp_path)


def test_without_a_key_nothing_is_saved(work: Path, root: Path) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WANDB")}
    run = subprocess.run(
        [sys.executable, root / "deploy" / "dashboards.py", work, "--entity", "me"],
        capture_output=True, text=True, check=False, env={**clean, "HOME": str(work)},
    )  # fmt: skip
    assert run.returncode == 2
    assert run.stderr.startswith("error: no W&B key")
