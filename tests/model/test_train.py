"""Training with real DeepSpeed processes: resumed anywhere, it goes on as if nothing happened."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from transformers import BertModel

from model.huggingface import bert_format
from model.train import launcher_arguments
from model.training import initial_weights
from pipeline.common.ports import free_port
from pipeline.errors import InputError
from pipeline.records.manifest import Manifest
from tests.model.conftest import SMALL, losses
from tests.support import forked
from tests.support.refusals import refused
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow


def settings(work, out, *more):
    return [f"workdir={work}", f"out={out}", *SMALL, "evaluate_every=6", "save_every=6", *more]


def train(work, out, *more, processes=1):
    """Train in ranks without a launcher, which start in no time."""
    words = [sys.executable, "-m", "model.train", *settings(work, out, *more)]
    return forked.run(words, ranks=processes)


def start(root, work, out, *more, processes=1):
    """Start a training by the documented command."""
    launcher = [
        str(Path(sys.executable).with_name("deepspeed")),
        *shlex.split(f"--num_accelerators {processes} --master_port {free_port()} model/train.py"),
    ]
    return subprocess.Popen(
        [*launcher, *settings(work, out, *more)], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def ranks(process):
    """The process ids of the ranks below a launcher, in order."""
    below = psutil.Process(process.pid).children(recursive=True)
    found = [child for child in below if any("--local_rank=" in word for word in child.cmdline())]
    return [child.pid for child in sorted(found, key=lambda child: child.cmdline()[3])]


@pytest.fixture(scope="module")
def undisturbed(work, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "train"
    done = train(work, out, "deepspeed=zero0")
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_it_learns_and_leaves_a_manifest(undisturbed):
    curve = losses(undisturbed)
    assert len(curve) == 12
    assert curve[-1] < curve[0] - 0.2
    manifest = Manifest.read(undisturbed)
    assert manifest.figures["validation"]["masked_lm_loss"] > 0
    assert manifest.figures["steps"] == 12
    share = manifest.figures["most_frequent_pair_accuracy"]
    assert 0.5 <= share < 1
    assert f"(more frequent class {share:.3f})" in manifest.summary


def test_a_run_resumes_at_another_stage_on_another_number_of_processes(root, work, undisturbed, tmp_path):
    out, every = tmp_path / "train", "log_every=4"
    assert start(root, work, out, every, "deepspeed=zero2", processes=2).wait(280) == 0
    manifest, rows = Manifest.read(out), losses(out)
    (out / "manifest.json").unlink()
    for path in (out / "checkpoints" / manifest.fingerprint[:12]).glob("step-00000012/*"):
        path.write_bytes(path.read_bytes()[:100])  # the last checkpoint is damaged
    done = train(work, out, every, "deepspeed=zero3", "micro_batch=6")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resumed after step 6" in done.stdout
    assert losses(out) == pytest.approx(rows, abs=1e-4)
    assert rows[1] == pytest.approx(np.mean(losses(undisturbed)[4:8]), abs=0.02)
    ends = [Manifest.read(each).figures["validation"]["masked_lm_loss"] for each in (out, undisturbed)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-4)


def test_a_signal_to_one_rank_saves_and_asks_for_a_restart(root, work, tmp_path):
    out, steps = tmp_path / "train", "steps=150"
    process = start(root, work, out, steps, "save_every=1000", processes=2)
    wait_for(lambda: len(losses(out)) >= 5)
    os.kill(ranks(process)[1], signal.SIGUSR1)  # of the others: test_watchdog.py
    assert process.wait(60) == 75
    (saved,) = out.glob("checkpoints/*/step-*")
    assert int(saved.name.removeprefix("step-")) == len(losses(out)) < 150
    assert train(work, out, steps, "save_every=1000", processes=2).returncode == 0
    assert len(losses(out)) == 150


def test_training_goes_on_from_a_published_encoder_and_says_what_it_lacked(root, work, undisturbed, tmp_path):
    trained = initial_weights.read(undisturbed)
    bert_format.save(tmp_path / "whole", trained.config, trained.state, work / "vocab")
    bare = BertModel.from_pretrained(tmp_path / "whole", add_pooling_layer=False)
    bare.save_pretrained(tmp_path / "bare")
    words = [f"workdir={work}", f"out={tmp_path / 'train'}", f"start={tmp_path / 'bare'}"]
    done = forked.run(  # no word on its size
        [sys.executable, "-m", "model.train", *words, *SMALL[SMALL.index("batch_size=12") :], "steps=1"], cwd=root
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "train: 2 x 32, " in done.stdout
    assert f"pooler.dense.weight: not in {tmp_path / 'bare'}" in done.stdout
    weights = initial_weights.read(tmp_path / "train").state
    name = "encoder.layers.1.up.weight"  # one small step from where it was
    assert (weights[name] - trained.state[name]).abs().max() <= 1.1e-2


def test_what_launchers_add_to_the_command_line_goes():
    words = ["--local_rank=3", "a=1", "--local-rank", "2", "--help"]
    assert launcher_arguments(words) == ["a=1", "--help"]


def test_a_checkpoint_names_what_is_wrong_with_it(undisturbed, tmp_path):
    with refused(InputError, path=str(tmp_path)):
        initial_weights.read(tmp_path)
    trained = initial_weights.read(undisturbed)
    assert (trained.config.hidden, trained.steps) == (32, [12])
    assert trained.state["encoder.embeddings.word.weight"].shape == (125, 32)
