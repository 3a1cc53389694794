"""The steps of a start, each alone: plan, join, restore."""

from pathlib import Path

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
from model.encoders.architectures import build_model
from model.huggingface import bert_format
from model.training import start
from model.training.deepspeed_engine import World
from pipeline.common.stores.background_upload import CheckpointStore
from tests import forked


def config(work: Path, start: str | None = None) -> TrainConfig:
    return TrainConfig(
        out="out",
        start=start,
        data=DataConfig(dir=str(work / "prepare"), vocab=str(work / "vocab")),
        model=ModelConfig(name="x", layers=1, hidden=8, heads=2, feed_forward=8, positions=32),
        objective=ObjectiveConfig(name="bert"),
        optimizer=OptimizerConfig(name="adamw"),
        schedule=ScheduleConfig(name="constant"),
        tracking=TrackingConfig(name="none"),
        batch_size=12,
        micro_batch="auto",
        steps=3,
        threads=1,
    )


def test_a_plan_needs_no_other_rank(work: Path, tmp_path: Path) -> None:
    made = start.plan(config(work), tmp_path, "f" * 64, "c", {})
    assert not dist.is_initialized()
    assert (made.steps, made.longest, list(made.held_out)) == (3, 32, [""])
    assert made.model.vocab_size == made.wordpiece.size
    assert (made.beginning.updates, made.beginning.data) == (0, made.shards[0].checksum())
    assert made.folder == tmp_path / "checkpoints" / ("f" * 12)


def test_weights_to_start_from_are_those_of_the_engine(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "newest", lambda *_: None)
    monkeypatch.setattr(start, "build_engine", lambda module, *_: module)
    size = start.plan(config(work), tmp_path, "f" * 64, "c", {}).model
    state = build_model(size).state_dict()
    bert_format.save(tmp_path / "start", size, state, work / "vocab")
    plan = start.plan(config(work, str(tmp_path / "start")), tmp_path, "f" * 64, "c", {})
    world = World(0, 1, torch.device("cpu"))
    module, _, begun, resumed = start.restore(start.Session(plan, world, 1.0), CheckpointStore(), lambda: None)
    assert (begun.step, resumed) == (0, False)
    assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())


RESTORE = """
import sys
from pathlib import Path
from model.training import start
from pipeline.common.stores.background_upload import CheckpointStore
from tests.model.training.test_start import config
plan = start.plan(config(Path(sys.argv[1])), Path(sys.argv[2]), "f" * 64, "c", {})
session = start.join(plan, lambda: None)
_, _, state, resumed = start.restore(session, CheckpointStore(), lambda: None)
print("found", session.world.size, session.plan.config.micro_batch, state.step, resumed)
"""


@pytest.mark.slow
def test_a_session_has_a_micro_batch_and_an_engine_at_the_first_step(work: Path, tmp_path: Path) -> None:
    done = forked.fresh("-c", RESTORE, work, tmp_path)
    assert "found 1 12 0 False" in done.stdout, done.stderr
