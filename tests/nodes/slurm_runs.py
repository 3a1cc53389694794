"""Runs on the cluster, and the commands of the page on Slurm, with small settings."""

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from model.tracking.metrics_file import read_metrics
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Manifest, require_manifest
from pipeline.storage.checksums import sha256
from tests.docs.fences import commands
from tests.nodes.machines import ROOT, Command, wait_for
from tests.nodes.slurm_cluster import Cluster

STEPS = 3000
SETTINGS = shlex.split(
    "+corpus=sample corpus.options.packages=[sklearn] tasks=[sample_next] vocab.size=1000 "
    "vocab.sample_bytes=1000000 prepare.sequence_length=32 tasks.train_rows=100 tasks.dev_rows=50 "
    f"train.steps={STEPS} model.hidden=32 model.feed_forward=64 train.batch_size=16 "
    "train.micro_batch=8 train.threads=1 train.save_every=1000 train.evaluate_every=1000 "
    "train.log_every=1 train.timeout=200 train.watchdog=250 train.start_timeout=400 "
    "train.tracking=none evaluate.epochs=1"
)
PAGE = [line for line in commands(ROOT / "docs" / "slurm.md") if not line.startswith("#")]
# What the page's commands have for a large cluster, and here. The rest is typed as on the page.
VALUES = {"+corpus=wiki": "+corpus=sample", "recipe=devlin": "", "model=base": "", "--nodes=4": "--nodes=2"}
SIZES = (("nodes", 4, 2), ("gpus", 8, 0), ("cpus", 32, 2), ("parts", 8, 2))
VALUES |= {f"executor.{name}={old}": f"executor.{name}={new}" for name, old, new in SIZES}
used: set[str] = set()  # the page's commands that were run


def from_page(start, workdir, *more, options=()):
    """Return the page's only command that begins so (without repeated blanks), for this cluster.

    `options` are added after the program, and `more` at the end.
    """
    (line,) = [line for line in PAGE if " ".join(line.split()).startswith(start)]
    used.add(line)
    words = [VALUES.get(word, word) for word in shlex.split(line)]
    words = [f"workdir={workdir}" if word.startswith("workdir=") else word for word in words]
    words[1:1] = options
    given = {word.partition("=")[0] for word in more}
    small = [word for word in SETTINGS if word not in words and word.partition("=")[0] not in given]
    return [word for word in [*words, *small, *more] if word]


MAIN = "python -m pipeline.run +corpus=wiki recipe=devlin"


@dataclass
class Run:
    """A run on the cluster, and the process that follows it."""

    cluster: Cluster
    workdir: Path
    driver: Command

    def losses(self):
        return sum(row["kind"] == "train" for row in read_metrics(self.workdir / "train"))

    def checkpoints(self):
        found = (self.workdir / "train").glob("checkpoints/*/step-*")
        return sorted(int(path.name[5:]) for path in found)

    def learnt(self, more=8):
        """Wait until training runs and has learnt some more; its job."""
        job = self.cluster.running("train", self.workdir)
        log = self.workdir / "logs" / f"train-{job['JobId']}.out"
        before = log.read_text(errors="replace").count(": step ") if log.exists() else 0
        wait_for(
            lambda: log.exists() and log.read_text(errors="replace").count(": step ") >= before + more, "more steps"
        )
        return self.cluster.job("train", self.workdir)

    def processes(self):
        """What runs on the nodes for the job."""
        found = []
        for node in self.cluster.nodes:
            found += node.processes("python") + node.processes("slurmstepd")
        return found

    def queued_again(self, before, disturb, saved, code=0):
        """Disturb a job, and wait until it has been queued once more and all of it has ended.

        `saved`: with a newer checkpoint, else with none. `code`: the stage's, where the job queues
        itself again; Slurm does it too.
        """
        stage = before["JobName"].removeprefix("bert-")
        times, processes = int(before["Restarts"]), self.processes()
        checkpoints, log = self.checkpoints(), self.log(before)
        said = log.read_text(errors="replace").count(f"exit code {code}; requeued")
        disturb()
        wait_for(
            lambda: (
                int(self.cluster.job(stage, self.workdir)["Restarts"]) > times
                or self.cluster.job(stage, self.workdir)["JobState"] == "PENDING"
            ),
            f"{stage} in the queue again",
            300,
        )
        # The next start may have processes already, which are not these.
        wait_for(lambda: not any(map(alive, processes)), "an end of what ran", 60)
        if saved:
            wait_for(lambda: max(self.checkpoints()) > max([*checkpoints, 0]), "a checkpoint", 60)
        elif stage == "train":
            assert self.checkpoints() == checkpoints
        if code:
            text = log.read_text(errors="replace")
            assert text.count(f"exit code {code}; requeued") == said + 1, text

    def log(self, job):
        """Return the file of a job's output."""
        return self.workdir / "logs" / f"{job['JobName'].removeprefix('bert-')}-{job['JobId']}.out"


def alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def start(cluster, workdir, *more, line=MAIN):
    """Start one of the page's `pipeline.run` commands."""
    words = from_page(line, workdir, "executor.poll=1", *more)
    return Run(cluster, workdir, cluster.start(*words))


def weights(workdir):
    manifest = require_manifest(workdir / "train", "train", "out")
    return sha256(workdir / "train" / manifest.figures["checkpoint"] / checkpoint_folder.WEIGHTS)


def copy_of(run, name, *without):
    """A folder where the stages before training are done as in the run."""
    done = [run.workdir / stage for stage in ("prepare", "tasks")]
    wait_for(lambda: all(Manifest.read(path) is not None for path in done), "shards", 900)
    to = run.cluster.folder / name
    shutil.copytree(run.workdir, to, ignore=shutil.ignore_patterns("logs", *without))
    return to


def state(cluster, job):
    return next(found["JobState"] for found in cluster.jobs() if found["JobId"] == job)
