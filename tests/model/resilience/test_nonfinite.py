"""Updates that come to nothing: skipped by the optimizer, counted, reported."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.optim.average import AVERAGE, keep_average
from model.resilience.nonfinite import Health, clip_and_skip
from pipeline.errors import Exit


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_leaves_weights_and_moments_alone(bad: float) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    clip_and_skip(optimizer, 0.0)
    weight.grad = torch.ones(3)
    optimizer.step()
    before = weight.detach().clone()
    moments = [value.clone() for value in optimizer.state[weight].values()]
    weight.grad = torch.tensor([1.0, bad, 1.0])
    optimizer.step()
    assert optimizer.overflow  # type: ignore[attr-defined]
    assert torch.equal(weight, before)
    for old, new in zip(moments, optimizer.state[weight].values(), strict=True):
        assert torch.equal(old, new)
    weight.grad = torch.ones(3)
    optimizer.step()
    assert not optimizer.overflow  # type: ignore[attr-defined]
    assert not torch.equal(weight, before)


def test_an_update_that_is_skipped_leaves_the_average_alone() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    keep_average(optimizer, 0.5)
    clip_and_skip(optimizer, 0.0)
    averages = []
    for gradient in (1.0, 1.0, float("nan")):
        weight.grad = torch.full((3,), gradient)
        optimizer.step()
        averages.append(optimizer.state[weight][AVERAGE].clone())
    assert not torch.equal(averages[0], averages[1])
    assert torch.equal(averages[1], averages[2])


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 4))
def test_only_so_many_in_a_row_end_a_run(applied: list[bool], limit: int) -> None:
    health = Health(limit)
    for step, good in enumerate(applied, start=1):
        said = health.record(good, step, 10 * (step - 1), 10)
        assert (said is None) == good
        row = applied[max(step - limit, 0) : step]
        assert health.limit_reached == (len(row) == limit and not any(row))
    assert health.skipped == applied.count(False)


def test_the_diagnosis_names_steps_samples_and_where_the_state_is() -> None:
    health = Health(2)
    health.record(False, 1041, 10_400, 10)
    health.record(False, 1042, 10_410, 10)
    error = health.divergence_error("runs/step-1042")
    assert error.code == Exit.DIVERGED
    for part in ("steps 1,041 to 1,042", "samples 10,400 to 10,419", "runs/step-1042"):
        assert part in str(error)
