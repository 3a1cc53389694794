"""Starts for training: what fits, and what is said."""

import json
from dataclasses import asdict, replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM

from model.config import DataConfig, ModelConfig, ObjectiveConfig, TrainConfig
from model.encoders.architectures import build_model
from model.huggingface.names import NAMES
from model.training import checkpoint, initial_weights
from pipeline.errors import ConfigError, InputError
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build
from tests.model.sizes import small
from tests.support import finished
from tests.support.refusals import refused

CONFIG = small(30, layers=1, positions=20)
ENTRIES = [*SPECIAL, *(f"w{number}" for number in range(25))]
WORDS = WordPiece(build(ENTRIES))


@pytest.fixture
def folder(tmp_path):
    """A masked LM without pooler and next-sentence head."""
    sizes = {theirs: getattr(CONFIG, ours) for ours, theirs in NAMES["bert"].sizes.items()}
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(**sizes)).save_pretrained(tmp_path)
    return tmp_path


def test_rank_0_says_what_was_drawn(folder, capsys, monkeypatch):
    state = initial_weights.start(folder, CONFIG, WORDS).state
    drawn = {name for name in state if name.startswith(("pooler.", "next_sentence."))}
    lines = capsys.readouterr().out.splitlines()
    assert set(lines) == {f"start: {name}: not in {folder}, randomly initialised" for name in drawn}
    monkeypatch.setenv("RANK", "1")
    again = initial_weights.start(folder, CONFIG, WORDS).state
    assert capsys.readouterr().out == ""
    assert all(torch.equal(again[name], state[name]) for name in state)


@pytest.mark.parametrize("causal", [False, True])
def test_a_causal_start_trained_with_full_attention_is_noted(folder, capsys, causal):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"is_decoder": True}))
    initial_weights.start(folder, replace(CONFIG, causal=causal), WORDS)
    assert ("model.causal=true" in capsys.readouterr().out) is not causal


def test_settings_that_the_start_has_not_are_noted(folder, capsys):
    initial_weights.start(folder, CONFIG, WORDS)
    assert "continues with" not in capsys.readouterr().out
    initial_weights.start(folder, replace(CONFIG, dropout=0.0, layer_norm_epsilon=1e-5), WORDS)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "continues with" in line]
    before, _, after = line.partition("to keep its own, set ")
    assert "model.layer_norm_epsilon=1e-05, model.dropout=0.0" in before
    assert after == "model.layer_norm_epsilon=1e-12 model.dropout=0.1"


def test_a_start_of_another_size_is_refused_with_every_key_to_type(folder):
    other = replace(CONFIG, layers=2, hidden=32, positions=40)
    with pytest.raises(InputError) as caught:
        initial_weights.start(folder, other, WORDS)
    for key in ("layers", "hidden", "heads", "feed_forward", "positions"):
        assert f"model.{key}={getattr(CONFIG, key)}" in str(caught.value)
    assert "layers, hidden, positions" in str(caught.value)
    assert (caught.value.key, caught.value.value) == ("start", str(folder))


@pytest.mark.parametrize("model", ["auto", "wide"])
def test_longer_sequences_than_a_start_has_learnt_are_refused_with_what_fits(folder, model):
    """Not with more positions, which the start would refuse."""
    size = AUTO if model == "auto" else replace(CONFIG, positions=64)
    config = TrainConfig(
        out="o", data=DataConfig(dir="D", vocab="V"), model=size, start=str(folder), objective=ObjectiveConfig(name="o")
    )
    with refused(ConfigError, r"; prepare sequence_length=20"):
        initial_weights.complete_size(config, WORDS, 64)
    assert initial_weights.complete_size(replace(config, model=AUTO), WORDS, 20).positions == 20


def test_a_start_of_another_vocabulary_is_refused(folder):
    with refused(InputError, r"data\.vocab", key="start", value=str(folder)):
        initial_weights.start(folder, replace(CONFIG, vocab_size=60), WORDS)


def test_a_start_of_other_entries_is_refused_even_if_as_many(folder):
    (folder / "vocab.txt").write_text("".join(f"{entry}\n" for entry in ENTRIES))
    initial_weights.start(folder, CONFIG, WORDS)
    others = WordPiece(build([*ENTRIES[:-1], "##w"]))
    with refused(InputError, key="start"):
        initial_weights.start(folder, CONFIG, others)


def test_a_checkpoint_of_other_entries_is_refused_even_if_as_many(tmp_path):
    weights = build_model(CONFIG).state_dict()
    state = finished.state(1, model=asdict(CONFIG), tokenizer=WORDS.sha256)
    path = checkpoint.write(tmp_path, state, weights, {})
    initial_weights.start(path, CONFIG, WORDS)
    with refused(InputError, key="start"):
        initial_weights.start(path, CONFIG, WordPiece(build([*ENTRIES[:-1], "##w"])))


def test_a_start_with_weights_that_are_not_finite_is_refused(folder):
    weights = load_file(folder / "model.safetensors")
    weights["bert.encoder.layer.0.output.dense.bias"][3] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"encoder\.layer\.0\.output\.dense\.bias is float32, or not finite"):
        initial_weights.start(folder, CONFIG, WORDS)


AUTO = ModelConfig(name="auto", layers=0, hidden=0, heads=0, feed_forward=0, positions=0)


def test_the_size_of_a_start_is_read_from_its_folder(folder):
    size = AUTO.filled(initial_weights.size_of(folder))
    assert replace(size, vocab_size=30, name=size.size_name) == replace(CONFIG, name="1 x 16")
    assert replace(AUTO, layers=3).filled(initial_weights.size_of(folder)).layers == 3


def test_a_tensorflow_checkpoint_is_named_for_what_it_is(tmp_path):
    (tmp_path / "bert_model.ckpt.index").write_bytes(b"")
    with pytest.raises(InputError, match="TensorFlow"):
        initial_weights.read(tmp_path)


def test_a_model_alone_has_no_optimizer_to_go_on_with(folder):
    with refused(InputError, key="start_optimizer"):
        initial_weights.start(folder, CONFIG, WORDS).checkpoint()
