"""The whole graph, on a small corpus, with real processes: done once, resumed after a kill."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from pipeline.stages import stage
from tests.support import forked
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

NOUNS = """
river mill road town roof letter supper clock hall apple bread market winter
garden horse window candle forest bridge harbour island mountain teacher doctor sailor farmer
"""
WORDS = NOUNS.split()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Books that each talk of words of their own."""
    return write_books(tmp_path_factory.mktemp("corpus") / "books", 30)


def write_books(folder, count):
    folder.mkdir()
    for book in range(count):
        own = [WORDS[(book + k) % len(WORDS)] for k in range(4)]
        lines = [
            f"The {own[k % 4]} and the {own[(k * 3 + 1) % 4]} were near the {own[(k // 4) % 4]} "
            f"on day {k} of year {book}."
            for k in range(80)
        ]
        (folder / f"{book:02}.txt").write_text("\n\n".join(lines))
    return folder


def command(changes, corpus, work, *more):
    usual = "vocab.size=200 prepare.validation_share=0.3 tasks.validation_share=0.3 tasks.train_rows=60"
    usual += " train.steps=60 train.save_every=10 train.evaluate_every=30 train.batch_size=8 train.micro_batch=8"
    settings = dict(word.split("=") for word in [*usual.split(), "tasks.dev_rows=20", "evaluate.epochs=1"]) | changes
    words = ["+corpus=books", f"corpus.path={corpus}", f"workdir={work}", "tasks=[sample_next]"]
    words += [f"{key}={value}" for key, value in settings.items()]
    return [sys.executable, "-m", "pipeline.run", *words, *more]


def run(words):
    done = forked.run(words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lines_with(output, text):
    return [line.split()[0] for line in output.splitlines() if text in line]


COPIES = ["convert", "convert-seed1"]
STAGES = ["vocab", "prepare", "tasks", "train", "convert", "evaluate-sample_next", "report"]


def test_a_dry_run_counts_the_hours_of_a_gpu_that_is_named(tmp_path):
    words = ["+corpus=wiki", "recipe=devlin", "model=base", f"workdir={tmp_path}", "dry_run=true"]
    said = run([sys.executable, "-m", "pipeline.run", *words, "estimate_gpu=H100"])
    found = re.findall(r"(\w[\w-]*) [^;]*about ([\d.]+) GPU hours", said.partition("estimate: ")[2])
    hours = {name: float(count) for name, count in found}
    assert hours.keys() == {"train", "train-512", "in"}
    assert hours["train"] + hours["train-512"] == pytest.approx(hours["in"], rel=0.1)
    assert 14 < hours["in"] < 19  # docs/operations.md: 15 hours at this share of the peak
    assert "MFU of 0.40" in said


def test_another_scheduler_runs_what_is_printed(root, corpus, tmp_path):
    """A plan alone, then each command in the order of the lines; the last makes the report."""
    work = tmp_path / "work"
    said = run(command({"train.steps": 10}, corpus, work, "executor=none"))
    printed = [line.split() for line in said.splitlines() if line.startswith("  python ")]
    assert [words[-1].partition("#")[2] for words in printed] == [*STAGES[:5], "evaluate", "report"]
    assert [path.name for path in work.iterdir() if path.is_dir()] == []
    alone = {"JOB_COMPLETION_INDEX": "0"}
    alone |= {"BERT_NODES": "1", "BERT_GPUS": "0", "BERT_HOSTS": "localhost", "BERT_PARTS": "1"}
    for words in printed:
        done = subprocess.run([sys.executable, *words[1:]], cwd=root, env=os.environ | alone, check=False)
        assert done.returncode == 0, words
    assert (work / "report" / "report.html").exists()


def test_two_runs_do_not_share_a_folder(root, corpus, tmp_path):
    """By whichever name: the lock is in the folder, whose parent need not be writable either."""
    work, link = tmp_path / "work", tmp_path / "link"
    link.symlink_to(work)
    with stage.lock_run(work):
        done = subprocess.run(command({}, corpus, link), cwd=root, capture_output=True, text=True, check=False)
        assert [path.name for path in work.iterdir()] == [".lock"]
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"workdir={link}: another run" in done.stderr


def test_a_gpu_without_a_known_peak_is_refused(tmp_path):
    words = ["+corpus=sample", f"workdir={tmp_path}", "dry_run=true", "estimate_gpu=H1"]
    done = forked.fresh("-m", "pipeline.run", *words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: estimate_gpu=H1: ")
    assert "H100" in done.stderr


@pytest.mark.slow
def test_a_killed_run_goes_on_and_a_finished_one_does_nothing(root, corpus, tmp_path):
    work = tmp_path / "work"
    plan = run(command({}, corpus, work, "dry_run=true"))
    assert sorted(lines_with(plan, "not made yet")) == sorted(STAGES)
    assert not work.exists()

    forced = command({}, corpus, work, "force=[train]")  # again, without it, resumes
    with subprocess.Popen(forced, cwd=root, start_new_session=True, text=True, stderr=subprocess.PIPE) as first:
        wait_for(lambda: list(work.glob("train/checkpoints/*/step-*")), by=first)
        first.send_signal(signal.SIGTERM)
        _, said = first.communicate(timeout=60)
        assert first.returncode == 75
        saved = re.search(r"^stopped: stage train: .*saved (after step \d+) \(.*rerun .* without force", said)
        assert saved, said
    assert "Traceback" not in (work / "logs" / "train.log").read_text()
    left = subprocess.run(["pgrep", "-af", str(work)], check=False, capture_output=True, text=True)
    assert left.stdout == ""

    plan = run(command({}, corpus, work, "dry_run=true"))
    assert lines_with(plan, f"; resumes {saved[1]}") == ["train"]

    second = run(command({}, corpus, work))
    kept = set(lines_with(second, "up to date")) - {"all"}  # the last line counts them
    assert {"vocab", "prepare", "tasks"} >= kept >= {"prepare"}
    assert "resumed after step" in (work / "logs" / "train.log").read_text()
    assert (work / "report" / "report.html").stat().st_size > 10_000

    third = run(command({}, corpus, work))
    assert sorted(lines_with(third, "up to date")) == sorted([*STAGES, "all"])

    run_over_seeds(corpus, work)

    changed = run(command({}, corpus, work, "dry_run=true", "train.steps=61"))
    assert lines_with(changed, "cached") == ["vocab", "prepare", "tasks"]
    assert "settings changed: steps 60 -> 61" in changed


def run_over_seeds(corpus, work):
    """Another seed costs its own training and what follows; all else is shared."""
    words = command({}, corpus, work, "tasks=[]", "seeds=[0,1]")
    plan = run([*words, "dry_run=true"])
    assert lines_with(plan, "not made yet") == ["train-seed1", "convert-seed1"]
    assert lines_with(plan, "cached") == ["vocab", "prepare", "train", "convert"]
    run(words)
    weights = {(work / name / "model.safetensors").read_bytes() for name in COPIES}
    assert len(weights) == 2
    known = json.loads((work / "report" / "seeds.json").read_text())
    assert known["held-out masked-LM accuracy (train)"]["seeds"].keys() == {"0", "1"}


def test_a_users_mistake_in_a_stage_names_stage_and_log(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "nothing.txt").write_text(" ")
    # Without tasks, as two stages that fail at the same time race for the error line.
    words = command({}, tmp_path / "empty", tmp_path / "work", "tasks=[]")
    done = forked.fresh(*words[1:], env={**os.environ, "TERM": "dumb"})
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "stage vocab" in line
    assert "vocab.log" in line
