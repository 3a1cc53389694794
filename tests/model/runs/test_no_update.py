"""A run in which no update has taken effect yet: it is saved, and says why it ends."""

import os
import signal
import subprocess
import sys

import pytest

from model.huggingface import bert_format
from model.training import initial_weights
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Manifest
from tests.model.conftest import SMALL, losses, rows, train_many
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def overflowing(work, tmp_path_factory):
    """A model whose first forward pass overflows, though each of its weights is finite."""
    folder = tmp_path_factory.mktemp("overflowing")
    train_many([(1, [f"workdir={work}", f"out={folder / 'train'}", *SMALL, "steps=1"])])
    source = initial_weights.read(folder / "train")
    source.state["encoder.embeddings.norm.weight"].fill_(3e38)
    bert_format.save(folder / "start", source.config, source.state, work / "vocab")
    return folder / "start"


@pytest.mark.parametrize(("stage", "processes"), [(0, 1), (1, 1), (2, 2), (3, 2)])
def test_a_run_without_one_good_update_is_saved_and_diagnosed(work, tmp_path, overflowing, stage, processes):
    settings = [f"workdir={work}", f"out={tmp_path}", *SMALL, f"start={overflowing}", "bad_steps=3"]
    said = train_many([(processes, [*settings, f"deepspeed=zero{stage}"])], code=3)
    assert "steps 1 to 3" in said
    state = checkpoint_folder.locate(tmp_path)[1]
    assert (state.step, state.skipped, state.updates) == (3, 3, 0)
    for row in rows(tmp_path):
        assert not [key for key in row if key.endswith(("loss", "accuracy"))]
        assert row["samples_per_second"] > 0
    assert "loss 0.000" not in said


def test_a_run_that_ends_without_one_good_update_is_no_success(work, tmp_path, overflowing):
    settings = [f"workdir={work}", f"out={tmp_path}", *SMALL, f"start={overflowing}", "steps=2"]
    said = train_many([(1, settings)], code=3)
    assert "held-out loss is not finite" in said
    assert Manifest.read(tmp_path) is None
    assert rows(tmp_path, "validation") == [{"kind": "validation", "step": 2}]


def test_nothing_is_removed_while_updates_are_skipped(work, tmp_path, overflowing):
    words = [*SMALL, f"start={overflowing}", "bad_steps=3", "save_every=1", "keep=1"]
    train_many([(1, [f"workdir={work}", f"out={tmp_path}", *words])], code=3)
    assert list(checkpoint_folder.steps(checkpoint_folder.locate(tmp_path)[0].parent)) == [1, 2, 3]


@pytest.mark.parametrize(("stage", "processes"), [(0, 1), (1, 2), (3, 2)])
def test_weights_that_are_not_finite_are_never_saved(work, tmp_path, stage, processes):
    words = [*SMALL, f"deepspeed=zero{stage}", "optimizer.learning_rate=1e39", "save_every=1"]
    said = train_many([(processes, [f"workdir={work}", f"out={tmp_path}", *words])], code=3)
    assert "no checkpoint was saved" in said
    assert not list((tmp_path / checkpoint_folder.RUNS).glob("*/step-*"))


def test_a_rate_that_makes_every_later_loss_infinite_is_no_success(work, tmp_path):
    words = [*SMALL, "optimizer.learning_rate=1e30", "steps=5"]
    train_many([(1, [f"workdir={work}", f"out={tmp_path}", *words])], code=3)
    assert Manifest.read(tmp_path) is None


def test_a_signal_before_the_first_good_update_asks_for_a_restart(root, work, tmp_path, overflowing):
    words = [f"workdir={work}", f"out={tmp_path}", *SMALL, f"start={overflowing}"]
    words = [sys.executable, "-m", "model.train", *words, "steps=100000", "bad_steps=100000"]
    process = subprocess.Popen(words, cwd=root, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    wait_for(lambda: rows(tmp_path), by=process)
    process.send_signal(signal.SIGTERM)
    assert (process.wait(60), checkpoint_folder.locate(tmp_path)[1].updates) == (75, 0)


# A rank without a sample computes what the others do: its curve is that of one rank.


FEW = ("batch_size=3", "micro_batch=1", "steps=4")
KINDS = {  # settings, and how far the curves may be apart
    "few": (FEW, 1e-4),
    "growing": (("batch_size=6", "schedule.first_batch=1", "schedule.batch_share=1"), 1e-4),
    "recompute": ((*FEW, "compute=recompute"), 1e-4),
    "tokens": ((*FEW, "objective=mlm"), 1e-4),
    "modern": ((*FEW, "model=modern-tiny", "model.layers=4", "objective=modern"), 1e-4),
    "bf16": ((*FEW, "precision=bf16"), 0.02),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_without_a_sample_trains_as_one_rank_does(work, tmp_path, kind):
    words, apart = KINDS[kind]
    settings = [f"workdir={work}", *SMALL, "steps=4", "evaluate_samples=1", *words]
    places = {1: ("deepspeed=zero1", f"out={tmp_path / 'one'}"), 2: ("deepspeed=zero3", f"out={tmp_path / 'two'}")}
    train_many([(processes, [*settings, *more]) for processes, more in places.items()])
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=apart)
