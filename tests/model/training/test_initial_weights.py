"""Starts for training: what fits, and what is said."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from model.config import ModelConfig
from model.huggingface.bert_names import BERT
from model.training import initial_weights
from pipeline.common.errors import InputError

CONFIG = ModelConfig(name="small", layers=1, hidden=16, heads=2, feed_forward=32, positions=20,
                     vocab_size=30)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A masked LM without pooler and next-sentence head."""
    sizes = {theirs: getattr(CONFIG, ours) for ours, theirs in BERT.sizes.items()}
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(**sizes)).save_pretrained(tmp_path)
    return tmp_path


def test_rank_0_says_what_was_drawn(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = initial_weights.start(folder, CONFIG).state
    drawn = {name for name in state if name.startswith(("pooler.", "next_sentence."))}
    lines = capsys.readouterr().out.splitlines()
    assert set(lines) == {f"start: {name}: not in {folder}, drawn anew" for name in drawn}
    monkeypatch.setenv("RANK", "1")
    again = initial_weights.start(folder, CONFIG).state
    assert capsys.readouterr().out == ""
    assert all(torch.equal(again[name], state[name]) for name in state)


@pytest.mark.parametrize("key", ["layers", "hidden", "positions", "vocab_size"])
def test_a_start_of_another_size_is_refused(folder: Path, key: str) -> None:
    value = getattr(CONFIG, key)
    with pytest.raises(InputError, match=f"{key} is {value} there, {2 * value} here"):
        initial_weights.start(folder, replace(CONFIG, **{key: 2 * value}))


def test_a_tensorflow_checkpoint_is_named_for_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "bert_model.ckpt.index").write_bytes(b"")
    with pytest.raises(InputError, match=r"a TensorFlow checkpoint, .* Hugging Face's format"):
        initial_weights.read(tmp_path)


def test_a_model_alone_has_no_optimizer_to_go_on_with(folder: Path) -> None:
    with pytest.raises(InputError, match=r"start_optimizer=true: .* not a run of ours"):
        initial_weights.start(folder, CONFIG).checkpoint()
