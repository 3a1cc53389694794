"""A fine-tuned model as a Hugging Face folder, as `AutoModelForSequenceClassification` opens it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from model.config import ModelConfig
from model.finetuning.heads import ANSWER, CHOICE, CLASS, TAG, BertWithHead, HeadConfig
from model.huggingface import bert_format, vocabulary
from model.huggingface.read_weights import read_weights
from pipeline.common.errors import InputError

CLASSES = {
    CLASS: "BertForSequenceClassification",
    CHOICE: "BertForMultipleChoice",
    TAG: "BertForTokenClassification",
    ANSWER: "BertForQuestionAnswering",
}
OUTPUTS = {ANSWER: "qa_outputs"}  # their name of the head; else `classifier`


@dataclass(frozen=True)
class SavedModel:
    """A model and what its outputs mean."""

    model: BertWithHead
    labels: list[str]  # empty: a score, choices, or answers


def save(
    folder: Path, model: BertWithHead, size: ModelConfig, labels: list[str], source: Path
) -> None:
    """Write weights, configuration and the vocabulary of `source` into `folder`.

    Raises:
        InputError: the model is causal: transformers' heads would read [CLS], which sees nothing.
    """
    if size.causal:
        raise InputError(f"{source}: a causal model; keep and submit only know those of BERT")
    kind = model.config.kind
    head = OUTPUTS.get(kind, "classifier")
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, tensor in model.state_dict().items():
        theirs = (
            name.replace("head.", f"{head}.", 1)
            if name.startswith("head.")
            else bert_format.their_name(name)
        )
        tensors[theirs] = tensor.detach().cpu().contiguous()
    save_file(tensors, folder / bert_format.WEIGHTS, metadata={"format": "pt"})
    text, entries = vocabulary.read(source)
    config = bert_format.their_config(size, entries, torch.float32)
    config |= {"architectures": [CLASSES[kind]], **names_of(model.config, labels)}
    bert_format.write_json(folder / bert_format.CONFIG, config)
    bert_format.write_tokenizer(folder, size, text, entries)
    bert_format.make_readable(folder)


def names_of(head: HeadConfig, labels: list[str]) -> dict[str, Any]:
    """What config.json says of the outputs."""
    if head.kind == CHOICE:
        return {}
    words = labels or [f"LABEL_{number}" for number in range(head.outputs)]
    said: dict[str, Any] = {
        "id2label": {str(number): word for number, word in enumerate(words)},
        "label2id": {word: number for number, word in enumerate(words)},
    }
    if head.kind == CLASS:
        one = head.outputs == 1
        said["problem_type"] = "regression" if one else "single_label_classification"
    return said


def load(folder: Path | str) -> tuple[ModelConfig, SavedModel]:
    """A fine-tuned model, of ours or of anybody's.

    Raises:
        InputError: it is none, or of a kind that we have no head for.
    """
    folder = Path(folder)
    said = bert_format.read_config(folder)
    named = (said.get("architectures") or [""])[0]
    kinds = {name: kind for kind, name in CLASSES.items()}
    if named not in kinds:
        raise InputError(
            f"{folder}: {named or 'no architecture'} in {bert_format.CONFIG}, not one of "
            f"{', '.join(kinds)}; fine-tune first: python -m pipeline.evaluate … keep=true"
        )
    kind = kinds[named]
    tensors = read_weights(folder)
    name = OUTPUTS.get(kind, "classifier")
    head = {part: tensors.get(f"{name}.{part}") for part in ("weight", "bias")}
    if head["weight"] is None or head["bias"] is None:
        raise InputError(f"{folder}: no {name}.weight and {name}.bias, the head of a {named}")
    size, state, _ = bert_format.load(folder)
    model = BertWithHead(size, HeadConfig(kind, len(head["bias"])))
    weights: dict[str, Tensor] = {n: t for n, t in state.items() if n in set(model.state_dict())}
    weights |= {f"head.{part}": t.float() for part, t in head.items() if t is not None}
    model.load_state_dict(weights)
    words = {int(number): word for number, word in (said.get("id2label") or {}).items()}
    known = kind in (CLASS, TAG) and len(head["bias"]) > 1
    labels = [words.get(n, f"LABEL_{n}") for n in range(len(head["bias"]))] if known else []
    return size, SavedModel(model.eval(), labels)
