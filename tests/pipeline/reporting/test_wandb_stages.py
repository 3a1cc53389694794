"""All stages of a run reach W&B's files, once each, in the run's group."""

import json

import pytest
import wandb

from model.tracking.metrics_file import RUN_ID
from pipeline.records.manifest import require_manifest
from pipeline.reporting import wandb_stages
from pipeline.reporting.wandb_stages import RECORD, run_id
from tests.support import finished, forked
from tests.support.runs import configured
from tests.support.servers.wandb_server import KEY, NEW, WandbServer, environment
from tests.support.wandb_files import history, of

EPOCHS = [{"train_loss": loss, "scores": {"accuracy": 1 - loss}} for loss in (0.5, 0.25)]
RTE = {"task": "rte", "title": "RTE", "metric": "accuracy", "score": 0.65, "baseline": 0.53, "majority": 0.527}
DONE = {"documents": {"read": 106, "written": 100}, "totals": {"tokens": 6400, "train": 100}}
FIGURES = {
    "prepare": DONE | {"lengths": {"32": 50, "64": 50}, "skipped": {"little prose": 6}},
    "train": {},
    "convert": {"samples": [{"text": "A [MASK] day.", "masks": [[{"word": "fine", "probability": 0.5}]]}]},
    "evaluate-rte": RTE | {"runs": [{"start": start, "epochs": EPOCHS} for start in ("pretrained", "random")]},
}
CHAIN = dict(zip(list(FIGURES)[1:], list(FIGURES), strict=False))  # a stage reads the one before


def write(work, name, fingerprint, *more):
    """Write a stage's folder, whose manifest names `more` files."""
    (work / name / "a").mkdir(parents=True, exist_ok=True)
    (work / name / "a" / "b.bin").write_bytes(b"abc")
    before = CHAIN.get(name)
    files = {file: {"bytes": 3, "sha256": f"5a{fingerprint}"} for file in ("a/b.bin", *more)}
    made = {"config": {"corpus": {"name": "wiki"}, "model": {"name": "base"}}, "files": files, "figures": FIGURES[name]}
    made |= {"inputs": {"in": f"f-{before}"} if before else {}, "summary": f"{name} made", "fingerprint": fingerprint}
    made["finished"] = f"2026-01-0{1 + [*FIGURES].index(name)}T00:00:00+00:00"
    finished.manifest(name.partition("-")[0], **made).write(work / name)


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A finished run."""
    for name in ("WANDB_API_KEY", "WANDB_RUN_GROUP", "WANDB_TAGS", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    work = tmp_path / "wiki"
    work.mkdir()
    for name in FIGURES:
        write(work, name, f"f-{name}")
    (work / "train" / RUN_ID).write_text("12ab34cd")
    return work


def log(work):
    wandb_stages.log(work, wandb_stages.finished_in(work), "bert")
    wandb.teardown()  # its service writes until it ends


def test_every_stage_is_one_run_of_the_group_with_an_artifact_of_references(work, monkeypatch):
    monkeypatch.setenv("WANDB_TAGS", "devlin,abc123")
    log(work)
    runs = {run.display_name: run for run in of(work, "run")}
    assert (runs.keys(), {run.run_group for run in runs.values()}) == (FIGURES.keys(), {"wiki"})
    assert runs["evaluate-rte"].job_type == "evaluate"
    assert runs["train"].run_id == "12ab34cd", "training goes on in its own run"
    assert set(runs["prepare"].tags) == {"devlin", "abc123", "wiki", "base"}
    logged = history(work)
    curve = [row["evaluate/score"] for row in logged if "evaluate/score" in row]
    assert curve == [0.5, 0.75]
    tables = {key for row in logged for key in row if "/" in key}
    assert {"prepare/corpus", "convert/masked_sentences", "evaluate/scores"} <= tables
    written = [path.read_text() for path in work.rglob("*.table.json")]
    rows = [row for text in written for row in json.loads(text)["data"]]
    assert ["RTE", "accuracy", 0.65, 0.53, 0.527, pytest.approx(0.664)] in rows
    assert ["A [MASK] day.", "", "fine 0.50"] in rows
    found = {one.name: one for one in of(work, "artifact") if one.name.startswith("wiki-")}
    assert found.keys() == {f"wiki-{name}" for name in FIGURES}
    assert found["wiki-prepare"].type == "shards"
    made_from = json.loads(found["wiki-train"].metadata)["made_from"]
    assert made_from == ["wiki-prepare"]
    entries = found["wiki-train"].manifest.contents
    assert [(entry.path, entry.ref.partition("#")[2]) for entry in entries] == [("a/b.bin", "sha256=5af-train")]
    assert not any(entry.local_path for one in found.values() for entry in one.manifest.contents)


def test_a_stage_is_logged_once_until_it_is_made_again(work):
    log(work)
    log(work)
    assert len(of(work, "run")) == 4
    write(work, "evaluate-rte", "another")
    log(work)
    names = [run.display_name for run in of(work, "run")]
    assert sorted(names) == sorted([*FIGURES, "evaluate-rte"])


def test_a_failure_of_weights_and_biases_is_a_warning(work, capsys):
    (work / "wandb").write_text("not a folder")
    log(work)
    assert capsys.readouterr().out.count("warning: ") == 1


def test_a_report_logs_if_asked():
    assert configured("report").tracking.name == "none"
    settings = configured("report", "tracking=wandb", "tracking.project=ours")
    assert (settings.tracking.name, settings.tracking.project) == ("wandb", "ours")


# With a key, all finished stages are on W&B's service, with what each was made from.


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
def online(tmp_path):
    """A finished run, whose first stage was logged offline."""
    online = tmp_path / "wiki"
    for name in FIGURES:
        # Of the training also W&B's own files, some of them links to another node's disk.
        write(online, name, f"f-{name}", *[LOG_FILE] * (name == "train"))
    (online / "train" / LOG_FILE).parent.mkdir(parents=True)
    (online / "train" / LOG_FILE).symlink_to(tmp_path / "gone")
    (online / "train" / RUN_ID).write_text(TRAINING)
    (online / RECORD).parent.mkdir()
    made = require_manifest(online / "prepare", "prepare", "out")
    (online / RECORD).write_text(json.dumps({"prepare": run_id(online, "prepare", made)}))
    return online


@pytest.fixture
def server():
    """W&B's interface on loopback, with what training has logged itself."""
    made = WandbServer()
    summary = json.dumps({"train/loss": 2.0, "_step": 9})
    made.runs[TRAINING] = {**NEW, "id": TRAINING, "name": TRAINING, "displayName": "train", "summaryMetrics": summary}
    made.lines[TRAINING] = [json.dumps({"_step": 9, "_runtime": 5, "train/loss": 2.0})]
    yield made
    made.stop()


@pytest.mark.slow
def test_every_stage_is_on_the_service_once(online, server):
    variables = environment(online, WANDB_BASE_URL=server.url, WANDB_API_KEY=KEY)
    done = forked.fresh("-c", LOG, online, env=variables)
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
    assert references == {"a/b.bin": f"{(online / 'train').as_uri()}/a/b.bin#sha256=5af-train"}
    used = {one["runName"]: one["artifactID"] for one in server.asked_for("UseArtifact")}
    assert used == {
        runs["convert"]["name"]: server.newest("wiki-train")["id"],
        runs["evaluate-rte"]["name"]: server.newest("wiki-convert")["id"],
    }
