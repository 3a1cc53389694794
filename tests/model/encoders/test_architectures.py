"""A further architecture is a file of a few lines: NeoBERT's, as the page that adds it has it."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from model.config.architectures import ARCHITECTURES, Traits
from model.encoders.encoder import PretrainingModel
from model.training import cost
from tests.docs.fences import blocks
from tests.model.encoders.test_modernbert import ragged, small
from tests.support import forked


@pytest.fixture(scope="module")
def code(root):
    (block,) = [b for b in blocks(root / "docs/add-architecture.md") if b.language == "python"]
    return block.text


@pytest.fixture(scope="module")
def neobert(code):
    scope = {"__name__": "neobert"}
    exec(compile(code, "neobert.py", "exec"), scope)
    return SimpleNamespace(**scope)


def test_it_is_under_eighty_lines(code):
    assert len(code.splitlines()) < 80


def plainly(model, ids):
    """Logits of one sequence at all its positions, written as in the paper."""
    size = model.config
    width = size.hidden // size.heads
    x = model.encoder.embeddings.word.weight[ids]
    steps = torch.arange(0, width, 2, dtype=torch.float32) / width
    angles = torch.arange(len(ids), dtype=torch.float32)[:, None] / size.rotary_local**steps
    turn = torch.polar(torch.ones_like(angles), angles).to(torch.complex128)  # (L, D/2)

    def norm(x, weight):
        return weight * x / (x.square().mean(-1, keepdim=True) + size.layer_norm_epsilon).sqrt()

    def heads(x, weight, rotated):
        split = (x @ weight.T).view(len(ids), size.heads, width).transpose(0, 1)
        if not rotated:
            return split
        planes = torch.complex(*split.double().chunk(2, -1)) * turn
        return torch.cat((planes.real, planes.imag), -1).to(x)

    for layer in model.encoder.layers:
        y = norm(x, layer.attention_norm.weight)
        q, k = (heads(y, w, True) for w in (layer.qkv.query, layer.qkv.key))
        shares = (q @ k.mT / width**0.5).softmax(-1)
        mixed = shares @ heads(y, layer.qkv.value, False)
        x = x + mixed.transpose(0, 1).flatten(1) @ layer.mix.weight.T
        gate, value = (norm(x, layer.feed_norm.weight) @ layer.up.weight.T).chunk(2, -1)
        x = x + (gate * gate.sigmoid() * value) @ layer.down.weight.T
    return model.masked_head(norm(x, model.encoder.norm.weight), model.encoder.embeddings.word.weight)


def test_packed_sequences_give_what_the_plain_formulas_give(neobert):
    torch.manual_seed(0)
    model, batch = PretrainingModel(small(), neobert.NEOBERT).double(), ragged([20, 31])
    for name, parameter in model.named_parameters():
        if "norm" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
    found = model(batch)[0]
    for first, last in ((0, 20), (20, 51)):
        own = (batch.masked_positions >= first) & (batch.masked_positions < last)
        right = plainly(model, batch.input_ids[first:last])
        right = right[batch.masked_positions[own] - first]
        torch.testing.assert_close(found[own], right, rtol=1e-6, atol=1e-6)


def test_its_parameters_and_operations_are_counted(neobert, monkeypatch):
    """By its traits, as the page sets them; the head is the masked-LM one alone."""
    monkeypatch.setitem(ARCHITECTURES, "neobert", Traits(gated=True))
    size = small(hidden=64, feed_forward=172, vocab_size=700, attention="each")
    size.architecture = "neobert"
    model, batch = PretrainingModel(size, neobert.NEOBERT), ragged([20, 31])
    true = sum(parameter.numel() for parameter in model.parameters())
    assert cost.parameters(size) == pytest.approx(true, rel=0.03)
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(model(batch)[0], batch.masked_labels).backward()
    tokens, masked = len(batch.input_ids), len(batch.masked_labels)
    unread = 6 * (tokens - masked) * (2 * 64**2 + 3 * 64 * 172)  # rows of the last layer, which only the count has
    among = batch.masked_positions < 20
    unread += 12 * 64 * (20 * int(20 - among.sum()) + 31 * int(31 - (~among).sum()))
    expected = cost.flops(size, [20, 31], masked / tokens) - unread
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-9)


def test_it_learns_and_every_parameter_takes_part(neobert):
    torch.manual_seed(0)
    model, batch = PretrainingModel(small(), neobert.NEOBERT), ragged([20, 31])
    assert {type(m) for m in model.encoder.modules() if "Norm" in type(m).__name__} == {nn.RMSNorm}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(80):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch)[0], batch.masked_labels)
        loss.backward()
        assert all(p.grad is not None and p.grad.any() for p in model.parameters())
        optimizer.step()
    assert loss.item() < 0.1
    other = dataclasses.replace(batch, input_ids=batch.input_ids.flip(0))
    assert not torch.allclose(model(other)[0], model(batch)[0])


def test_parameters_without_values_load_no_compiler():
    """In a process of its own, which has loaded nothing yet."""
    line = (
        "import sys; from model.encoders.architectures import parameter_shapes; from tests.model.sizes import small;"
        "print(len(parameter_shapes(small(30))), 'torch._dynamo' in sys.modules)"
    )
    count, loaded = forked.fresh("-c", line).stdout.split()
    assert int(count) > 10
    assert loaded == "False"
