import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.encoders.dropout import Dropout, drop


@given(st.integers(0, 70), st.sampled_from([torch.float32, torch.bfloat16]))
def test_an_element_is_dropped_or_scaled(size, dtype):
    x = torch.ones(size, dtype=dtype)
    kept = torch.tensor(1 / 0.9, dtype=dtype)
    dropped = drop(x, 0.1)
    assert dropped.dtype == dtype
    assert all(value == 0 or abs(value - kept) < 0.01 for value in dropped)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_is_kept_and_so_is_the_mean(share):
    torch.manual_seed(0)
    dropped = drop(torch.ones(1000, 1000), share)
    assert (dropped == 0).double().mean().item() == pytest.approx(share, abs=2e-3)
    assert dropped.double().mean().item() == pytest.approx(1, abs=2e-2)


def test_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    gone = (drop(torch.ones(2_000_000), 0.5) == 0).double() - 0.5
    for lag in (1, 2, 3, 4, 5, 8):
        assert abs((gone[:-lag] * gone[lag:]).mean().item()) < 1e-3


def test_gradients_pass_where_values_passed():
    x = torch.randn(100, requires_grad=True)
    dropped = drop(x, 0.3)
    dropped.sum().backward()
    torch.testing.assert_close(x.grad * x.detach(), dropped.detach())


def test_the_module_drops_only_while_training():
    layer, x = Dropout(0.5), torch.ones(100)
    assert torch.equal(layer.eval()(x), x)
    assert not torch.equal(layer.train()(x), x)
