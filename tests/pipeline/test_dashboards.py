"""The dashboards are built and validated by W&B's own library, without a network."""

import json
import re
import sys

import pytest

from model.tracking.metrics_file import RUN_ID
from pipeline import dashboards
from pipeline.errors import InputError
from pipeline.reporting.dashboards import SECTIONS, report, workspace
from pipeline.reporting.wandb_stages import RECORD
from tests.support import finished, forked
from tests.support.servers.wandb_server import KEY, WandbServer, environment

DONE = {"documents": {"read": 106, "written": 100, "short": 6}, "totals": {"tokens": 6400, "train": 100}}
DONE |= {"lengths": {"32": 50, "64": 50}, "sequence_length": 64}
SCORES = {"task": "rte", "title": "RTE", "sample": False, "metric": "accuracy", "score": 0.65, "baseline": 0.53}
SCORES["majority"] = 0.527


@pytest.fixture
def work(tmp_path):
    """A run's folder, as the stages leave it."""
    for name in ("prepare", "train", "evaluate-rte"):
        (tmp_path / name).mkdir()
    (tmp_path / "train" / RUN_ID).write_text("12ab34cd")
    finished.manifest("evaluate", figures=SCORES).write(tmp_path / "evaluate-rte")
    finished.manifest("prepare", figures=DONE, summary="106 documents").write(tmp_path / "prepare")
    return tmp_path


def test_the_report_holds_the_corpus_the_scores_and_the_run(work):
    made = report("me", "bert", work)
    text = json.dumps(made._to_model().model_dump(mode="json", by_alias=True))
    assert "| 106 | documents read |" in text.replace("\\n", "\n")
    assert "48.0 tokens on average, 50.0% have all 64" in text
    assert "| RTE | accuracy | 0.650 | 0.530 | 0.527 | 0.664 |" in text
    assert text.count('"12ab34cd"') == len(SECTIONS)


def test_a_folder_without_a_run_is_said_so(tmp_path):
    with pytest.raises(InputError, match="tracking=wandb"):
        report("me", "bert", tmp_path)


def test_the_workspace_shows_the_whole_run(work):
    """A panel for everything that is asked, and links to the runs."""
    text = json.dumps(workspace("me", "bert")._to_model().model_dump(mode="json", by_alias=True))
    curves = ("loss", "masked_lm_accuracy", "tokens_per_second", "mfu", "gradient_norm", "data_wait_share")
    tables = ("evaluate/score", "evaluate/epoch", "prepare/corpus", "evaluate/scores", "convert/masked_sentences")
    for name in (*(f"train/{curve}" for curve in curves), *tables):
        assert name in text
    assert re.search(r"system.*gpu.*temp", text)
    (work / RECORD).parent.mkdir()
    (work / RECORD).write_text(json.dumps({"evaluate-rte": "34cd12ab"}))
    text = json.dumps(report("me", "bert", work)._to_model().model_dump(mode="json"))
    assert text.count('"34cd12ab"') == text.count('"12ab34cd"') == len(SECTIONS)


@pytest.mark.parametrize("words", [[], ["no-such-folder", "--entity", "me"]])
def test_a_wrong_command_line_is_one_error(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["dashboards", *words])
    with pytest.raises(SystemExit) as caught:
        dashboards.main()
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err.splitlines()[-1]


@pytest.fixture
def server():
    """W&B's interface on loopback."""
    made = WandbServer()
    yield made
    made.stop()


@pytest.fixture
def save(work, server):
    """Save both pages to the server with a key."""

    def run(key):
        online = environment(work, WANDB_BASE_URL=server.url, WANDB_API_KEY=key)
        return forked.fresh("-m", "pipeline.dashboards", work, "--entity", "me", env=online)

    return run


@pytest.mark.slow
def test_both_pages_are_saved_by_its_interface(save, server):
    done = save(KEY)
    assert done.returncode == 0, done.stderr
    saved = server.asked_for("UpsertView2") + server.asked_for("upsertView")
    assert len(saved) == 2
    assert "evaluate/score" in saved[0]["spec"]
    assert "12ab34cd" in saved[1]["spec"]


@pytest.mark.slow
def test_a_key_that_is_refused_is_one_error(save):
    done = save("1" * 40)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: W&B ")
    assert "Traceback" not in done.stderr
