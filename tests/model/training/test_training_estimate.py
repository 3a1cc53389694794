"""The time of training follows from its operations and a speed."""

from pathlib import Path

import numpy as np
import pytest
from tiny_bert import CONFIG

from model.encoders.architectures import build_model
from model.training import estimate, flops


def test_parameters_are_counted_to_a_tenth() -> None:
    exact = sum(parameter.numel() for parameter in build_model(CONFIG).parameters())
    assert estimate.parameters(CONFIG) == pytest.approx(exact, rel=0.1)


def test_fine_tuning_learns_from_train_and_reads_dev() -> None:
    once = flops.of_sequences(CONFIG, [20, 30], 0.0)
    assert estimate.tuning(CONFIG, 3, 2, [20, 30], np.zeros(0)) == pytest.approx(6 * once)
    assert estimate.tuning(CONFIG, 1, 1, [], [20, 30]) == pytest.approx(once / 3)


def test_without_shards_a_sequence_is_taken_as_nearly_full(tmp_path: Path) -> None:
    assert estimate.mean_length(str(tmp_path), 100) == 90


def test_a_machine_too_busy_for_a_second_look_has_a_speed_too() -> None:
    assert estimate.processor(8, seconds=0.0) > 0
