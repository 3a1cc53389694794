"""All stages of a run reach W&B's files, once each, in the run's group."""

import json

import pytest
import wandb

from model.tracking.metrics_file import RUN_ID
from pipeline.reporting import wandb_stages
from tests.support import finished
from tests.support.runs import configured
from tests.support.wandb_files import history, of

FIGURES = {
    "prepare": {
        "documents": {"read": 106, "written": 100},
        "totals": {"tokens": 6400, "train": 100},
        "lengths": {"32": 50, "64": 50},
        "skipped": {"little prose": 6},
    },
    "train": {},
    "convert": {"samples": [{"text": "A [MASK] day.", "masks": [[{"word": "fine", "probability": 0.5}]]}]},
    "evaluate-rte": {
        "task": "rte",
        "title": "RTE",
        "metric": "accuracy",
        "score": 0.65,
        "baseline": 0.53,
        "majority": 0.527,
        "runs": [
            {"start": start, "epochs": [{"train_loss": loss, "scores": {"accuracy": 1 - loss}} for loss in (0.5, 0.25)]}
            for start in ("pretrained", "random")
        ],
    },
}
CHAIN = dict(zip(list(FIGURES)[1:], list(FIGURES), strict=False))  # a stage reads the one before


def write(work, name, fingerprint, *more):
    """Write a stage's folder, whose manifest names `more` files."""
    (work / name / "a").mkdir(parents=True, exist_ok=True)
    (work / name / "a" / "b.bin").write_bytes(b"abc")
    before = CHAIN.get(name)
    finished.manifest(
        name.partition("-")[0],
        fingerprint=fingerprint,
        config={"corpus": {"name": "wiki"}, "model": {"name": "base"}},
        inputs={"in": f"f-{before}"} if before else {},
        files={file: {"bytes": 3, "sha256": f"5a{fingerprint}"} for file in ("a/b.bin", *more)},
        figures=FIGURES[name],
        summary=f"{name} made",
        finished=f"2026-01-0{1 + [*FIGURES].index(name)}T00:00:00+00:00",
    ).write(work / name)


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
    assert runs.keys() == FIGURES.keys()
    assert {run.run_group for run in runs.values()} == {"wiki"}
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
