"""A small world to train in, and real training processes without a launcher's start-up time."""

import json
import os
import shutil
from dataclasses import replace

import pytest

from benchmarks.small import make_work
from model.tracking.metrics_file import read_metrics
from pipeline.records.manifest import Manifest
from tests.support import forked

SHARD = "train-00000-of-00001.arrow"
COUNTED = 3000.0  # words of the 300 rows
SETTINGS = (
    "model=tiny model.hidden=32 model.feed_forward=64 model.positions=32 model.dropout=0 "
    "model.attention_dropout=0 batch_size=12 micro_batch=4 steps=12 log_every=1 threads=1 "
    "optimizer.learning_rate=1e-2 tracking=none evaluate_every=100 save_every=100"
)
# The last batch is of one sample: a second process has none.
SMALL = (*SETTINGS.split(), "evaluate_samples=25")


@pytest.fixture(autouse=True)
def _gpu(request):
    """Skip what needs a CUDA device where there is none."""
    if request.node.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device here")


@pytest.fixture(scope="session")
def work(tmp_path_factory):
    """A folder with a vocabulary and prepared shards."""
    return make_work(tmp_path_factory.mktemp("work"))


def counted(work, folder):
    """The prepared shards with their words, as `prepare` notes them."""
    shutil.copytree(work / "prepare", folder)
    made = Manifest.read(folder)
    counts = {"shards": {SHARD: {"words": COUNTED}}, "totals": {"train": 300}}
    replace(made, figures=made.figures | counts).write(folder)
    return folder


def train_many(plan, code=0):
    """Train with each number of processes and list of settings in turn; returns what was said.

    `code` is the exit code of the last one; those before must succeed.
    """
    said = ""
    for number, (processes, settings) in enumerate(plan, 1):
        done = forked.module("model.train", *settings, ranks=processes, env=os.environ | {"OMP_NUM_THREADS": "1"})
        said += done.stdout + done.stderr
        assert done.returncode == (code if number == len(plan) else 0), said
    return said


def printed(done):
    """The objects of JSON that a command printed, a line each."""
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def rows(out, kind="train"):
    """The rows of a run's metrics.jsonl."""
    return [row for row in read_metrics(out) if row["kind"] == kind]


def losses(out):
    """The loss of each step."""
    return [row["loss"] for row in rows(out)]
