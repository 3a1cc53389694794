"""Fine-tuning and scoring launch all work of a batch without waiting for a device."""

import dataclasses

import numpy as np
import pytest
import torch

from benchmarks.model.host_waits import HostWaits
from model.encoders.architectures import build_model
from model.finetuning import loop
from model.finetuning.features import UNLABELLED, Samples
from model.finetuning.heads import HeadConfig
from model.finetuning.sentence_scores import SentenceScorer
from tests.model.sizes import small

# The attention of fp32 on a GPU.
CONFIG = small(30, attention="padded")
CPU, META = torch.device("cpu"), torch.device("meta")
LENGTHS = (7, 3, 12, 5, 9, 4)
ROWS = len(LENGTHS)
HEADS = {
    "classes": (HeadConfig("class", 3), np.arange(ROWS) % 3.0),
    "score": (HeadConfig("class", 1), np.arange(ROWS) / 2.0),
    "chunks": (HeadConfig("class", 2, chunks="mean"), np.array([0.0, 1.0])),
    "largest chunks": (HeadConfig("class", 2, chunks="max"), np.array([0.0, 1.0])),
    "attended chunks": (HeadConfig("class", 2, chunks="attention"), np.array([0.0, 1.0])),
    "choices": (HeadConfig("choice", 3), np.array([2.0, 0.0])),
    "tags": (HeadConfig("tag", 4), [np.array([1] + [UNLABELLED] * (n - 1)) for n in LENGTHS]),
    "answers": (HeadConfig("answer", 2), np.array([[1, 2]] * ROWS)),
    "frozen": (
        HeadConfig("class", 2, frozen=True, layers=[0, -1], mix="weighted", pooling="mean"),
        np.arange(ROWS) % 2.0,
    ),
}
GROUPS = {"chunks": [0, 2, 6], "largest chunks": [0, 1, 6], "attended chunks": [0, 2, 6], "choices": [0, 3, 6]}


def some(name):
    draw = np.random.default_rng(0)
    ids = [draw.integers(5, 30, length) for length in LENGTHS]
    groups = np.array(GROUPS.get(name, []), np.int64)
    return Samples(ids, np.full(ROWS, 2), HEADS[name][1], groups)


def built(name, architecture="bert"):
    size = dataclasses.replace(CONFIG, architecture=architecture, dropout=0.0)
    return loop.build(size, None, HEADS[name][0], seed=0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", HEADS)
def test_an_epoch_waits_once_for_its_loss(name, precision):
    recipe = loop.FineTuningConfig(
        batch_size=1, learning_rate=1e-3, epochs=1, seed=0, warmup_share=0.1, weight_decay=0.01, precision=precision
    )
    batches = []
    with HostWaits() as waits:
        epochs = loop.train(built(name), some(name), recipe, CPU, lambda: batches.append(1))
        next(epochs)
    assert len(batches) > 1
    assert waits.total == 1, waits.places


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
@pytest.mark.parametrize("name", HEADS)
def test_a_batch_goes_to_the_device_without_a_wait(name, architecture):
    model, samples = built(name, architecture).to(META), some(name)
    rows = np.arange(len(samples))
    loop.batch_loss(model, samples, rows, META)  # what is made once is made
    with HostWaits() as waits:
        loss = loop.batch_loss(model, samples, rows, META)
        loss.backward()
    assert loss.device == META
    assert waits.total == 0, waits.places


@pytest.mark.parametrize("name", HEADS)
def test_logits_are_all_that_is_waited_for(name):
    with HostWaits() as waits:
        found = loop.predict(built(name), some(name), CPU)
    assert len(found) == len(some(name))
    assert waits.total == 0, waits.places  # their copy, one per batch, is none on a CPU


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("words", [False, True])
def test_scores_of_sentences_are_all_that_is_waited_for(words, causal):
    model = build_model(dataclasses.replace(CONFIG, causal=causal))
    scorer = SentenceScorer(model, mask=4, device=CPU)
    samples = some("classes")
    goes_on = [ids % 3 == 0 for ids in samples.ids] if words else None
    with HostWaits() as waits:
        found = scorer.scores(samples.ids, np.ones(ROWS, np.int64), goes_on)
    assert (found < 0).all()
    assert waits.total == 0, waits.places
