"""What a job of Slurm makes of its stages' ends."""

import dataclasses
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline import run as commands
from pipeline.config import ExecutorConfig
from pipeline.errors import ConfigError, Exit
from pipeline.orchestration import graph, run_plan, slurm_job
from pipeline.orchestration.slurm import MARGIN, SlurmExecutor, margin
from pipeline.orchestration.slurm_job import decode_exit, drive, drive_all, encode_exit, may_queue_again, progress
from tests.pipeline.orchestration.test_graph import composed_run
from tests.support import finished, forked
from tests.support.refusals import refused

# From what is least to what a person must see first.
ORDER = [Exit.DONE, Exit.RESTART, Exit.INTERRUPTED, 129, 143, 137, Exit.BUG, Exit.DIVERGED, Exit.USER]


def test_srun_ends_with_what_counts_most():
    steps = [encode_exit(code) for code in ORDER]
    assert steps == sorted(steps)
    assert len(set(steps)) == len(ORDER)
    assert [decode_exit(step) for step in steps] == ORDER
    assert max(steps) < 256


@pytest.mark.parametrize(("ended", "meant"), [(143, 143), (137, 137), (130, 130), (139, 137), (5, 1)])
def test_other_ends_of_a_process_mean_one_of_them(ended, meant):
    assert decode_exit(encode_exit(ended)) == meant


def test_a_job_queues_again_as_long_as_it_gets_on(tmp_path):
    assert [may_queue_again(tmp_path, "7") for _ in range(3)] == [True, True, False]
    step = tmp_path / "train" / "checkpoints" / "abc" / "step-00000010"
    step.mkdir(parents=True)
    assert [may_queue_again(tmp_path, "7") for _ in range(3)] == [True, True, False]
    assert may_queue_again(tmp_path, "8"), "another job"
    (tmp_path / "logs" / ".slurm-7").write_bytes(b"\0")
    assert may_queue_again(tmp_path, "7"), "its record is damaged"


def test_results_and_stages_are_progress(tmp_path):
    seen = [progress(tmp_path)]
    for name in ("evaluate-rte/random-16-0.1-0.json", "vocab/manifest.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("{}")
        seen.append(progress(tmp_path))
    assert len(set(seen)) == 3


@pytest.fixture
def in_a_job(monkeypatch):
    """Have steps that end at once."""
    monkeypatch.setattr(slurm_job, "run_step", lambda stage, nodes, words: Exit.DONE)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    for name in ("BERT_SECRET", "BERT_RUN"):
        monkeypatch.setenv(name, "")  # restored at the end
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setenv("SLURM_JOB_ID", "7")


@pytest.mark.usefixtures("in_a_job")
def test_a_job_of_all_stages_deletes_what_is_forced_at_its_first_start(tmp_path, monkeypatch):
    words = [f"workdir={tmp_path}", "force=[train]", "tasks=[]"]
    for restarts, there in ("0", False), ("1", True):
        config = composed_run(*words)
        (node,) = (node for node in graph.plan_graph(config) if node.name == "train")
        saved = tmp_path / "train" / "checkpoints" / node.fingerprint[:12] / "step-00000010"
        saved.mkdir(parents=True)
        monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
        drive_all(config)
        assert saved.exists() == there


@pytest.mark.usefixtures("in_a_job")
def test_each_job_has_a_secret_of_its_own():
    made = set()
    for _ in range(2):
        slurm_job.begin()
        made.add(os.environ["BERT_SECRET"])
    assert {len(secret) for secret in made} == {32}
    assert len(made) == 2


@pytest.mark.usefixtures("in_a_job")
def test_a_job_does_not_run_what_another_run_has_changed(tmp_path):
    words = [f"workdir={tmp_path}"]
    config = composed_run(*words, "seed=7")
    run_plan.record_run(config, graph.plan_graph(config)).write()
    before = run_plan.record_run(config, graph.plan_graph(composed_run(*words)))
    with pytest.raises(ConfigError, match="other settings of train"):
        drive("train", str(tmp_path), before.digest("train"))


def test_outside_of_a_job_one_is_told_so(tmp_path):
    words = ["-m", "pipeline.orchestration.slurm_job", "all", "+corpus=sample"]
    done = forked.fresh(*words, f"workdir={tmp_path}")
    assert done.returncode == Exit.USER
    assert "SLURM_JOB_ID" in done.stderr


# What the executor asks of Slurm, and when it takes a stage as done.


def planned(folder, *words):
    """The record of a run of the sample in `folder`."""
    words = (f"workdir={folder}", *words)
    config = composed_run(*words)
    return run_plan.record_run(config, graph.plan_graph(config))


def test_options_of_a_misspelt_stage_are_refused(tmp_path):
    settings = ExecutorConfig(name="slurm", options={"tain": ["--mem=64G"]})
    with refused(ConfigError, "train", key="executor.options.tain"):
        SlurmExecutor(settings, planned(tmp_path))


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ("0:02:00", 30),
        ("0:01:30", 22),
        ("0:10:00", 150),
        ("24:00:00", MARGIN),
        ("1-0", MARGIN),
        ("0-00:04", 60),
        ("UNLIMITED", MARGIN),
        ("0-0", MARGIN),
    ],
)
def test_a_signal_before_the_limit_leaves_most_of_the_time(limit, seconds):
    assert margin(limit) == seconds


def command(folder, name, script):
    """Put a command of Slurm in `folder`."""
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


def test_a_forced_stage_is_done_when_its_folder_is_a_new_one(tmp_path, monkeypatch, capsys):
    run = planned(tmp_path / "work", "force=[vocab]")
    node = run.stages["vocab"]
    made = finished.manifest(
        "vocab", fingerprint=node.fingerprint, version=2, summary="the old one", finished="2026-11-01T00:00:00+00:00"
    )
    out = Path(node.config.out)
    out.mkdir(parents=True)
    made.write(out)
    (tmp_path / "new").mkdir()
    dataclasses.replace(made, summary="the new one", finished="now").write(tmp_path / "new")
    # The job is pending when it is first listed, and has made its folder by the second time.
    command(tmp_path, "sbatch", f"cat > /dev/null; test ! -e {out}/manifest.json && echo 7")
    command(
        tmp_path,
        "squeue",
        f"[[ $* == *--states=all* ]] || exit 0\n"
        f"cd {tmp_path}; if mkdir seen 2> /dev/null; then echo '7|PENDING|Priority'\n"
        f"else cp new/manifest.json {out}; echo '7|COMPLETED|None'; fi",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    SlurmExecutor(ExecutorConfig(name="slurm", poll=0.01), run).run([node])
    lines = [line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == ["job 7 submitted", "job 7 PENDING (Priority)"]
    assert lines[2].endswith("the new one")


def test_a_forced_stage_whose_job_may_be_making_it_is_refused(tmp_path, monkeypatch):
    run = planned(tmp_path / "work", "force=[vocab]")
    command(tmp_path, "sbatch", "exit 1")
    command(tmp_path, "squeue", f"echo '7|7|bert-vocab|{tmp_path}/work#{run.digest('vocab')}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with refused(ConfigError, "scancel", key="force"):
        SlurmExecutor(ExecutorConfig(name="slurm"), run).run(list(run.stages.values()))


def test_what_was_submitted_is_not_done(tmp_path, monkeypatch, capsys):
    made = planned(tmp_path / "work")
    settings = ExecutorConfig(name="slurm", wait=False)
    config = SimpleNamespace(executor=settings, workdir=str(tmp_path), stages={})
    monkeypatch.setattr(commands.run_plan, "record_run", lambda config, nodes: made)
    monkeypatch.setattr(commands, "make_executor", lambda config, run: SimpleNamespace(run=lambda nodes: None))
    commands.run_nodes(config, list(made.stages.values()), "")
    assert capsys.readouterr().out.startswith("submitted;")


def test_a_dry_run_shows_what_would_be_submitted(tmp_path, monkeypatch):
    """A stage is the number of its job here."""
    run = planned(tmp_path / "100%u" / "work")
    nodes, asked = list(run.stages.values()), tmp_path / "asked"
    number = 'for word; do [[ $word != --job-name=bert-* ]] || echo "${word#--job-name=bert-}"; done'
    command(tmp_path, "sbatch", f'printf "%s\\n" "$@" >> {asked}; cat >> {asked}; {number}')
    command(tmp_path, "squeue", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    options = {"all": ["--mem=8G"], "train": ["--reservation=a b"]}
    settings = ExecutorConfig(name="slurm", gpus=2, setup=["module load cuda"], options=options, wait=False)
    shown = SlurmExecutor(settings, run).expected(nodes)
    assert not asked.exists()
    assert f"--output={tmp_path}/100%%u/work/logs/train-%j.out" in shown.split()
    SlurmExecutor(settings, run).run(nodes)
    submitted = asked.read_text()
    asked.unlink()
    subprocess.run(["bash", "-c", shown], check=True, stdout=subprocess.DEVNULL)
    assert asked.read_text() == submitted
    command(tmp_path, "squeue", f"echo '7|7|bert-train|{tmp_path}/100%u/work#{run.digest('train')}'")
    again = SlurmExecutor(settings, run).expected(nodes)
    assert "train: job 7 is in the queue" in again.splitlines()
    assert "--dependency=afterok:vocab:7" in again


def test_a_queued_job_of_other_settings_is_not_followed(tmp_path, monkeypatch):
    run, other = planned(tmp_path / "work"), planned(tmp_path / "work", "train.clip=0.5")
    command(tmp_path, "sbatch", "exit 1")
    command(tmp_path, "squeue", f"echo '7|7|bert-train|{tmp_path}/work#{run.digest('train')}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    settings = ExecutorConfig(name="slurm", poll=0.01)
    assert SlurmExecutor(settings, run).jobs == {"train": "7"}
    with pytest.raises(ConfigError, match="scancel 7"):
        SlurmExecutor(settings, other)
