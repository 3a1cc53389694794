"""Rows that pad matrix products, for bf16 on a CPU, change no result."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from model.encoders.architectures import build_model
from model.encoders.attention.rows import pad_rows
from model.encoders.batch import Batch
from model.encoders.encoder import prepare_for
from model.training.step_metrics import losses
from tests.model.encoders import test_bert, test_modernbert
from tests.support.examples import examples

MODELS = {
    "bert": lambda: build_model(test_bert.small(dropout=0.0, attention_dropout=0.0)),
    "modernbert": lambda: build_model(test_modernbert.small()),
}


def results(model, batch):
    """The two losses, the metrics, and the gradient of every parameter."""
    model.zero_grad()
    masked, pair, sums = losses(*model(batch), batch)
    (masked + pair).backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return torch.stack((masked.detach().double(), pair.detach().double())), sums, gradients


@pytest.mark.parametrize("architecture", MODELS)
@settings(deadline=None, max_examples=examples(10))
@given(lengths=st.lists(st.integers(4, 60), min_size=1, max_size=6), multiple=st.integers(2, 70))
def test_losses_metrics_and_gradients_stay(architecture, lengths, multiple):
    torch.manual_seed(0)
    model = MODELS[architecture]().double()
    batch = test_bert.ragged(lengths)
    wanted = results(model, batch)
    model.encoder.multiple = multiple
    rows = []
    model.encoder.layers[0].register_forward_hook(lambda _, __, out: rows.append(len(out)))
    model.masked_head.register_forward_hook(lambda _, __, out: rows.append(len(out)))
    found = results(model, batch)
    # The cross entropy sums in fp32.
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-7)
    tokens, read = rows
    assert not tokens % multiple
    assert read >= len(batch.masked_labels)


@pytest.mark.parametrize("architecture", MODELS)
def test_an_empty_batch_stays_empty(architecture):
    model, none = MODELS[architecture](), torch.zeros(0, dtype=torch.int64)
    prepare_for(torch.device("cpu"), torch.bfloat16, model)
    assert model.encoder.multiple > 1
    masked, _ = model(Batch(none, none, none, torch.zeros(1).int(), 0, none, none, none))
    assert masked.shape == (0, model.config.vocab_size)


def test_another_attention_gets_no_rows_that_belong_to_no_sequence():
    model = build_model(test_bert.small(attention="padded"))
    prepare_for(torch.device("cpu"), torch.bfloat16, nn.Sequential(model))
    assert model.encoder.multiple == 1


@given(rows=st.integers(0, 9), multiple=st.integers(1, 5))
def test_padding_is_zero_and_at_the_end(rows, multiple):
    x = torch.arange(rows * 2).view(rows, 2) + 1
    found = pad_rows(x, multiple)
    assert len(found) % multiple == 0
    assert len(found) - rows < multiple
    assert torch.equal(found[:rows], x)
    assert not found[rows:].any()
