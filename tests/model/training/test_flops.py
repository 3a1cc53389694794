"""The count of floating-point operations."""

import dataclasses

import pytest

from model.config import ModelConfig
from model.training import flops

LARGE = ModelConfig(
    name="large", layers=24, hidden=1024, heads=16, feed_forward=4096, vocab_size=30522
)


def test_count_is_the_published_one() -> None:
    layers, h, v, t = 24, 1024, 30522, 128
    published = (72 * layers * h**2 + 12 * layers * h * t + 6 * (h * v + h**2) * 0.15) * t
    assert flops.of_sequences(LARGE, [t]) == pytest.approx(published, rel=1e-6)


def test_count_adds_up_over_sequences() -> None:
    parts = sum(flops.of_sequences(LARGE, [length]) for length in (5, 77, 128))
    assert flops.of_sequences(LARGE, [5, 77, 128]) == pytest.approx(parts)


def test_a_wider_feed_forward_costs_its_two_products() -> None:
    wide = dataclasses.replace(LARGE, feed_forward=8192)
    more = flops.of_sequences(wide, [10]) - flops.of_sequences(LARGE, [10])
    assert more == pytest.approx(
        6 * 2 * 1024 * 4096 * 24 * 10
    )  # two matrices, forward and twice backward


def test_a_local_layer_costs_the_pairs_in_sight_and_a_gated_unit_its_third_product() -> None:
    sizes = {"layers": 4, "hidden": 16, "heads": 2, "feed_forward": 24, "vocab_size": 50}
    modern = ModelConfig(name="m", architecture="modernbert", local_window=8, **sizes)
    for length in (1, 4, 5, 6, 40):
        seen = sum(abs(i - j) <= 4 for i in range(length) for j in range(length))
        # Layers 0 and 3 see all.
        products = 4 * 16**2 + 3 * 16 * 24
        expected = 4 * 6 * products * length + 12 * 16 * (2 * length**2 + 2 * seen)
        expected += 6 * (16 * 50 + 16**2) * 0.3 * length
        assert flops.of_sequences(modern, [length], 0.3) == pytest.approx(expected)
