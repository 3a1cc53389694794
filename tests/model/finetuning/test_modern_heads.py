"""Heads on a modern encoder give what transformers' give, pooled as its folder says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tiny_bert import make_vocabulary
from tiny_modernbert import CONFIG, our_state

from model.finetuning import loop, saved_model
from model.finetuning.heads import HeadConfig
from model.huggingface.names import NAMES
from tests.model.finetuning.test_heads import LENGTHS, padded, some

CPU = torch.device("cpu")


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize(
    ("kind", "outputs", "opener"),
    [
        ("class", 3, "SequenceClassification"),
        ("class", 1, "SequenceClassification"),
        ("tag", 4, "TokenClassification"),
        ("answer", 2, "QuestionAnswering"),
        ("choice", 2, "MultipleChoice"),
    ],
)
def test_heads_are_those_of_transformers(tmp_path: Path, kind: str, outputs: int, opener: str, pooling: str) -> None:
    config = replace(CONFIG, classifier_pooling=pooling)
    vocab = make_vocabulary(tmp_path / "vocab")
    ours = loop.build(config, our_state(), HeadConfig(kind, outputs), seed=1).eval()
    saved_model.save(tmp_path / "saved", ours, config, [], vocab)
    theirs, info = getattr(transformers, f"AutoModelFor{opener}").from_pretrained(
        tmp_path / "saved", output_loading_info=True
    )
    assert type(theirs).__name__ == NAMES["modernbert"].tuned[kind]
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    size, again = saved_model.load(tmp_path / "saved")
    assert size.classifier_pooling == pooling
    for name, tensor in ours.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor)

    samples = some(np.zeros(4), [0, 2, 4] if kind == "choice" else ())
    batch = padded(samples)
    del batch["token_type_ids"]
    if kind == "choice":
        batch = {name: tensor.view(2, 2, -1) for name, tensor in batch.items()}
    with torch.no_grad():
        found = theirs.eval()(**batch)
    logits = loop.predict(ours, samples, CPU)
    expected = torch.stack([found.start_logits, found.end_logits], -1) if kind == "answer" else found.logits
    for row, values in enumerate(logits):
        right = expected[row, : len(values)] if kind in ("tag", "answer") else expected[row]
        np.testing.assert_allclose(values, right, atol=1e-5)


def test_a_classifier_begins_with_the_masked_lm_heads_transform() -> None:
    state = our_state()
    built = loop.build(CONFIG, state, HeadConfig("class", 2), seed=1).state_dict()
    assert torch.equal(built["pooler.dense.weight"], state["masked_head.dense.weight"])
    fresh = loop.build(CONFIG, None, HeadConfig("class", 2), seed=1).state_dict()
    assert not torch.equal(fresh["pooler.dense.weight"], state["masked_head.dense.weight"])


def test_a_frozen_encoder_gives_normalised_states() -> None:
    state = our_state()
    head = HeadConfig("class", 2, frozen=True, layers=[0, -1], mix="concat", pooling="mean")
    model = loop.build(CONFIG, state, head, seed=1).eval()
    batch, _ = loop.inputs(some(np.zeros(4)), np.arange(4), CPU)
    first, last = model.features(batch).split(16, dim=1)
    torch.testing.assert_close(last, model.encoder(batch))
    assert first.shape == last.shape == (sum(LENGTHS), 16)
