"""The operator of flash attention: its mathematics on a CPU, its shapes and signature for a GPU."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from model.encoders.attention import flash
from tests.model.encoders import flash_on_cpu  # noqa: F401

LENGTHS = [3, 1, 5]
TOKENS, HEADS, WIDTH = sum(LENGTHS), 2, 4
BOUNDS = torch.tensor([0, *LENGTHS]).cumsum(0).int()
HOW = [(dropout, causal, flash.FAR) for dropout in (0.0, 0.4) for causal in (False, True)]
HOW += [(0.0, False, 1), (0.0, True, 2)]


def inputs(dtype=torch.float64):
    torch.manual_seed(0)
    return [torch.randn(TOKENS, HEADS, WIDTH, dtype=dtype, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize(("dropout", "causal", "window"), HOW)
def test_gradients_are_those_of_the_same_dropout(dropout, causal, window):
    def mix(*qkv):
        torch.manual_seed(7)
        return flash.flash_attention(*qkv, BOUNDS, max(LENGTHS), dropout, causal, window)[0]

    assert torch.autograd.gradcheck(mix, inputs(), fast_mode=True)


def test_the_operator_keeps_the_promises_that_compilers_rely_on():
    given = (*inputs(torch.float32), BOUNDS, max(LENGTHS), 0.0, False, flash.FAR)
    found = torch.library.opcheck(flash.flash_attention, given)
    assert set(found.values()) == {"SUCCESS"}


def test_strided_queries_as_one_projection_gives_them_are_taken():
    together = torch.randn(TOKENS, 3, HEADS, WIDTH)
    apart = [x.contiguous() for x in together.unbind(1)]
    how = (BOUNDS, max(LENGTHS), 0.0, False, flash.FAR)
    strided = flash.flash_attention(*together.unbind(1), *how)[0]
    assert torch.equal(strided, flash.flash_attention(*apart, *how)[0])


def test_shapes_on_a_gpu_are_those_of_pytorchs_own_kernels():
    """Traced without a GPU: what PyTorch says its kernels return is what the operator promises."""
    with FakeTensorMode():
        q, k, v = torch.empty(TOKENS, 3, HEADS, 64, device="cuda", dtype=torch.bfloat16).unbind(1)
        bounds = torch.empty(len(LENGTHS) + 1, device="cuda", dtype=torch.int32)
        own = torch.ops.aten._flash_attention_forward(
            q, k, v, bounds, bounds, 5, 5, 0.1, False, False, window_size_left=-1, window_size_right=-1
        )
        ours = flash.flash_attention(q, k, v, bounds, 5, 0.1, False, flash.FAR)
        for one, other in zip(ours, own, strict=False):
            assert (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
        gradients = flash.flash_attention_backward(ours[0], q, k, v, *ours, bounds, 5, 0.1, False, flash.FAR)
        assert [x.shape for x in gradients] == [q.shape] * 3


def test_the_kernels_have_the_signatures_that_the_operator_was_written_for():
    """They are private: another PyTorch may change them, and then this file is to be looked at."""
    forward = torch.ops.aten._flash_attention_forward.default._schema
    names = "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask"
    assert [one.name for one in forward.arguments[:10]] == names.split()
    assert {"window_size_left", "window_size_right"} <= {one.name for one in forward.arguments}
    assert [one.name for one in forward.returns[:3]] == ["output", "softmax_logsumexp", "rng_state"]
    backward = torch.ops.aten._flash_attention_backward.default._schema
    names = (
        "grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal rng_state unused"
    )
    assert [one.name for one in backward.arguments[:14]] == names.split()


@pytest.mark.gpu
@pytest.mark.parametrize(("dropout", "causal", "window"), HOW[:4])
def test_on_a_gpu_it_is_what_the_cpu_computes(dropout, causal, window):
    torch.manual_seed(0)
    here = [torch.randn(TOKENS, HEADS, 64).requires_grad_() for _ in range(3)]
    there = [x.detach().cuda().bfloat16().requires_grad_() for x in here]
    how = (max(LENGTHS), dropout, causal, window)
    expected = flash.flash_attention(*here, BOUNDS, *how)[0]
    found = flash.flash_attention(*there, BOUNDS.cuda(), *how)[0]
    torch.testing.assert_close(found.float().cpu(), expected, atol=0.02, rtol=0.02)
    expected.square().sum().backward()
    found.float().square().sum().backward()
    for one, other in zip(there, here, strict=True):
        torch.testing.assert_close(one.grad.float().cpu(), other.grad, atol=0.1, rtol=0.05)


@pytest.mark.gpu
def test_on_a_gpu_the_backward_pass_drops_what_the_forward_pass_dropped():
    """The output is linear in the values: its gradient times them is the output."""
    shape = {"device": "cuda", "dtype": torch.bfloat16}
    q, k, v = (torch.randn(TOKENS, HEADS, 64, **shape).requires_grad_() for _ in range(3))
    out = flash.flash_attention(q, k, v, BOUNDS.cuda(), max(LENGTHS), 0.4, False, flash.FAR)[0]
    upstream = torch.randn_like(out)
    out.backward(upstream)
    expected = (out.float() * upstream.float()).sum()
    assert (v.grad.float() * v.float()).sum().item() == pytest.approx(expected.item(), rel=0.05, abs=0.5)
