from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from model.encoders.attention import cpu, dispatch, flash, rows
from model.encoders.attention.backend import AttentionArgs
from tests.model.encoders import flash_on_cpu  # noqa: F401
from tests.support.examples import examples

CPU = torch.device("cpu")


def packed(lengths, heads=2, width=8, **kind):
    generator = torch.Generator().manual_seed(sum(lengths))
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    shape = (3, sum(lengths), heads, width)
    q, k, v = torch.randn(shape, generator=generator, dtype=torch.float64).to(**kind)
    return [x.clone().requires_grad_() for x in (q, k, v)], cu_seqlens


def by_hand(q, k, v, cu_seqlens, window=None, causal=False):
    """Softmax attention in float64, one sequence at a time."""
    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    out = []
    for start, end in pairwise(cu_seqlens.tolist()):
        scores = torch.einsum("qnd,knd->nqk", q[start:end], k[start:end]) / q.shape[-1] ** 0.5
        if window is not None:
            place = torch.arange(end - start, device=q.device)
            far = (place[:, None] - place).abs() > window
            scores = scores.masked_fill(far, -torch.inf)
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores[0]).triu(1).bool(), -torch.inf)
        out.append(torch.einsum("nqk,knd->qnd", scores.softmax(-1), v[start:end]))
    return torch.cat(out), (q, k, v)


def distance_by_hand(backend, lengths, window=None, causal=False, **kind):
    """The largest difference from `by_hand`, of outputs and of gradients."""
    inputs, cu_seqlens = packed(lengths, **kind)
    place = cu_seqlens.to(inputs[0].device)
    mixed = dispatch.attend(*inputs, backend, AttentionArgs(place, max(lengths), 0.0, causal, window))
    true, true_inputs = by_hand(*inputs, cu_seqlens, window, causal)
    upstream = torch.linspace(-1, 1, true.numel(), dtype=true.dtype, device=true.device).view(true.shape)
    true.backward(upstream)
    mixed.backward(upstream.to(mixed.dtype))
    pairs = [(mixed, true), *((x.grad, y.grad) for x, y in zip(inputs, true_inputs, strict=True))]
    return max((a.double() - b).abs().max().item() for a, b in pairs)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1)), max_size=20), st.integers(1, 4), st.integers(0, 9))
def test_neighbours_of_equal_length_go_together(sizes, longest, tokens):
    runs = cpu.equal_runs(sizes, longest, tokens)
    assert [run[1:] for run in runs for _ in range(run.number)] == sizes
    assert all(1 <= run.number <= max(longest, tokens // run.length) for run in runs)
    for run, following in pairwise(runs):
        assert run[1:] != following[1:] or run.number == max(longest, tokens // run.length)


ragged = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@pytest.mark.parametrize("backend", ["each", "padded", "flash"])
@settings(deadline=None, max_examples=examples(40))
@given(lengths=ragged, window=st.none() | st.integers(1, 9), causal=st.booleans())
def test_backends_equal_softmax_attention_in_double_precision(backend, lengths, window, causal):
    for dtype, most in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        assert distance_by_hand(backend, lengths, window=window, causal=causal, dtype=dtype) < most


@settings(deadline=None, max_examples=examples(40))
@given(
    lengths=ragged | st.integers(1, 9).map(lambda length: [length] * 5) | st.just([cpu.SHORT, cpu.SHORT, 2]),
    window=st.none() | st.integers(1, 9),
    causal=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.bfloat16]),
    learns=st.booleans(),
    data=st.data(),
)
def test_tokens_that_attend_alone_get_the_same(lengths, window, causal, dtype, learns, data):
    (q, k, v), cu_seqlens = packed(lengths, dtype=dtype)
    chosen = data.draw(st.none() | st.lists(st.integers(0, len(q) - 1), unique=True))
    queries = None if chosen is None else torch.tensor(chosen, dtype=torch.int64)
    rows = slice(None) if chosen is None else chosen
    true, true_inputs = by_hand(q, k, v, cu_seqlens, window, causal)
    with torch.set_grad_enabled(learns):
        how = AttentionArgs(cu_seqlens, max(lengths), 0.0, causal, window, queries)
        mixed = dispatch.attend(q if queries is None else q[queries], k, v, "each", how)
    pairs = [(mixed, true[rows])]
    if learns:
        upstream = torch.linspace(-1, 1, mixed.numel(), dtype=true.dtype).view(mixed.shape)
        mixed.backward(upstream.to(dtype))
        true[rows].backward(upstream)
        pairs += [(x.grad, y.grad) for x, y in zip((q, k, v), true_inputs, strict=True)]
    for found, right in pairs:
        torch.testing.assert_close(found.double(), right, rtol=0, atol=1e-12 if dtype == torch.float64 else 0.1)


def test_the_cost_of_a_window_grows_with_the_length_alone():
    """Scores are counted, as time cannot be: those of whole sequences grow with their square."""
    counted = []
    for length in (1000, 2000):
        with FlopCounterMode(display=False) as counter:
            inputs, cu_seqlens = packed([length])
            dispatch.attend(*inputs, "each", AttentionArgs(cu_seqlens, length, 0.0, window=50)).sum().backward()
        counted.append(counter.get_total_flops())
    assert counted[1] < 2.05 * counted[0]  # the two ends of a sequence have one neighbour


def test_a_sequence_of_thousands_of_tokens_is_right_without_its_scores():
    lengths = [cpu.LONG + 1, 3]
    assert distance_by_hand("each", lengths, dtype=torch.float32, width=4) < 1e-5
    inputs, cu_seqlens = packed(lengths, width=4)
    kept = []
    with saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        dispatch.attend(*inputs, "each", AttentionArgs(cu_seqlens, lengths[0], 0.0))
    assert sum(kept) < cpu.LONG**2
    causal = dispatch.attend(*inputs, "each", AttentionArgs(cu_seqlens, lengths[0], 0.0, causal=True))
    torch.testing.assert_close(causal, by_hand(*inputs, cu_seqlens, causal=True)[0])


@pytest.mark.parametrize("backend", ["each", "padded", "flash"])
def test_dropout_keeps_the_mean_and_follows_the_seed(backend):
    (q, k, v), cu_seqlens = packed([30, 7])

    def draw(seed):
        torch.manual_seed(seed)
        with torch.no_grad():
            return dispatch.attend(q, k, v, backend, AttentionArgs(cu_seqlens, 30, 0.2))

    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))
    mean = torch.stack([draw(seed) for seed in range(600)]).mean(0)
    assert (mean - by_hand(q, k, v, cu_seqlens)[0]).abs().max() < 0.15


def test_taken_rows_send_their_gradients_back():
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([5, 0, 6])
    assert torch.equal(rows.take_rows(x, index), x[index])
    assert torch.autograd.gradcheck(lambda x: rows.take_rows(x, index), x)


def test_auto_and_flash_compute_on_a_cpu_too():
    for backend, dtype in (("auto", torch.float32), ("auto", torch.bfloat16), ("flash", torch.float64)):
        assert dispatch.resolve(backend, CPU, dtype) == "each"


@pytest.mark.parametrize(
    ("dtype", "width", "reason"),
    [(torch.float32, 64, "precision"), (torch.bfloat16, 12, "multiple of 8"), (torch.bfloat16, 264, "at most 256")],
)
def test_flash_attention_is_refused_where_its_kernels_refuse(dtype, width, reason):
    cuda = torch.device("cuda")
    assert reason in (flash.unsupported_reason(cuda, dtype, width) or "")
    assert dispatch.resolve("auto", cuda, dtype, width) == "padded"


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["padded", "each", "flash"])
def test_gpu_backends_equal_softmax_attention(backend):
    device = torch.device("cuda")
    kind = {"heads": 4, "width": 64, "dtype": torch.bfloat16, "device": device}
    assert dispatch.resolve(backend, device, torch.bfloat16, 64) == backend
    assert distance_by_hand(backend, [128, 3, 77, 1], **kind) < 0.05
    assert distance_by_hand(backend, [128, 3, 77, 1], window=9, **kind) < 0.05


@pytest.mark.gpu
def test_auto_on_a_gpu_drops_out_with_the_right_mean():
    device = torch.device("cuda")
    (q, k, v), cu_seqlens = packed([30, 7], width=64, dtype=torch.bfloat16, device=device)
    backend = dispatch.resolve("auto", device, q.dtype, 64)
    assert backend == "flash"
    how = AttentionArgs(cu_seqlens.to(device), 30, 0.2)
    with torch.no_grad():
        drawn = [dispatch.attend(q, k, v, backend, how).float() for _ in range(600)]
    true = by_hand(q, k, v, cu_seqlens)[0]
    assert (torch.stack(drawn).mean(0) - true).abs().max() < 0.2


BF16 = [((9, 0), torch.bfloat16, width, "padded") for width in (264, 20)]
BF16 += [(capability, torch.bfloat16, width, "flash") for capability, width in (((8, 0), 64), ((9, 0), 256))]
OTHERS = [((7, 5), torch.float16, 64, "padded"), ((9, 0), torch.float32, 64, "padded")]


@pytest.mark.parametrize(("capability", "dtype", "width", "chosen"), [*BF16, *OTHERS])
def test_a_gpu_takes_the_kernel_that_fits(capability, dtype, width, chosen, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert dispatch.resolve("auto", torch.device("cuda"), dtype, width) == chosen
