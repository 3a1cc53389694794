"""Cross entropy in place against PyTorch's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from model.encoders import cross_entropy
from tests.support.examples import examples


def both(logits, labels, factor):
    """(loss, gradient) here, and by PyTorch in double precision."""
    ours = logits.clone().requires_grad_()
    value, correct = cross_entropy.cross_entropy(ours * 1, labels)
    (value * factor).backward()
    true = logits[: len(labels)].double().requires_grad_()
    expected = functional.cross_entropy(true, labels, reduction="sum")
    (expected * factor).backward()
    return (value, ours.grad, correct), (expected, true.grad)


@settings(deadline=None, max_examples=examples(30))
@given(rows=st.integers(0, 9), classes=st.integers(1, 300), scale=st.sampled_from([1, 30]))
def test_loss_and_gradient_equal_those_in_double_precision(rows, classes, scale):
    torch.manual_seed(rows * classes)
    logits, labels = scale * torch.randn(rows, classes), torch.randint(classes, (rows,))
    (value, gradient, correct), (expected, true) = both(logits, labels, 0.37)
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), true, rtol=1e-4, atol=1e-6)
    assert correct.item() == (logits.argmax(-1) == labels).sum().item()


def test_rows_without_a_label_are_padding():
    torch.manual_seed(0)
    logits, labels = torch.randn(8, 7), torch.randint(7, (5,))
    (value, gradient, correct), _ = both(logits, labels, 0.37)
    (expected, true, right), _ = both(logits[:5], labels, 0.37)
    assert torch.equal(value, expected)
    assert torch.equal(correct, right)
    assert torch.equal(gradient[:5], true)
    assert not gradient[5:].any()


def test_more_rows_than_are_worked_on_at_once(monkeypatch):
    monkeypatch.setattr(cross_entropy, "CACHED", 20)
    logits, labels = torch.randn(33, 7), torch.randint(7, (33,))
    (value, gradient, _), (expected, true) = both(logits, labels, 2.0)
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient.double(), true, rtol=1e-5, atol=1e-6)


def test_of_equal_scores_the_first_is_the_prediction():
    logits = torch.tensor([[0.0, 2.0, 2.0]]).repeat(3, 1).requires_grad_()
    _, correct = cross_entropy.cross_entropy(logits * 1, torch.tensor([0, 1, 2]))
    assert correct.item() == 1


def test_half_precision_rounds_the_gradient_once():
    torch.manual_seed(0)
    logits, labels = torch.randn(20, 1000).bfloat16(), torch.randint(1000, (20,))
    (value, gradient, _), (expected, true) = both(logits, labels, 1 / 3)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0)
    # Two roundings of 8 bits: the saved gradient's and the scaled one's.
    torch.testing.assert_close(gradient.double(), true, rtol=2**-7, atol=1e-9)


def test_without_gradients_the_logits_stay():
    logits, labels = torch.randn(5, 9), torch.randint(9, (5,))
    before = logits.clone()
    with torch.no_grad():
        cross_entropy.cross_entropy(logits, labels)
    assert torch.equal(logits, before)


def test_a_second_backward_pass_is_refused():
    logits = torch.randn(3, 4, requires_grad=True)
    value, _ = cross_entropy.cross_entropy(logits * 1, torch.tensor([0, 1, 2]))
    value.backward(retain_graph=True)
    with pytest.raises(RuntimeError):
        value.backward()


@pytest.mark.parametrize("classes", [None, torch.arange(7)], ids=["on a GPU", "on a CPU"])
def test_the_greatest_score_is_the_prediction_on_every_device(classes):
    x, labels = torch.randn(90, 7), torch.randint(7, (90, 1))
    greatest, right = cross_entropy.best(x, x.gather(-1, labels), labels, classes)
    assert torch.equal(greatest[:, 0], x.amax(-1))
    assert torch.equal(right, x.argmax(-1, keepdim=True) == labels)
