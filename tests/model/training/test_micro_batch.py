"""How much is computed at a time: chosen, or in tokens; and the end where it does not fit."""

import pytest
import torch

from model.config import TrainConfig
from model.training import micro_batch
from pipeline.errors import ConfigError, Restart
from tests.model.conftest import SMALL, losses, train_many


def test_a_size_that_is_neither_a_number_nor_auto_is_refused():
    for wrong in ("all", 0, 2.5):
        with pytest.raises(ConfigError):
            TrainConfig(out="out", micro_batch=wrong)


def test_an_allocation_that_fails_is_known_for_what_it_is():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 58)
    assert micro_batch.is_too_large(caught.value)
    assert micro_batch.is_too_large(torch.OutOfMemoryError())
    assert not micro_batch.is_too_large(RuntimeError("gloo: connection closed"))


def test_a_rank_that_lost_another_says_what_that_one_did(tmp_path):
    config, lost = TrainConfig(out="out", micro_batch=64), RuntimeError("gloo: connection closed")
    assert isinstance(micro_batch.classify_failure(lost, config, 0, tmp_path), Restart)
    first = micro_batch.classify_failure(torch.OutOfMemoryError(), config, 1, tmp_path)
    other = micro_batch.classify_failure(lost, config, 0, tmp_path)
    assert isinstance(other, ConfigError)
    assert str(first) == str(other)
    assert other.key == "micro_batch"
    assert "micro_batch=32" in str(other)
    (tmp_path / micro_batch.OOM_RECORD).unlink()
    assert isinstance(micro_batch.classify_failure(lost, config, 0, tmp_path), Restart)


@pytest.mark.parametrize(
    ("size", "smaller"), [(8, "take micro_batch=4, "), ("auto", "take micro_batch=8, "), (1, "take compute=recompute")]
)
def test_the_advice_for_too_little_memory_is_a_size_that_can_be_set(size, smaller, tmp_path):
    config = TrainConfig(out="out", micro_batch=size)
    assert smaller in str(micro_batch.classify_failure(MemoryError(), config, 0, tmp_path))


@pytest.mark.slow
def test_auto_learns_what_a_number_of_samples_does(work, tmp_path):
    ways = {"samples": [], "auto": ["micro_batch=auto"]}
    plan = [(2, [f"workdir={work}", f"out={tmp_path / name}", *SMALL, "steps=3", *more]) for name, more in ways.items()]
    train_many(plan)
    for name in ways:
        assert losses(tmp_path / name) == pytest.approx(losses(tmp_path / "samples"), abs=1e-4)


@pytest.mark.slow
def test_where_memory_is_too_small_every_rank_ends_with_2(work, tmp_path):
    large = [f"workdir={work}", f"out={tmp_path}", *SMALL, f"model.feed_forward={1 << 50}"]
    said = train_many([(2, large)], code=2)
    assert said.count("error: micro_batch=4: ") == 2
