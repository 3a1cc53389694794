"""A fine-tuned model as a Hugging Face folder, as `AutoModelForSequenceClassification` opens it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from model.config import ModelConfig
from model.finetuning.heads import BertWithHead, HeadConfig
from model.huggingface import bert_format, vocabulary
from model.huggingface.names import ANSWER, CHOICE, CLASS, TAG, Names
from model.huggingface.read_weights import read_weights
from pipeline.common.errors import InputError

KINDS = {  # of head, by the class of transformers
    named: kind for names in bert_format.NAMES.values() for kind, named in names.tuned.items()
}


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
    names = bert_format.names_for(size)
    state = {
        name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
    head = head_name(names, kind)
    own = {f"{head}.{part}": state.pop(f"head.{part}") for part in ("weight", "bias")}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        names.their_tensors(state) | own, folder / bert_format.WEIGHTS, metadata={"format": "pt"}
    )
    text, entries = vocabulary.read(source)
    config = bert_format.their_config(size, entries, torch.float32)
    config |= {"architectures": [names.tuned[kind]], **names_of(model.config, labels)}
    bert_format.write_json(folder / bert_format.CONFIG, config)
    bert_format.write_tokenizer(folder, size, text, entries)
    bert_format.make_readable(folder)


def head_name(names: Names, kind: str) -> str:
    """Their name of a head's last layer."""
    return names.answer_head if kind == ANSWER else "classifier"


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
    if named not in KINDS:
        raise InputError(
            f"{folder}: {named or 'no architecture'} in {bert_format.CONFIG}, not one of "
            f"{', '.join(KINDS)}; fine-tune first: python -m pipeline.evaluate … keep=true"
        )
    kind = KINDS[named]
    size, state, _ = bert_format.load(folder)
    names = bert_format.names_for(size)
    tensors = read_weights(folder, names)
    name = head_name(names, kind)
    head = {part: tensors.get(f"{name}.{part}") for part in ("weight", "bias")}
    if head["weight"] is None or head["bias"] is None:
        raise InputError(f"{folder}: no {name}.weight and {name}.bias, the head of a {named}")
    model = BertWithHead(size, HeadConfig(kind, len(head["bias"])))
    weights = model.pretrained(state)
    weights |= {f"head.{part}": t.float() for part, t in head.items() if t is not None}
    model.load_state_dict(weights)
    words = {int(number): word for number, word in (said.get("id2label") or {}).items()}
    known = kind in (CLASS, TAG) and len(head["bias"]) > 1
    labels = [words.get(n, f"LABEL_{n}") for n in range(len(head["bias"]))] if known else []
    return size, SavedModel(model.eval(), labels)
