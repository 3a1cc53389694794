"""The time of training follows from its operations and a speed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model.config import DataConfig, ObjectiveConfig, ScheduleConfig, TrainConfig
from model.training import cost, estimate
from tests.model import tiny_modernbert
from tests.model.tiny_bert import CONFIG
from tests.support import finished

MODERN = replace(tiny_modernbert.CONFIG, positions=8192)


def test_an_estimate_names_the_limit_that_ends_a_training(tmp_path):
    few, many = (estimate.estimate_training(planned(tmp_path, words=words), MODERN, 1e9).about for words in (50, 10**9))
    assert "(words=50 allow no more)" in few
    assert "allow" not in many
    unread = estimate.estimate_training(planned(tmp_path, words=50, epochs=3), MODERN, 1e9).about
    assert "(words=50 allow no more), fewer if epochs=3 " in unread


def planned(folder, **more):
    """Ten steps over shards that are not made yet."""
    data = DataConfig(dir=f"{folder}/prepare", vocab="v")
    usual = {"steps": 10, "data": data, "objective": ObjectiveConfig(), "schedule": ScheduleConfig()}
    return TrainConfig(out=str(folder), workdir=str(folder), **usual | more)


def test_fine_tuning_learns_from_train_and_reads_dev():
    once = cost.flops(CONFIG, [20, 30], 0.0)
    assert estimate.tuning_flops(CONFIG, 3, 2, [20, 30], np.zeros(0)) == pytest.approx(6 * once)
    assert estimate.tuning_flops(CONFIG, 1, 1, [], [20, 30]) == pytest.approx(once / 3)


def test_without_shards_a_sequence_is_taken_as_nearly_full(tmp_path):
    assert estimate.mean_length(str(tmp_path), 100) == (90, 0)


def test_folders_of_several_lengths_count_by_their_shares(tmp_path):
    short, long = (str(tmp_path / name) for name in ("short", "long"))
    each = {length: cost.flops(MODERN, [length]) for length in (100, 200, 900, 1800)}
    expected = {short: 1000, long: 2000}
    data = DataConfig(dir=long, more=[short], weights=[1, 3], vocab="v")
    tokens, work = estimate.sample_cost(planned(tmp_path, data=data), MODERN, expected)
    assert tokens == pytest.approx((1800 + 3 * 900) / 4)
    assert work == pytest.approx((each[1800] + 3 * each[900]) / 4)
    config = planned(tmp_path, data=DataConfig(dir=long, more=[short], vocab="v"))
    assert estimate.sample_cost(config, MODERN, expected)[0] == pytest.approx((1800 + 900) / 2)
    for folder, lengths in ((short, {"100": 30}), (long, {"200": 10})):
        Path(folder).mkdir()
        finished.manifest("prepare", figures={"lengths": lengths}).write(Path(folder))
    tokens, work = estimate.sample_cost(config, MODERN, expected)
    assert tokens == pytest.approx((200 + 3 * 100) / 4)
    assert work == pytest.approx((each[200] + 3 * each[100]) / 4)


@pytest.mark.parametrize(
    ("objective", "share"),
    [
        (ObjectiveConfig(mask_share=0.3), 0.3),
        (ObjectiveConfig(mask_share=[0.5, 0.3, 0.1]), 0.3),
        (ObjectiveConfig(predict="next"), 1.0),
    ],
)
def test_tokens_that_are_predicted_cost_a_head_each(objective, share, tmp_path):
    config = planned(tmp_path, batch_size=4, objective=objective)
    found = estimate.estimate_training(config, MODERN, speed=1e9, sequence_lengths={config.data.dir: 100})
    work = 40 * cost.flops(MODERN, [90], share)
    steps = estimate.START + 10 * estimate.STEP
    assert found.seconds == pytest.approx(work / (estimate.REACHED * 1e9) + steps)


@pytest.mark.parametrize(
    ("settings", "kept"), [({}, 3), ({"keep": 5}, 6), ({"keep_every": 4}, 5), ({"save_at_words": [1.0, 2.0]}, 6)]
)
def test_all_checkpoints_that_are_kept_need_room(settings, kept, tmp_path):
    config = planned(tmp_path, **settings)
    plain = estimate.estimate_training(config, MODERN, speed=1e9)
    assert plain.disk == kept * estimate.SAVED * cost.parameters(MODERN)
    averaged = estimate.estimate_training(replace(config, ema=0.9), MODERN, speed=1e9)
    assert averaged.disk / plain.disk == pytest.approx(4 / 3)
    assert averaged.memory > plain.memory


@pytest.mark.parametrize(("stage", "samples", "measured"), [(0, 8, 3.69e9), (1, 32, 5.68e9)])
def test_memory_is_what_a_base_model_took_with_64_tokens_a_sample(stage, samples, measured, tmp_path):
    base = replace(CONFIG, vocab_size=8192, hidden=768, layers=12, heads=12, feed_forward=3072, positions=512)
    deepspeed = {"zero_optimization": {"stage": stage}}
    config = planned(tmp_path, batch_size=32, micro_batch=samples, deepspeed=deepspeed)
    assert estimate.memory_of_training(config, base, 64, ranks=1) == pytest.approx(measured, rel=0.1)


def test_a_machine_too_busy_for_a_second_look_has_a_speed_too():
    assert estimate.processor(8, seconds=0.0) > 0
