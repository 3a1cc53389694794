"""With a key, all finished stages are on W&B's service, with what each was made from."""

import json

import pytest

from model.tracking.metrics_file import RUN_ID
from pipeline.records.manifest import require_manifest
from pipeline.reporting.wandb_stages import RECORD, run_id
from tests.pipeline.reporting.test_wandb_stages import FIGURES, write
from tests.support import forked
from tests.support.servers.wandb_server import KEY, NEW, WandbServer, environment

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
def work(tmp_path):
    """A finished run, whose first stage was logged offline."""
    work = tmp_path / "wiki"
    for name in FIGURES:
        # Of the training also W&B's own files, some of them links to another node's disk.
        write(work, name, f"f-{name}", *[LOG_FILE] * (name == "train"))
    (work / "train" / LOG_FILE).parent.mkdir(parents=True)
    (work / "train" / LOG_FILE).symlink_to(tmp_path / "gone")
    (work / "train" / RUN_ID).write_text(TRAINING)
    (work / RECORD).parent.mkdir()
    made = require_manifest(work / "prepare", "prepare", "out")
    (work / RECORD).write_text(json.dumps({"prepare": run_id(work, "prepare", made)}))
    return work


@pytest.fixture
def server():
    """W&B's interface on loopback, with what training has logged itself."""
    made = WandbServer()
    summary = json.dumps({"train/loss": 2.0, "_step": 9})
    made.runs[TRAINING] = {**NEW, "id": TRAINING, "name": TRAINING, "displayName": "train", "summaryMetrics": summary}
    made.lines[TRAINING] = [json.dumps({"_step": 9, "_runtime": 5, "train/loss": 2.0})]
    yield made
    made.stop()


def test_every_stage_is_on_the_service_once(work, server):
    online = environment(work, WANDB_BASE_URL=server.url, WANDB_API_KEY=KEY)
    done = forked.fresh("-c", LOG, work, env=online)
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
    evaluated = server.history(runs["evaluate-rte"]["name"])
    assert [row["evaluate/score"] for row in evaluated if "evaluate/score" in row] == [0.5, 0.75]
    assert any("masked_sentences" in name for name in server.files)
    references = {path: entry["ref"] for path, entry in server.references("wiki-train").items()}
    assert references == {"a/b.bin": f"{(work / 'train').as_uri()}/a/b.bin#sha256=5af-train"}
    used = {one["runName"]: one["artifactID"] for one in server.asked_for("UseArtifact")}
    assert used == {
        runs["convert"]["name"]: server.newest("wiki-train")["id"],
        runs["evaluate-rte"]["name"]: server.newest("wiki-convert")["id"],
    }
