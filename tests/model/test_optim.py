"""Schedules rise, fall and end where they should; biases and norms do not decay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from model.config import ScheduleConfig
from model.optim import parameter_groups, rate_share


@given(st.sampled_from(["linear", "cosine", "constant"]), st.floats(0, 1), st.integers(1, 500))
def test_a_rate_is_a_share_of_the_peak(name: str, warmup: float, steps: int) -> None:
    schedule = ScheduleConfig(name=name, warmup_share=warmup)
    shares = [rate_share(schedule, step, steps) for step in range(steps)]
    assert all(0 <= share <= 1 for share in shares)
    assert shares[0] > 0
    peak = shares.index(max(shares))
    assert shares[: peak + 1] == sorted(shares[: peak + 1])
    assert shares[peak:] == sorted(shares[peak:], reverse=True)


@pytest.mark.parametrize(("name", "half"), [("linear", 0.55), ("cosine", 0.55), ("constant", 1.0)])
def test_half_way_down_stands_the_mean_of_peak_and_end(name: str, half: float) -> None:
    schedule = ScheduleConfig(name=name, warmup_share=0.1, final_share=0.1)
    assert rate_share(schedule, 550, 1000) == pytest.approx(half)
    assert rate_share(schedule, 99, 1000) == 1.0


def test_only_matrices_decay() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Embedding(5, 4))
    matrices, vectors = parameter_groups(module, 0.01)
    assert matrices["weight_decay"] == 0.01
    assert vectors["weight_decay"] == 0.0
    assert [p.dim() for p in matrices["params"]] == [2, 2]  # type: ignore[attr-defined]
    assert [p.dim() for p in vectors["params"]] == [1, 1, 1]  # type: ignore[attr-defined]
