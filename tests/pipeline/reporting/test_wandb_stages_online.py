"""With a key, all finished stages are on W&B's service, with what each was made from."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model.training.tracking import RUN_ID
from pipeline.common.manifest import Manifest
from pipeline.reporting.wandb_stages import RECORD, run_id
from tests import finished, forked
from tests.wandb_server import KEY, NEW, WandbServer

FIGURES: dict[str, dict[str, Any]] = {  # each stage reads the one before
    "prepare": {},
    "train": {},
    "convert": {"samples": [{"text": "A [MASK] day.", "masks": [[{"word": "fine", "probability": 0.5}]]}]},
    "evaluate-rte": {
        "task": "rte",
        "title": "RTE",
        "metric": "accuracy",
        "score": 0.65,
        "runs": [{"start": "pretrained", "epochs": [{"train_loss": 0.5, "scores": {"accuracy": 0.65}}]}],
    },
}
pytestmark = pytest.mark.slow

TRAINING = "12ab34cd"
LOG_FILE = "wandb/run-1/logs/debug-core.log"
LOG = """
import sys
from pathlib import Path
from pipeline.reporting import wandb_stages
for time in ("first", "second"):
    wandb_stages.log(Path(sys.argv[1]), wandb_stages.finished_in(Path(sys.argv[1])), "bert-pipeline")
    print(time, "done", flush=True)
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A finished run, whose first stage was logged offline."""
    work, before = tmp_path / "wiki", ""
    for number, (name, figures) in enumerate(FIGURES.items()):
        (work / name).mkdir(parents=True)
        (work / name / "a.bin").write_bytes(name.encode())
        files = {"a.bin": {"bytes": 3, "sha256": f"5a{number}"}}
        if name == "train":  # W&B's own files, some of them links to another node's disk
            files[LOG_FILE] = {"bytes": 3, "sha256": "00"}
            (work / name / LOG_FILE).parent.mkdir(parents=True)
            (work / name / LOG_FILE).symlink_to(tmp_path / "gone")
        finished.manifest(
            name.partition("-")[0],
            fingerprint=f"f-{name}",
            config={"corpus": {"name": "wiki"}},
            inputs={"in": f"f-{before}"} if before else {},
            files=files,
            figures=figures,
            summary=f"{name} made",
            finished=f"2026-01-0{number + 1}T00:00:00+00:00",
        ).write(work / name)
        before = name
    (work / "train" / RUN_ID).write_text(TRAINING)
    manifest = Manifest.read(work / "prepare")
    assert manifest is not None
    (work / RECORD).parent.mkdir()
    (work / RECORD).write_text(json.dumps({"prepare": run_id(work, "prepare", manifest)}))
    return work


@pytest.fixture
def server() -> Iterator[WandbServer]:
    """W&B's interface on loopback, with what training has logged itself."""
    made = WandbServer()
    summary = json.dumps({"train/loss": 2.0, "_step": 9})
    made.runs[TRAINING] = {**NEW, "id": TRAINING, "name": TRAINING, "displayName": "train", "summaryMetrics": summary}
    made.lines[TRAINING] = [json.dumps({"_step": 9, "_runtime": 5, "train/loss": 2.0})]
    yield made
    made.stop()


def test_every_stage_is_on_the_service_once(work: Path, server: WandbServer) -> None:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
    online = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": KEY, "HOME": str(work)}
    done = forked.fresh("-c", LOG, work, env=clean | online)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert [line for line in said if "wiki-prepare" in line and "warning: " in line] == said[:1]
    assert said[1:] == ["first done", "second done"], "nothing is logged twice"
    runs = {run["displayName"]: run for run in server.runs.values()}
    assert runs.keys() == {"train", "convert", "evaluate-rte"}
    assert {run["groupName"] for run in runs.values()} == {"wiki"}
    assert len(server.asked_for("RunResumeStatus")) == len(runs)
    assert server.history(TRAINING) == [{"_step": 9, "_runtime": 5, "train/loss": 2.0}]
    assert server.summary(TRAINING)["train/loss"] == 2.0, "training's own figures are kept"
    (evaluated,) = {
        row["evaluate/score"] for row in server.history(runs["evaluate-rte"]["name"]) if "evaluate/score" in row
    }
    assert evaluated == 0.65
    assert any("masked_sentences" in name for name in server.files)
    references = {path: entry["ref"] for path, entry in server.references("wiki-train").items()}
    assert references == {"a.bin": f"{(work / 'train').as_uri()}/a.bin#sha256=5a1"}
    used = {one["runName"]: one["artifactID"] for one in server.asked_for("UseArtifact")}
    assert used == {
        runs["convert"]["name"]: server.newest("wiki-train")["id"],
        runs["evaluate-rte"]["name"]: server.newest("wiki-convert")["id"],
    }
