"""Layers are one graph of a few, attention included, that batches of all sizes share.

Counted on a CPU with the operator that a GPU takes, so that the same graph is traced.
"""

import dataclasses
from itertools import pairwise

import pytest
import torch
from torch._dynamo.utils import counters

from model.encoders import encoder
from model.encoders.architectures import build_model
from model.encoders.batch import Batch
from model.encoders.dropout import drop
from model.encoders.encoder import Encoder
from tests.model.encoders import flash_on_cpu  # noqa: F401
from tests.model.encoders.test_bert import small

graphs = pytest.mark.slow  # the first one takes half a minute
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """A CPU would take a loop instead of the operator."""
    monkeypatch.setattr(Encoder, "backend", lambda self, *_: self.config.attention)


def batch(number):
    draws = torch.Generator().manual_seed(number)
    lengths = torch.randint(4, 30, (3 + number % 5,), generator=draws).tolist()
    bounds = torch.tensor([0, *lengths]).cumsum(0)
    tokens = int(bounds[-1])
    places = torch.cat([torch.arange(length) for length in lengths])
    ids = torch.randint(5, 50, (tokens,), generator=draws)
    masked = torch.tensor([start + 1 for start, _ in pairwise(bounds.tolist())])
    none, answers = torch.zeros_like(ids), torch.zeros(len(lengths), dtype=torch.long)
    return Batch(ids, none, places, bounds.int(), max(lengths), masked, ids[masked], answers)


def learn(model, given):
    logits, _ = model(given)
    model.zero_grad()
    torch.nn.functional.cross_entropy(logits, given.masked_labels).backward()
    return logits.detach()


def model_of(architecture, dropout, attention="flash", layers=4):
    more = {"global_every": 2, "local_window": 8} if architecture == "modernbert" else {}
    config = dataclasses.replace(
        small(attention=attention, dropout=dropout, attention_dropout=dropout, layers=layers),
        architecture=architecture,
        **more,
    )
    torch.manual_seed(0)
    return build_model(config)


@graphs
@pytest.mark.parametrize(
    ("architecture", "attention"), [("bert", "flash"), ("modernbert", "flash"), ("bert", "padded")]
)
def test_twenty_batches_of_other_sizes_share_the_first_ones_graphs(architecture, attention, monkeypatch):
    torch._dynamo.reset()
    counters.clear()
    model = model_of(architecture, 0.1, attention, layers=6)
    monkeypatch.setattr(encoder, "TOGETHER", 2)
    model.encoder.compile_layers(CPU, torch.float32, "aot_eager")
    learn(model, batch(0))
    made = counters["stats"]["unique_graphs"]
    # Of three pairs: the last one, which computes few rows at its end; ModernBERT's first one.
    assert made == (2 if architecture == "bert" else 3)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for number in range(1, 21):
            learn(model, batch(number))
    assert counters["stats"]["unique_graphs"] == made
    assert not counters["graph_break"]


@graphs
def test_dropout_is_part_of_a_graph_and_keeps_the_mean():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: drop(x.sin(), 0.25), fullgraph=True, dynamic=True, backend="aot_eager")
    torch.manual_seed(0)
    found = compiled(torch.ones(200, 100))
    kept = found != 0
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.02)
    torch.testing.assert_close(found[kept], torch.ones(20_000)[: kept.sum()].sin() / 0.75)


@graphs
@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
def test_compiled_dropout_on_a_cpu_draws_as_eager_dropout(compiler):
    torch._dynamo.reset()

    def twice(x):
        return drop(drop(x.sin(), 0.25) * 2, 0.5).cos()

    found = []
    for run in (twice, torch.compile(twice, fullgraph=True, dynamic=True, backend=compiler)):
        torch.manual_seed(0)
        x = torch.linspace(-2, 2, 20_000).view(200, 100).requires_grad_()
        y = run(x)
        y.sum().backward()
        found.append((y, x.grad))
    torch.testing.assert_close(found[0], found[1])


@graphs
@pytest.mark.parametrize("recompute", [False, True])
def test_a_compiled_model_computes_the_same(recompute):
    torch._dynamo.reset()
    plain, compiled = (model_of("bert", dropout=0.0, layers=5) for _ in range(2))
    compiled.encoder.recompute = recompute
    compiled.encoder.compile_layers(CPU, torch.float32, "aot_eager")
    for number in range(2):
        torch.testing.assert_close(learn(plain, batch(number)), learn(compiled, batch(number)))
        for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
            if one.grad is not None:  # of the head for pairs there is none
                torch.testing.assert_close(one.grad.to_dense(), other.grad.to_dense())


@pytest.mark.parametrize("recompute", [False, True])
def test_what_is_compiled_together_is_every_layer_once(recompute, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda run, **_: run)
    plain, grouped = (model_of("bert", dropout=0.0, layers=5) for _ in range(2))
    grouped.encoder.recompute = recompute
    grouped.encoder.compile_layers(CPU, torch.float32)
    torch.testing.assert_close(learn(plain, batch(0)), learn(grouped, batch(0)))
