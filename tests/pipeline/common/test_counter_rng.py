"""Draws are functions of a key and a position, and look random."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.common import counter_rng


@given(st.integers(0, 2**31), st.lists(st.integers(0, 2**62), min_size=1, max_size=50))
def test_a_draw_depends_on_key_and_position_alone(seed: int, positions: list[int]) -> None:
    key = counter_rng.key(seed, "test")
    together = counter_rng.random_bits(key, np.array(positions))
    alone = [int(counter_rng.random_bits(key, np.array([p]))[0]) for p in positions]
    assert together.tolist() == alone


def test_keys_differ_by_seed_purpose_and_part() -> None:
    keys = [
        counter_rng.key(0, "a"),
        counter_rng.key(1, "a"),
        counter_rng.key(0, "b"),
        counter_rng.key(0, "a", 1),
        counter_rng.key(0, "a", "1", "2"),
        counter_rng.key(0, "a", "12"),
    ]
    assert len({int(key) for key in keys}) == len(keys)


def test_a_key_is_the_same_in_every_version() -> None:
    assert int(counter_rng.key(0, "pairs", 3)) == 0x9B53268F22428CDF
    assert counter_rng.random_bits(counter_rng.key(0, "x"), np.arange(2)).tolist() == [
        2404556396829759006,
        18076970293374853839,
    ]


def test_uniform_draws_fill_the_unit_interval_evenly() -> None:
    draws = counter_rng.uniform(counter_rng.key(0, "u"), np.arange(200_000))
    counts, _ = np.histogram(draws, bins=20, range=(0, 1))
    expected = 10_000
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi-squared, 19 degrees, p = 0.0007


@given(st.integers(1, 2000))
def test_binomial_draws_have_mean_and_variance_of_fair_coins(n: int) -> None:
    keys = counter_rng.random_bits(counter_rng.key(n, "coins"), np.arange(4000))
    heads = counter_rng.binomial_half(keys, np.full(4000, n))
    assert heads.min() >= 0
    assert heads.max() <= n
    assert abs(heads.mean() - n / 2) < 5 * np.sqrt(n / 4 / 4000)
    assert 0.85 < heads.var() / (n / 4) < 1.15


@given(st.integers(0, 500), st.integers(0, 9))
def test_a_permutation_holds_everything_once(n: int, seed: int) -> None:
    assert sorted(counter_rng.permutation(counter_rng.key(seed, "p"), n)) == list(range(n))
