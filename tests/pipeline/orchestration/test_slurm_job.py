"""What a job of Slurm makes of its stages' ends."""

import os
import signal
from pathlib import Path

import pytest

from pipeline.errors import ConfigError, Exit
from pipeline.orchestration import graph, run_document, slurm_job
from pipeline.orchestration.slurm_job import decode_exit, drive, drive_all, encode_exit, may_queue_again, progress
from tests.pipeline.orchestration.test_graph import composed_run
from tests.support import forked

# From what is least to what a person must see first.
ORDER = [Exit.DONE, Exit.RESTART, Exit.INTERRUPTED, 129, 143, 137, Exit.BUG, Exit.DIVERGED, Exit.USER]


def test_srun_ends_with_what_counts_most() -> None:
    steps = [encode_exit(code) for code in ORDER]
    assert steps == sorted(steps)
    assert len(set(steps)) == len(ORDER)
    assert [decode_exit(step) for step in steps] == ORDER
    assert max(steps) < 256


@pytest.mark.parametrize(("ended", "meant"), [(143, 143), (137, 137), (130, 130), (139, 137), (5, 1)])
def test_other_ends_of_a_process_mean_one_of_them(ended: int, meant: int) -> None:
    assert decode_exit(encode_exit(ended)) == meant


def test_a_task_that_is_killed_itself_counts_less_than_a_mistake() -> None:
    assert encode_exit(Exit.RESTART) < 137 < encode_exit(Exit.BUG)
    assert decode_exit(137) == 137
    assert decode_exit(1) == Exit.BUG, "srun cannot start it"


def test_a_job_queues_again_as_long_as_it_gets_on(tmp_path: Path) -> None:
    assert [may_queue_again(tmp_path, "7") for _ in range(3)] == [True, True, False]
    step = tmp_path / "train" / "checkpoints" / "abc" / "step-00000010"
    step.mkdir(parents=True)
    assert [may_queue_again(tmp_path, "7") for _ in range(3)] == [True, True, False]
    assert may_queue_again(tmp_path, "8"), "another job"
    (tmp_path / "logs" / ".slurm-7").write_bytes(b"\0")
    assert may_queue_again(tmp_path, "7"), "its record is damaged"


def test_results_and_stages_are_progress(tmp_path: Path) -> None:
    seen = [progress(tmp_path)]
    for name in ("evaluate-rte/random-16-0.1-0.json", "vocab/manifest.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("{}")
        seen.append(progress(tmp_path))
    assert len(set(seen)) == 3


@pytest.fixture
def in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have steps that end at once."""
    monkeypatch.setattr(slurm_job, "run_step", lambda stage, nodes, words: Exit.DONE)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    for name in ("BERT_SECRET", "BERT_RUN"):
        monkeypatch.setenv(name, "")  # restored at the end
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setenv("SLURM_JOB_ID", "7")


@pytest.mark.usefixtures("in_a_job")
def test_a_job_of_all_stages_deletes_what_is_forced_at_its_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_each_job_has_a_secret_of_its_own() -> None:
    made = set()
    for _ in range(2):
        slurm_job.begin()
        made.add(os.environ["BERT_SECRET"])
    assert {len(secret) for secret in made} == {32}
    assert len(made) == 2


@pytest.mark.usefixtures("in_a_job")
def test_a_job_does_not_run_what_another_run_has_changed(tmp_path: Path) -> None:
    words = [f"workdir={tmp_path}"]
    config = composed_run(*words, "seed=7")
    run_document.record_run(config, graph.plan_graph(config)).write()
    before = run_document.record_run(config, graph.plan_graph(composed_run(*words)))
    with pytest.raises(ConfigError, match="other settings of train"):
        drive("train", str(tmp_path), before.digest("train"))


def test_outside_of_a_job_one_is_told_so(tmp_path: Path) -> None:
    words = ["-m", "pipeline.orchestration.slurm_job", "all", "+corpus=sample"]
    done = forked.fresh(*words, f"workdir={tmp_path}")
    assert done.returncode == Exit.USER
    assert "SLURM_JOB_ID" in done.stderr
