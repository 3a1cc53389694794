import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import BertWordPieceTokenizer
from transformers import AutoModelForPreTraining

from model import checkpoint
from model.bert import BertForPreTraining
from model.config import ModelConfig
from pipeline import convert, stage
from pipeline.config import ConvertConfig
from pipeline.errors import InputError

SIZES = {"layers": 2, "hidden": 16, "heads": 2, "feed_forward": 32, "positions": 40}


def manifest(folder: Path, name: str, **fields) -> None:
    """A finished stage, as `stage.run` would leave it."""
    common = {"fingerprint": name[0] * 64, "version": 1, "config": {}, "inputs": {}, "files": {},
              "figures": {}, "summary": "", "seconds": 1.0, "finished": "now"}  # fmt: skip
    stage.Manifest(stage=name, **{**common, **fields}).write(folder)


def make_vocabulary(folder: Path, words: str) -> Path:
    folder.mkdir()
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(entries) + "\n")
    BertWordPieceTokenizer(str(folder / "vocab.txt")).save(str(folder / "tokenizer.json"))
    manifest(folder, "vocab")
    return folder


@pytest.fixture
def run(tmp_path):
    """A trained run of three folders: its convert configuration."""
    vocab = make_vocabulary(tmp_path / "vocab", "abcdefgh")
    (tmp_path / "prepare").mkdir()
    manifest(tmp_path / "prepare", "prepare", config={"corpus": {"name": "letters"}})
    (tmp_path / "train").mkdir()
    data = {"dir": str(tmp_path / "prepare")}
    manifest(tmp_path / "train", "train", config={"data": data}, figures={"steps": 7})
    config = ModelConfig(name="small", vocab_size=13, **SIZES)
    torch.manual_seed(0)
    weights = BertForPreTraining(config).state_dict()
    state = checkpoint.State(
        step=7, samples=56, tokens=600, fingerprint="t" * 64, model=dataclasses.asdict(config),
        data="p" * 64, tokenizer=stage.sha256(vocab / "tokenizer.json"),
    )  # fmt: skip
    folder = checkpoint.runs(tmp_path / "train") / ("t" * 12)
    checkpoint.write(folder, state, weights, {"exp_avg.x": torch.zeros(1)})
    return ConvertConfig(
        workdir=str(tmp_path), out=str(tmp_path / "convert"), train=str(tmp_path / "train"),
        vocab=str(vocab), force=False, check=True,
    )  # fmt: skip


def test_a_run_becomes_a_folder_that_transformers_opens(run):
    made = stage.run("convert", run, convert.make)
    assert made.figures["largest_logit_difference"] < 1e-10
    assert made.figures["step"] == 7
    assert "logits equal" in made.summary
    model = AutoModelForPreTraining.from_pretrained(run.out)
    assert model.config.vocab_size == 13
    card = (Path(run.out) / "README.md").read_text()
    assert "letters" in card
    assert "| steps | 7 |" in card


def test_one_checkpoint_converts_like_its_run(run, tmp_path):
    (single,) = checkpoint.runs(Path(run.train)).glob("*/step-*")
    stage.run("convert", run, convert.make)
    other = dataclasses.replace(run, train=str(single), out=str(tmp_path / "other"))
    stage.run("convert", other, convert.make)
    for name in ("model.safetensors", "README.md"):
        assert (tmp_path / "other" / name).read_bytes() == (Path(run.out) / name).read_bytes()


@pytest.mark.parametrize("words", ["abcdefg", "abcdefghi"])
def test_a_vocabulary_of_another_size_is_refused(run, tmp_path, words):
    other = make_vocabulary(tmp_path / "other", words)
    with pytest.raises(InputError, match=f"has {len(words) + 5} entries, the model 13"):
        stage.run("convert", dataclasses.replace(run, vocab=str(other)), convert.make)
    assert not Path(run.out).exists()


def test_another_vocabulary_of_the_same_size_is_refused(run, tmp_path):
    other = make_vocabulary(tmp_path / "other", "stuvwxyz")
    with pytest.raises(InputError, match="not the vocabulary that"):
        stage.run("convert", dataclasses.replace(run, vocab=str(other)), convert.make)


def test_missing_inputs_are_named(run, tmp_path):
    with pytest.raises(InputError, match=r"no finished vocab there"):
        convert.make(dataclasses.replace(run, vocab=str(tmp_path / "no")), tmp_path)
    with pytest.raises(InputError, match=r"no checkpoint there"):
        convert.make(dataclasses.replace(run, train=str(tmp_path / "no")), tmp_path)


@pytest.mark.parametrize("name", ["bert.pooler.dense.bias", "cls.predictions.bias"])
def test_the_check_sees_one_wrong_number(run, name):
    stage.run("convert", run, convert.make)
    model, state, _ = checkpoint.read_model(run.train)
    path = Path(run.out) / "model.safetensors"
    tensors = load_file(path)
    tensors[name][9] += 1e-3
    save_file(tensors, path, metadata={"format": "pt"})
    assert convert.compare(Path(run.out), model, state) > convert.TOLERANCE


def test_a_wrong_conversion_does_not_finish(run, monkeypatch):
    monkeypatch.setattr(convert, "TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match="the conversion is wrong"):
        stage.run("convert", run, convert.make)
    assert not Path(run.out).exists()


def test_the_command_converts_and_then_is_up_to_date(run, root):
    settings = [f"{key}={getattr(run, key)}" for key in ("out", "train", "vocab")]
    command = [sys.executable, "-m", "pipeline.convert", *settings]
    first, second = (
        subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert "logits equal within" in first
    assert "up to date" in second
    assert json.loads((Path(run.out) / "manifest.json").read_text())["stage"] == "convert"
