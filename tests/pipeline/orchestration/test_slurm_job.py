"""What a job of Slurm makes of its stages' ends."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.common import run_record
from pipeline.common.errors import ConfigError, Exit
from pipeline.orchestration import graph, run_document, slurm_job
from pipeline.orchestration.slurm_job import drive, drive_all, from_step, may_queue_again, progress, to_step
from tests.pipeline.orchestration.test_graph import composed_run

# From what is least to what a person must see first.
ORDER = [Exit.DONE, Exit.RESTART, Exit.INTERRUPTED, 129, 143, 137, Exit.BUG, Exit.DIVERGED, Exit.USER]


def test_srun_ends_with_what_counts_most() -> None:
    steps = [to_step(code) for code in ORDER]
    assert steps == sorted(steps)
    assert len(set(steps)) == len(ORDER)
    assert [from_step(step) for step in steps] == ORDER
    assert max(steps) < 256


@pytest.mark.parametrize(("ended", "meant"), [(-15, 143), (-9, 137), (-2, 130), (-11, 137), (5, 1)])
def test_other_ends_of_a_process_mean_one_of_them(ended: int, meant: int) -> None:
    assert from_step(to_step(ended)) == meant


def test_a_task_that_is_killed_itself_counts_less_than_a_mistake() -> None:
    assert to_step(Exit.RESTART) < 137 < to_step(Exit.BUG)
    assert from_step(137) == 137
    assert from_step(1) == Exit.BUG, "srun cannot start it"


def test_a_job_queues_again_as_long_as_it_gets_on(tmp_path: Path) -> None:
    assert [may_queue_again(tmp_path, "7") for _ in range(3)] == [True, True, False]
    step = tmp_path / "train" / "checkpoints" / "abc" / "step-00000010"
    step.mkdir(parents=True)
    assert [may_queue_again(tmp_path, "7") for _ in range(3)] == [True, True, False]
    assert may_queue_again(tmp_path, "8"), "another job"


def test_results_and_stages_are_progress(tmp_path: Path) -> None:
    seen = [progress(tmp_path)]
    for name in ("evaluate-rte/random-16-0.1-0.json", "vocab/manifest.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("{}")
        seen.append(progress(tmp_path))
    assert len(set(seen)) == 3


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """Start a job whose step `last` ends for a restart; return what each step forces."""
    forced: list[str] = []
    ends = ""

    def step(stage: str, nodes: int, words: list[str]) -> int:
        run = run_document.read(run_record.place_of(words[0].partition("=")[2]))
        mine = [node for node in run.stages.values() if node.job == stage]
        forced.extend(node.name for node in mine if node.config.force and "force=false" not in words)
        return Exit.RESTART if stage == ends else Exit.DONE

    def start(stage: str, last: str, restarts: int, *words: str) -> list[str]:
        nonlocal ends
        ends = last
        forced.clear()
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))
        config = composed_run(*words)
        with contextlib.suppress(SystemExit):
            if stage == "all":
                drive_all(config)
            else:
                run = run_document.of(config, graph.plan(config))
                run.write()
                drive(stage, config.workdir, run.digest(stage))
        return list(forced)

    monkeypatch.setattr(slurm_job, "run_step", step)
    monkeypatch.setattr(slurm_job, "finish", lambda stage, code, workdir: sys.exit(code))
    monkeypatch.setattr(slurm_job, "environment_of_job", lambda: {"NODES": "1"})
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    handler = signal.getsignal(signal.SIGTERM)
    yield start
    signal.signal(signal.SIGTERM, handler)


def test_a_job_of_all_stages_forces_each_once(tmp_path: Path, steps: Callable[..., list[str]]) -> None:
    words = [f"workdir={tmp_path}", "force=[vocab,train]", "tasks=[sample_next]"]
    assert steps("all", "prepare", 0, *words) == ["vocab"]
    assert steps("all", "train", 1, *words) == ["train"], "not begun before"
    assert steps("all", "report", 2, *words) == [], "resumed, not started over"


def test_a_job_of_one_stage_forces_it_once(tmp_path: Path, steps: Callable[..., list[str]]) -> None:
    words = [f"workdir={tmp_path}", "force=[train]"]
    assert steps("train", "train", 0, *words) == ["train"]
    assert steps("train", "train", 1, *words) == []


def test_a_job_does_not_run_what_another_run_has_changed(tmp_path: Path, steps: Callable[..., list[str]]) -> None:
    words = [f"workdir={tmp_path}"]
    steps("train", "", 0, *words)
    config = composed_run(*words, "seed=7")
    run_document.of(config, graph.plan(config)).write()
    before = run_document.of(config, graph.plan(composed_run(*words)))
    with pytest.raises(ConfigError, match="other settings of train"):
        drive("train", str(tmp_path), before.digest("train"))


def test_outside_of_a_job_one_is_told_so(root: Path, tmp_path: Path) -> None:
    words = ["-m", "pipeline.orchestration.slurm_job", "all", "+corpus=sample"]
    done = subprocess.run(
        [sys.executable, *words, f"workdir={tmp_path}"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == Exit.USER
    assert "SLURM_JOB_ID" in done.stderr
