"""The linear layer whose weight gradient takes another way."""

import pytest
import torch
from torch.nn import functional

from model.encoders.linear import MANY_ROWS, Linear, linear, weight_gradient


@pytest.mark.parametrize("rows", [0, 1, 50, MANY_ROWS + 5])
@pytest.mark.parametrize(("width", "out"), [(8, 24), (24, 8), (16, 16)])
def test_every_gradient_is_the_plain_layers(rows, width, out):
    torch.manual_seed(0)
    values = torch.randn(rows, width), torch.randn(out, width), torch.randn(out)
    upstream = torch.randn(rows, out)
    ours = [x.bfloat16().requires_grad_() for x in values]
    plain = [x.detach().double().requires_grad_() for x in ours]
    linear(*ours).backward(upstream.bfloat16())
    functional.linear(*plain).backward(upstream.bfloat16().double())
    for mine, true in zip(ours, plain, strict=True):
        scale = max(1.0, float(true.grad.abs().max())) if true.numel() else 1.0
        assert mine.grad.shape == true.shape
        torch.testing.assert_close(mine.grad.double(), true.grad, rtol=0.02, atol=0.02 * scale)


@pytest.mark.parametrize("rows", [7, MANY_ROWS])
def test_the_weight_gradient_lies_as_the_weight_does(rows):
    assert weight_gradient(torch.randn(rows, 12), torch.randn(rows, 5)).is_contiguous()


def test_fp32_is_pytorchs_own():
    layer, x = Linear(4, 6), torch.randn(3, 4)
    assert torch.equal(layer(x), functional.linear(x, layer.weight, layer.bias))
