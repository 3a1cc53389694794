"""The graph on a real Slurm: a job for each stage, each end one of the promised ones.

The tests follow one run of the whole graph, in order: what they do to it does not change its
weights, which are those of two ranks on one machine, bit for bit.
"""

import fcntl
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from machines import Command, kill, missing, wait_for
from slurm_cluster import Cluster, slurm_cluster

from model.training import checkpoint
from model.training.tracking import read_metrics
from pipeline.common.errors import Exit
from pipeline.common.manifest import Manifest, require_manifest, sha256

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]
STEPS = 1200
SETTINGS = (
    "+corpus=sample", "corpus.options.packages=[sklearn]", "tasks=[sample_next]", "vocab.size=1000",
    "vocab.sample_bytes=1000000", "prepare.sequence_length=32", "tasks.train_rows=100",
    "tasks.dev_rows=50", f"train.steps={STEPS}", "model.hidden=32", "model.feed_forward=64",
    "train.batch_size=16", "train.micro_batch=8", "train.threads=1", "train.save_every=1000",
    "train.evaluate_every=1000", "train.log_every=1", "train.timeout=20", "train.watchdog=30",
    "train.start_timeout=240", "train.tracking=none", "evaluate.epochs=1",
)  # fmt: skip
ON_SLURM = (
    "executor=slurm", "executor.nodes=2", "executor.gpus=0", "executor.cpus=2", "executor.parts=2",
    "executor.poll=1", "executor.time=2:00:00",
)  # fmt: skip


@dataclass
class Run:
    """A run on the cluster, and the process that follows it."""

    cluster: Cluster
    workdir: Path
    driver: Command

    def losses(self) -> int:
        return sum(row["kind"] == "train" for row in read_metrics(self.workdir / "train"))

    def checkpoints(self) -> list[int]:
        found = (self.workdir / "train").glob("checkpoints/*/step-*")
        return sorted(int(path.name[5:]) for path in found)

    def learnt(self, more: int = 8) -> dict[str, str]:
        """Wait until training runs and has learnt some more; its job."""
        job = self.cluster.running("train", self.workdir)
        log = self.workdir / "logs" / f"train-{job['JobId']}.out"
        before = log.read_text(errors="replace").count(": step ") if log.exists() else 0
        wait_for(
            lambda: (
                log.exists() and log.read_text(errors="replace").count(": step ") >= before + more
            ),
            "more steps",
        )
        return self.cluster.job("train", self.workdir)

    def queued_again(self, before: dict[str, str], state: str = "PENDING") -> None:
        """Wait until a job that was running has been queued once more."""
        stage = before["JobName"].removeprefix("bert-")
        times = int(before["Restarts"])
        wait_for(
            lambda: int(self.cluster.job(stage, self.workdir)["Restarts"]) > times
            or self.cluster.job(stage, self.workdir)["JobState"] == state,
            f"{stage} in the queue again", 300,
        )  # fmt: skip


def start(cluster: Cluster, workdir: Path, *more: str) -> Run:
    words = ["python", "-m", "pipeline.run", *SETTINGS, *ON_SLURM, f"workdir={workdir}", *more]
    return Run(cluster, workdir, cluster.start(*words))


def weights(workdir: Path) -> str:
    manifest = require_manifest(workdir / "train", "train", "out")
    return sha256(workdir / "train" / manifest.figures["checkpoint"] / checkpoint.WEIGHTS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    why = missing("slurmctld", "slurmd", "sbatch", "munged")
    if why is not None:
        pytest.skip(why)
    with slurm_cluster(tmp_path_factory.mktemp("slurm") / "lab") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def run(cluster: Cluster) -> Run:
    return start(cluster, cluster.folder / "work")


def copy_of(run: Run, name: str, *without: str) -> Path:
    """A folder where the stages before training are done as in the run."""
    to = run.cluster.folder / name
    shutil.copytree(run.workdir, to, ignore=shutil.ignore_patterns("logs", *without))
    return to


def ranks(run: Run, number: int) -> psutil.Process:
    (found,) = run.cluster.nodes[number].processes("--local_rank", "train.py")
    return found


def test_a_stage_that_saves_nothing_is_queued_again(run: Run) -> None:
    job = run.cluster.running("vocab", run.workdir)
    log = run.workdir / "logs" / f"vocab-{job['JobId']}.out"
    wait_for(lambda: "vocab: not made yet" in log.read_text(), "vocab begins")
    run.cluster.ask("scancel", "--signal=TERM", job["JobId"])
    run.queued_again(job)


def test_jobs_wait_for_one_another_with_resources_of_their_own(run: Run) -> None:
    jobs = {stage: run.cluster.job(stage, run.workdir) for stage in ("train", "prepare", "report")}
    assert jobs["train"]["Dependency"].startswith("afterok:")
    assert {stage: job["NumNodes"].partition("-")[0] for stage, job in jobs.items()} == {
        "train": "2", "prepare": "1", "report": "1",
    }  # fmt: skip
    assert (jobs["prepare"]["CPUs/Task"], jobs["report"]["CPUs/Task"]) == ("2", "1")


def test_who_follows_the_jobs_may_go_and_come_back(run: Run) -> None:
    run.driver.interrupt(signal.SIGINT)
    assert run.driver.wait() == Exit.INTERRUPTED
    assert "scancel" in run.driver.text()
    before = len(run.cluster.jobs())
    run.driver = start(run.cluster, run.workdir).driver
    wait_for(lambda: "train" in run.driver.text(), "it follows")
    assert len(run.cluster.jobs()) == before


def test_a_signal_saves_and_queues_again(run: Run) -> None:
    job = run.learnt()
    run.cluster.ask("scancel", "--signal=TERM", job["JobId"])
    run.queued_again(job)
    assert max(run.checkpoints()) >= 8


def test_a_requeue_saves(run: Run) -> None:
    job, before = run.learnt(), run.checkpoints()
    run.cluster.ask("scontrol", "requeue", job["JobId"])
    run.queued_again(job)
    wait_for(lambda: max(run.checkpoints()) > max(before), "a checkpoint")


def test_a_killed_rank_ends_the_other_and_queues_again(run: Run) -> None:
    job = run.learnt()
    kill(ranks(run, 1))
    run.queued_again(job)


def test_a_preempted_job_saves_and_queues_again(run: Run) -> None:
    job, before = run.learnt(), run.checkpoints()
    urgent = run.cluster.start("srun", "--partition=urgent", "--nodes=2", "--exclusive", "hostname")
    assert urgent.wait() == 0, urgent.text()
    run.queued_again(job)
    assert max(run.checkpoints()) > max(before)


def test_a_lost_node_queues_again(run: Run) -> None:
    job, node = run.learnt(), run.cluster.nodes[1]
    run.cluster.stop_node(node)
    run.queued_again(job)
    run.cluster.start_node(node)


def test_the_run_ends_with_the_weights_of_one_machine(run: Run) -> None:
    assert run.driver.wait(1700) == Exit.DONE, run.driver.text()
    assert "all done" in run.driver.text()
    assert (run.workdir / "report" / "report.html").exists()
    assert run.losses() == STEPS
    run.cluster.idle()
    left = list((run.cluster.folder / "tmp").glob("train-ranks-*"))
    assert len(left) <= 1, "nothing but what the lost node had no time to remove"
    alone = copy_of(run, "alone", "train", "convert", "evaluate*", "report")
    words = ["python", "-m", "pipeline.run", *SETTINGS, "processes=2", f"workdir={alone}"]
    command = run.cluster.start(*words)
    wait_for(lambda: Manifest.read(alone / "train") is not None, "the reference", 900)
    command.interrupt(signal.SIGTERM)
    command.wait()
    assert weights(run.workdir) == weights(alone)


def test_what_a_person_must_see_is_not_queued_again(run: Run) -> None:
    workdir = copy_of(run, "held", "train", "convert", "evaluate*", "report")
    with (workdir / ".train.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        again = start(run.cluster, workdir)
        assert again.driver.wait(900) == Exit.USER, again.driver.text()
    assert "another run is writing this folder" in again.driver.text()
    wait_for(lambda: run.cluster.job("train", workdir)["JobState"] == "FAILED", "its end")
    assert run.cluster.job("train", workdir)["Restarts"] == "0"
    wait_for(lambda: run.cluster.job("report", workdir)["JobState"] == "CANCELLED", "no orphans")
    run.cluster.idle()


def test_a_job_that_gets_no_further_is_not_queued_for_ever(run: Run) -> None:
    workdir = copy_of(run, "blind", "train", "convert", "evaluate*", "report")
    node = run.cluster.nodes[1]
    node.do("mount", "-t", "tmpfs", "none", str(workdir))
    again = start(run.cluster, workdir, "train.start_timeout=20")
    code = again.driver.wait(1500)
    node.do("umount", str(workdir))
    assert code == Exit.RESTART, again.driver.text()
    (log,) = (workdir / "logs").glob("train-*.out")
    assert "without a new checkpoint" in log.read_text()
    run.cluster.idle()


def test_two_jobs_on_the_same_nodes_do_not_meet_and_a_cancelled_one_stays_so(run: Run) -> None:
    workdirs = [copy_of(run, name, "train", "convert", "evaluate*", "report") for name in "ab"]
    submitted = []
    for workdir in workdirs:
        options = ["--nodes=2", "--gpus-per-node=0", "--cpus-per-task=1", "--time=1:00:00"]
        said = run.cluster.ask("sbatch", "--parsable", *options, "deploy/slurm.sh", *SETTINGS,
                               f"workdir={workdir}", "train.steps=100000")  # fmt: skip
        submitted.append(said.strip())
    both = [Run(run.cluster, workdir, run.driver) for workdir in workdirs]
    wait_for(lambda: all(each.losses() > 3 for each in both), "both train", 900)
    run.cluster.ask("scancel", *submitted)
    for job, each in zip(submitted, both, strict=True):
        wait_for(lambda job=job: state(run.cluster, job) == "CANCELLED", "its end")  # type: ignore[misc]
        run.cluster.idle()
        assert each.checkpoints()
        assert state(run.cluster, job) == "CANCELLED"


def state(cluster: Cluster, job: str) -> str:
    return next(found["JobState"] for found in cluster.jobs() if found["JobId"] == job)


def test_a_mistake_of_the_user_fails_at_once(cluster: Cluster) -> None:
    said = cluster.ask("sbatch", "--parsable", "--nodes=1", "--gpus-per-node=0",
                       "--cpus-per-task=1", "deploy/slurm.sh", "+corpus=sample",
                       f"workdir={cluster.folder / 'wrong'}", "train.stepz=3")  # fmt: skip
    job = said.strip()
    wait_for(lambda: state(cluster, job) == "FAILED", "its end")
    (found,) = [found for found in cluster.jobs() if found["JobId"] == job]
    assert found["ExitCode"] == f"{int(Exit.USER)}:0"
    log = cluster.project / f"bert-pretrain-{job}.out"
    assert "did you mean steps?" in log.read_text()
