"""What every architecture's encoder does alike."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.encoders.architectures import build_model
from model.encoders.batch import Batch
from tests.model.encoders import test_bert, test_modernbert
from tests.model.encoders.test_bert import ragged
from tests.support.examples import examples

MODELS = {"bert": test_bert.small, "modernbert": test_modernbert.small}
pytestmark = pytest.mark.parametrize("small", MODELS.values(), ids=MODELS)


@settings(deadline=None, max_examples=examples(15))
@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5), data=st.data())
def test_a_last_layer_that_keeps_few_positions_computes_the_same(small, lengths, data):
    torch.manual_seed(0)
    encoder = build_model(small()).double().eval().encoder
    batch = ragged(lengths)
    tokens = len(batch.input_ids)
    keep = data.draw(st.lists(st.integers(0, tokens - 1), unique=True, max_size=9).map(torch.tensor))
    whole = encoder(batch)
    assert whole.shape == (tokens, 16)
    torch.testing.assert_close(encoder(batch, keep.long()), whole[keep.long()])
    torch.testing.assert_close(encoder.states(batch)[-1], whole)


def test_sequences_do_not_see_each_other_and_positions_restart(small):
    torch.manual_seed(0)
    model = build_model(small(initializer_range=0.3)).double().eval()
    batch = ragged([60, 20, 60])
    ids = batch.input_ids.clone()
    ids[80:] = ids[:60]
    same = dataclasses.replace(batch, input_ids=ids, masked_positions=torch.arange(140))
    logits, _ = model(same)
    torch.testing.assert_close(logits[:60], logits[80:])
    ids = ids.clone()
    ids[60:80] = 7
    other, _ = model(dataclasses.replace(same, input_ids=ids))
    torch.testing.assert_close(logits[:60], other[:60])
    assert not torch.allclose(logits[60:80], other[60:80])


def test_an_empty_batch_has_no_loss_and_no_gradient(small):
    model, none = build_model(small()), torch.zeros(0, dtype=torch.int64)
    masked, pairs = model(Batch(none, none, none, torch.zeros(1).int(), 0, none, none, none))
    assert masked.shape == (0, test_bert.VOCAB)
    assert pairs is None or pairs.shape == (0, 2)
    (masked.sum() + (0 if pairs is None else pairs.sum())).backward()
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)


def test_entries_that_pad_the_vocabulary_have_no_probability(small):
    torch.manual_seed(0)
    model, batch = build_model(small()).eval(), ragged([20, 9])
    wanted, _ = model(batch)
    model.masked_head.multiple = 64
    found, _ = model(batch)
    assert found.shape[1] % 64 == 0
    torch.testing.assert_close(found[:, : test_bert.VOCAB], wanted)
    assert (found[:, test_bert.VOCAB :] == -torch.inf).all()
