"""The graph on a real Slurm: a job for each stage, each end one of the promised ones.

The tests follow one run of the whole graph, in order: what they do to it does not change its
weights, which are those of two ranks on one machine, bit for bit.
"""

import fcntl
import re
import signal
import sys
from functools import partial

import pytest

from pipeline.errors import Exit
from pipeline.orchestration.slurm_job import encode_exit
from pipeline.records.manifest import Manifest
from tests.nodes.machines import kill, missing, wait_for
from tests.nodes.slurm_cluster import slurm_cluster
from tests.nodes.slurm_runs import PAGE, SETTINGS, STEPS, Run, copy_of, from_page, start, state, used, weights

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]
TRAINING = ("train", "convert", "evaluate*", "report")  # what a copy makes itself


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    why = missing("slurmctld", "slurmd", "sbatch", "munged")
    if why is not None:
        pytest.skip(why)
    with slurm_cluster(tmp_path_factory.mktemp("slurm") / "lab") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def run(cluster):
    cluster.hold(cluster.nodes[1], 0)
    return start(cluster, cluster.folder / "work")


def ranks(run, number):
    return run.cluster.nodes[number].processes("--local_rank", "train.py")


def test_a_stage_that_saves_nothing_is_queued_again(run):
    job = run.cluster.running("vocab", run.workdir)
    wait_for(lambda: "vocab: not made yet" in run.log(job).read_text(), "vocab begins")
    told = partial(run.cluster.ask, "scancel", "--signal=TERM", job["JobId"])
    run.queued_again(job, told, saved=False)


def test_jobs_wait_for_one_another_with_resources_of_their_own(run):
    jobs = {stage: run.cluster.job(stage, run.workdir) for stage in ("train", "prepare", "report")}
    assert jobs["train"]["Dependency"].startswith("afterok:")
    assert {stage: job["NumNodes"].partition("-")[0] for stage, job in jobs.items()} == {
        "train": "2",
        "prepare": "1",
        "report": "1",
    }
    assert {job["Partition"] for job in jobs.values()} == {"gpu"}
    assert {job["TimeLimit"] for job in jobs.values()} == {"12:00:00"}
    assert (jobs["prepare"]["CPUs/Task"], jobs["report"]["CPUs/Task"]) == ("2", "1")


def test_who_follows_the_jobs_may_go_and_come_back(run):
    for number in (signal.SIGHUP, signal.SIGINT):  # a closed terminal, Ctrl-C
        wait_for(lambda: "job " in run.driver.text(), "it follows")
        run.driver.interrupt(number)
        assert run.driver.wait() == Exit.INTERRUPTED
        assert "scancel" in run.driver.text()
        before = len(run.cluster.jobs())
        run.driver = start(run.cluster, run.workdir).driver
    wait_for(lambda: "train" in run.driver.text(), "it follows")
    assert len(run.cluster.jobs()) == before


def test_a_node_that_comes_late_is_waited_for(run):
    job = run.cluster.running("train", run.workdir)
    port = 20000 + int(job["JobId"]) % 10000
    wait_for(lambda: run.cluster.nodes[0].listens(port), "the first node waits for the other")
    assert not ranks(run, 1)
    assert run.losses() == 0
    (run.cluster.folder / "hold-n1-0").unlink()
    run.learnt()
    assert run.cluster.job("train", run.workdir)["Restarts"] == "0"


def test_a_signal_saves_and_queues_again(run):
    job = run.learnt()
    told = partial(run.cluster.ask, "scancel", "--signal=TERM", job["JobId"])
    run.queued_again(job, told, saved=True, code=Exit.RESTART)
    assert max(run.checkpoints()) >= 8


def test_a_requeue_saves(run):
    job = run.learnt()
    told = partial(run.cluster.ask, "scontrol", "requeue", job["JobId"])
    run.queued_again(job, told, saved=True)


def test_a_killed_rank_ends_the_other_and_queues_again(run):
    job = run.learnt()
    (rank,) = ranks(run, 1)
    run.queued_again(job, partial(kill, rank), saved=False, code=Exit.RESTART)


def preempt(cluster):
    """Run a job of higher priority on all nodes."""
    urgent = cluster.start("srun", "--partition=urgent", "--nodes=2", "--exclusive", "hostname")
    assert urgent.wait() == 0, urgent.text()


def test_a_preempted_job_saves_and_queues_again(run):
    run.queued_again(run.learnt(), partial(preempt, run.cluster), saved=True)


def test_a_lost_node_queues_again(run):
    job, node = run.learnt(), run.cluster.nodes[1]
    run.queued_again(job, partial(run.cluster.stop_node, node), saved=False)
    run.cluster.start_node(node)


def test_an_evaluation_is_queued_again(run):
    job = run.cluster.running("evaluate", run.workdir)
    task = f"{job['ArrayJobId']}_{job['ArrayTaskId']}"
    log = run.workdir / "logs" / f"evaluate-{task}.out"
    wait_for(lambda: log.exists() and ": not made yet" in log.read_text(), "it evaluates")
    run.cluster.ask("scancel", "--signal=TERM", task)
    wait_for(lambda: run.cluster.restarts(job["JobId"]) == 1, "it is in the queue again")


def test_the_run_ends_with_the_weights_of_one_machine(run):
    assert run.driver.wait(1700) == Exit.DONE, run.driver.text()
    assert "all done" in run.driver.text()
    assert (run.workdir / "report" / "report.html").exists()
    assert run.losses() == STEPS
    run.cluster.idle()
    left = {path.name for path in (run.cluster.folder / "tmp").iterdir()}
    # The compiler's cache is for the next process; the lost node had no time to remove its folder.
    left -= {"torchinductor_root"}
    assert len(left) <= 1, left
    log = next((run.workdir / "logs").glob("train-*.out")).read_text()
    assert "0: step" in log, "lines have the number of their node"
    alone = copy_of(run, "alone", *TRAINING)
    words = ["python", "-m", "pipeline.run", *SETTINGS, "processes=2", f"workdir={alone}"]
    command = run.cluster.start(*words)
    wait_for(lambda: Manifest.read(alone / "train") is not None, "the reference", 900)
    command.interrupt(signal.SIGTERM)
    command.wait()
    assert weights(run.workdir) == weights(alone)


def test_what_a_person_must_see_is_not_queued_again(run):
    workdir = copy_of(run, "held", *TRAINING)
    with (workdir / ".train.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        again = start(run.cluster, workdir)
        assert again.driver.wait(900) == Exit.USER, again.driver.text()
    assert "another run" in again.driver.text()
    wait_for(lambda: run.cluster.job("train", workdir)["JobState"] == "FAILED", "its end")
    assert run.cluster.job("train", workdir)["Restarts"] == "0"
    wait_for(lambda: run.cluster.job("report", workdir)["JobState"] == "CANCELLED", "no orphans")
    run.cluster.idle()


def test_a_node_that_never_comes_is_named_and_the_job_not_queued_for_ever(run, request):
    """First the second node, then the first; then one that does not see the run's folder."""
    workdir, (first, second) = copy_of(run, "never", *TRAINING), run.cluster.nodes
    temporary = set((run.cluster.folder / "tmp").iterdir())
    held = [run.cluster.hold(second, 0), run.cluster.hold(first, 1)]
    request.addfinalizer(lambda: [path.unlink() for path in held])  # the next tests need the nodes
    again = start(run.cluster, workdir, "train.start_timeout=10")
    job = run.cluster.running("train", workdir)["JobId"]
    log = workdir / "logs" / f"train-{job}.out"

    def said(words):
        return log.exists() and words in log.read_text()

    wait_for(lambda: said("rank 1 (n1) did not join within 10 s"), "the second is named")
    wait_for(lambda: said("rank 0 (n0) did not start at"), "the first is named")
    second.do("mount", "-t", "tmpfs", "none", str(workdir))
    code = again.driver.wait(900)
    second.do("umount", str(workdir))
    assert code == Exit.RESTART, again.driver.text()
    assert said("new checkpoint")
    assert said("the same command"), "what to do"
    for noise in ("Traceback", "most recent call first", "Exception raised from"):
        assert not said(noise), log.read_text()
    (ended,) = [found for found in run.cluster.jobs() if found["JobId"] == job]
    assert (ended["JobState"], ended["ExitCode"]) == ("FAILED", f"{int(Exit.RESTART)}:0")
    assert ended["Restarts"] == "2"
    run.cluster.idle()
    assert set((run.cluster.folder / "tmp").iterdir()) <= temporary


def test_two_jobs_on_the_same_nodes_do_not_meet_and_a_cancelled_one_stays_so(run):
    workdirs = [copy_of(run, name, *TRAINING) for name in ("ends", "cancelled")]
    submitted = []
    for workdir, more in zip(workdirs, ([], ["train.steps=100000"]), strict=True):
        words = from_page("sbatch --nodes=2", workdir, *more, options=["--parsable"])
        submitted.append(run.cluster.ask(*words).strip())
    both = [Run(run.cluster, workdir, run.driver) for workdir in workdirs]
    wait_for(lambda: all(each.losses() > 3 for each in both), "both train", 900)
    run.cluster.ask("scancel", submitted[1])
    wait_for(lambda: state(run.cluster, submitted[1]) == "CANCELLED", "its end")
    wait_for(lambda: bool(both[1].checkpoints()), "a checkpoint", 60)
    wait_for(lambda: state(run.cluster, submitted[0]) == "COMPLETED", "the whole run", 1500)
    assert (workdirs[0] / "report" / "report.html").exists()
    assert weights(workdirs[0]) == weights(run.workdir)
    assert state(run.cluster, submitted[1]) == "CANCELLED"
    run.cluster.idle()


def test_an_environment_that_does_not_go_along_is_found(run):
    """`--export=NONE`: the clone's own environment, which `make` sets up."""
    workdir = copy_of(run, "bare", "report")
    environment = run.cluster.project / ".venv"
    environment.symlink_to(sys.prefix)
    options = ["--parsable", "--export=NONE"]
    job = run.cluster.ask(*from_page("sbatch --account", workdir, options=options)).strip()
    wait_for(lambda: state(run.cluster, job) in ("COMPLETED", "FAILED"), "its end", 600)
    environment.unlink()
    log = (run.cluster.project / f"bert-pretrain-{job}.out").read_text()
    assert state(run.cluster, job) == "COMPLETED", log
    assert (workdir / "report" / "report.html").exists()


def test_ranks_have_the_gpus_that_slurm_gave(run):
    """Two of each node's are another job's; nothing runs on one, as there are none."""
    held = []
    for node in ("n0", "n1"):
        words = ["--parsable", f"--nodelist={node}", "--gpus-per-node=2", "--wrap=sleep 10000"]
        held.append(run.cluster.ask("sbatch", *words).strip())
    workdir = copy_of(run, "gpus", *TRAINING)
    line = "python -m pipeline.run +corpus=wiki workdir=/shared/wiki executor=slurm '+exec"
    again = start(run.cluster, workdir, "executor.gpus=2", "executor.cpus=2", line=line)
    assert again.driver.wait(900) == Exit.USER, again.driver.text()
    assert "CUDA_VISIBLE_DEVICES=2,3" in again.driver.text()
    job = run.cluster.job("train", workdir)
    assert (job["JobState"], job["Restarts"], job["Features"]) == ("FAILED", "0", "h100")
    log = (workdir / "logs" / f"train-{job['JobId']}.out").read_text()
    assert "module: command not found" in log, "the lines of executor.setup"
    run.cluster.ask("scancel", *held)


def test_a_time_limit_saves_and_queues_again(run):
    """Signalled before the limit; and at the limit itself, where a signal came too late."""
    late = "+executor.options.train=['--signal=CONT@5']"
    both = []
    for name, more in (("before", []), ("at", [late])):
        workdir = copy_of(run, name, *TRAINING)
        settings = ["executor.nodes=1", "executor.wait=false", "train.steps=1000000", *more]
        both.append(start(run.cluster, workdir, *settings))
        assert both[-1].driver.wait() == Exit.DONE, both[-1].driver.text()
    for each in both:
        wait_for(lambda each=each: each.losses() > 3, "it trains", 900)
        job = run.cluster.job("train", each.workdir)
        minutes = int(job["RunTime"].split(":")[1]) + 2  # it may be slow until here
        run.cluster.ask("scontrol", "update", f"JobId={job['JobId']}", f"TimeLimit={minutes}")
    for each in both:
        job = run.cluster.job("train", each.workdir)
        wait_for(lambda job=job: run.cluster.restarts(job["JobId"]) >= 1, "in the queue", 600)
        assert each.checkpoints()
    log = next((both[1].workdir / "logs").glob("train-*.out")).read_text()
    assert "requeued" in log
    run.cluster.cancel(*(each.workdir for each in both))


def test_a_job_that_is_to_be_cancelled_for_another_queues_again(run):
    """A partition with PreemptMode=CANCEL and a GraceTime, before the first step."""
    workdir = copy_of(run, "grace", *TRAINING)
    more = ["executor.partition=cancelled", "executor.wait=false", "train.steps=1000000"]
    start(run.cluster, workdir, *more).driver.wait()
    job = run.cluster.running("train", workdir)["JobId"]
    log = workdir / "logs" / f"train-{job}.out"
    wait_for(lambda: log.exists() and "not made yet" in log.read_text(), "it starts")
    preempt(run.cluster)
    wait_for(lambda: run.cluster.restarts(job) == 1, "it is in the queue again")
    run.cluster.running("train", workdir)
    run.cluster.cancel(workdir)


@pytest.mark.parametrize("code", [Exit.BUG, Exit.USER, Exit.DIVERGED])
def test_what_a_person_must_see_outweighs_what_a_restart_mends(cluster, code):
    other = encode_exit(Exit.RESTART)
    line = f"exit $((SLURM_PROCID ? {other} : {encode_exit(code)}))"
    command = cluster.start("srun", "--nodes=2", "bash", "-c", line)
    assert command.wait() == encode_exit(code)


def test_a_limit_shorter_than_the_margin_is_no_mistake(cluster):
    """TERM comes at once; or to no step yet, and then the limit does."""
    words = ["--parsable", "--nodes=1", "--gpus-per-node=0", "--cpus-per-task=1", "--time=1"]
    workdir = cluster.folder / "short"
    job = cluster.ask("sbatch", *words, "deploy/slurm.sh", *SETTINGS, f"workdir={workdir}").strip()
    wait_for(lambda: cluster.restarts(job) >= 1, "it is in the queue again")
    cluster.ask("scancel", job)
    assert "requeued" in (cluster.project / f"bert-pretrain-{job}.out").read_text()


def test_a_dry_run_shows_jobs_that_slurm_takes(cluster):
    words = ["+corpus=sample", f"workdir={cluster.folder / 'dry'}", "executor=slurm", "executor.gpus=1"]
    shown = cluster.ask("python", "-m", "pipeline.run", *words, "executor.nodes=2", "dry_run=true")
    jobs = shown[shown.index("sbatch ") : shown.rindex("END") + 3]
    assert jobs.count("sbatch ") >= 6
    alone = re.sub(r"--dependency=\S+ --kill-on-invalid-dep=yes ", "", jobs)
    cluster.ask("bash", "-e", "-c", alone.replace("sbatch ", "sbatch --test-only "))


MISTAKES = {
    "+corpus=sample train.stepz=3": "did you mean train.steps?",
    "+corpus=sample train.data.dir=/nowhere": "data.dir=/nowhere",
    "+corpus=sample --fast": "--fast: no such option",
    "": "corpus: is required",
}


def test_mistakes_of_the_user_fail_at_once(cluster):
    words = ["--parsable", "--nodes=1", "--gpus-per-node=0", "--cpus-per-task=1"]
    jobs = {}
    for typed in MISTAKES:
        more = [*typed.split(), f"workdir={cluster.folder / 'wrong'}"] if typed else []
        jobs[typed] = cluster.ask("sbatch", *words, "deploy/slurm.sh", *more).strip()
    for typed, job in jobs.items():
        wait_for(lambda job=job: state(cluster, job) == "FAILED", "its end")
        (found,) = [found for found in cluster.jobs() if found["JobId"] == job]
        assert (found["ExitCode"], found["Restarts"]) == (f"{int(Exit.USER)}:0", "0")
        log = (cluster.project / f"bert-pretrain-{job}.out").read_text()
        assert MISTAKES[typed] in log
        assert "Traceback" not in log


def test_every_command_of_the_page_was_run(run):
    assert set(PAGE) == used
