"""The steps before the first one, each alone: plan, join, restore."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from model.config import (
    DataConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    ScheduleConfig,
    TrackingConfig,
    TrainConfig,
)
from model.distributed import process_group
from model.distributed.world import World
from model.encoders.architectures import build_model
from model.huggingface import bert_format
from model.training import checkpoint, setup
from pipeline.storage.uploads import BackgroundUpload
from tests.support import forked


def config(work, **more):
    size = ModelConfig(name="x", layers=1, hidden=8, heads=2, feed_forward=8, positions=32)
    return TrainConfig(
        out="out",
        **{"model": size, **more},
        data=DataConfig(dir=str(work / "prepare"), vocab=str(work / "vocab")),
        objective=ObjectiveConfig(name="bert"),
        optimizer=OptimizerConfig(name="adamw"),
        schedule=ScheduleConfig(name="constant"),
        tracking=TrackingConfig(name="none"),
        batch_size=12,
        micro_batch="auto",
        steps=3,
        threads=1,
    )


def test_a_plan_needs_no_other_rank(work, tmp_path):
    made = setup.plan_training(config(work), tmp_path, "f" * 64, "c", {})
    assert not dist.is_initialized()
    assert (made.steps, made.longest, list(made.held_out)) == (3, 32, [""])
    assert made.model.vocab_size == made.wordpiece.size
    assert (made.beginning.updates, made.beginning.data) == (0, made.shards[0].checksum())
    assert made.folder == tmp_path / "checkpoints" / ("f" * 12)


@pytest.fixture
def restore(monkeypatch):
    """Restore a plan on one rank without an engine: return the weights, the state, and whether it is resumed."""
    monkeypatch.setattr(process_group, "gather", lambda value: [value])
    monkeypatch.setattr(process_group, "check_shared_folder", lambda *_: None)

    def engine(module, *_):
        return SimpleNamespace(module=module, load_state_dict=lambda *_: None, load_scale=lambda _: None)

    monkeypatch.setattr(setup, "Engine", engine)

    def restored(plan):
        run = setup.restore(plan, World(0, 1, torch.device("cpu")), 1.0, BackgroundUpload(), lambda: None)
        return run.engine.module.state_dict(), run.state, run.resumed

    return restored


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_first_weights_are_those_of_the_seed_of_the_start_or_of_a_checkpoint(restore, work, tmp_path):
    of = (tmp_path, "f" * 64, "c", {})
    plan = setup.plan_training(config(work), *of)
    drawn, state, resumed = restore(plan)
    assert (state.step, resumed) == (0, False)
    assert same(restore(plan)[0], drawn)
    assert not same(restore(setup.plan_training(config(work, seed=1), *of))[0], drawn)
    other = build_model(plan.model).state_dict()
    bert_format.save(tmp_path / "start", plan.model, other, work / "vocab")
    assert same(restore(setup.plan_training(config(work, start=str(tmp_path / "start")), *of))[0], other)
    checkpoint.write(plan.folder, dataclasses.replace(plan.beginning, step=2), other, {})
    found, state, resumed = restore(plan)
    assert (state.step, resumed) == (2, True)
    assert same(found, other)


def test_a_training_notes_the_longest_sequences_that_it_or_its_start_has_learnt(restore, work, tmp_path):
    of, longer = (tmp_path, "f" * 64, "c", {}), dataclasses.replace(config(work).model, positions=64)
    size = setup.plan_training(config(work, model=longer), *of).model
    weights = build_model(size).state_dict()
    for learnt, noted in ((48, 48), (16, 32), (None, 64)):  # the shards have 32
        bert_format.save(tmp_path / "start", size, weights, work / "vocab", learnt=learnt)
        plan = setup.plan_training(config(work, model=longer, start=str(tmp_path / "start")), *of)
        assert restore(plan)[1].learnt == noted
    for before, noted in ((None, 64), (40, 40)):
        checkpoint.write(plan.folder, dataclasses.replace(plan.beginning, step=2, learnt=before), weights, {})
        assert restore(plan)[1].learnt == noted
    fitting = config(work, model=dataclasses.replace(size, positions=0))
    assert setup.plan_training(fitting, *of).model.positions == 32
    assert setup.plan_training(dataclasses.replace(fitting, start=str(tmp_path / "start")), *of).model.positions == 64


RESTORE = """
import sys
from pathlib import Path
from model.training import setup
from pipeline.storage.uploads import BackgroundUpload
from tests.model.training.test_setup import config
plan = setup.plan_training(config(Path(sys.argv[1])), Path(sys.argv[2]), "f" * 64, "c", {})
run = setup.restore(*setup.join_ranks(plan, lambda: None), BackgroundUpload(), lambda: None)
print("found", run.world.size, run.plan.config.micro_batch, run.state.step, run.resumed)
"""


@pytest.mark.slow
def test_a_run_has_a_micro_batch_and_an_engine_at_the_first_step(work, tmp_path):
    done = forked.fresh("-c", RESTORE, work, tmp_path)
    assert "found 1 12 0 False" in done.stdout, done.stderr
