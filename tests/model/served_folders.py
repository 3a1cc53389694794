"""Folders in Hugging Face's format of each kind that is served: tiny, with random weights."""

import json
from collections.abc import Callable
from pathlib import Path

import torch

from model.config import ModelConfig
from model.encoders.architectures import build_model
from model.finetuning import saved_model
from model.finetuning.heads import BertWithHead, HeadConfig
from model.huggingface import bert_format
from tests.model import tiny_bert, tiny_modernbert

SIZES = {"bert": tiny_bert.CONFIG, "modernbert": tiny_modernbert.CONFIG}


def pretrained(folder: Path, size: ModelConfig, vocab: Path) -> None:
    torch.manual_seed(0)
    bert_format.save(folder, size, build_model(size).state_dict(), vocab)


def of_sentences(folder: Path, size: ModelConfig, vocab: Path) -> None:
    pretrained(folder, size, vocab)
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(modules.items())
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": size.hidden, "pooling_mode_mean_tokens": True})
    )


def tuned(kind: str) -> Callable[[Path, ModelConfig, Path], None]:
    def save(folder: Path, size: ModelConfig, vocab: Path) -> None:
        torch.manual_seed(0)
        model = BertWithHead(size, HeadConfig(kind, 2))
        saved_model.save(folder, model, size, [] if kind == "answer" else ["no", "yes"], vocab)

    return save


def made(tmp_path: Path, architecture: str, make: Callable[[Path, ModelConfig, Path], None]) -> Path:
    make(tmp_path / "model", SIZES[architecture], tiny_bert.make_vocabulary(tmp_path / "vocab"))
    return tmp_path / "model"
