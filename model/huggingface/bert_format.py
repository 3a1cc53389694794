"""The Hugging Face format: folders that `from_pretrained` opens, written and read.

What differs between architectures is in `bert_names` and `modernbert_names`.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from model.config import ModelConfig
from model.encoders.architectures import architecture_of, parameter_shapes
from model.huggingface import model_card, vocabulary
from model.huggingface.bert_names import BERT
from model.huggingface.modernbert_names import MODERNBERT
from model.huggingface.names import Names
from model.huggingface.read_weights import read_weights
from pipeline.common.errors import ConfigError, InputError
from pipeline.common.manifest import Manifest

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"

NAMES = {"bert": BERT, "modernbert": MODERNBERT}  # by our architecture


def names_for(config: ModelConfig) -> Names:
    """Hugging Face's words for the architecture of a model."""
    return NAMES[config.architecture]


def save(
    folder: Path | str,
    config: ModelConfig,
    state: dict[str, Tensor],
    vocab_folder: Path | str,
    manifests: Iterable[Manifest] = (),
    *,
    dtype: torch.dtype = torch.float32,
    shard_bytes: int | None = None,
    remarks: dict[str, Any] | None = None,
) -> None:
    """Write weights, sizes, tokenizer and model card (with the figures of `manifests`).

    The weights are written as `dtype`, in files of at most `shard_bytes` (but one tensor at least)
    where it is given. `remarks` are further rows of the model card.

    Raises:
        InputError: the vocabulary folder lacks a file or is not of the model's size, or a weight is
            too large for `dtype`.
    """
    folder, vocab_folder = Path(folder), Path(vocab_folder)
    folder.mkdir(parents=True, exist_ok=True)
    source, entries = vocabulary.read(vocab_folder)
    vocabulary.check_size(config, len(entries), vocab_folder)
    weights = {name: cast(name, tensor, dtype) for name, tensor in state.items()}
    write_tensors(folder, names_for(config).their_tensors(weights), shard_bytes)
    write_tokenizer(folder, config, source, entries)
    write_json(folder / CONFIG, their_config(config, entries, dtype))
    parameters = sum(tensor.numel() for tensor in state.values())
    text = model_card.write(config, parameters, manifests, remarks or {})
    (folder / "README.md").write_text(text, encoding="utf-8")
    make_readable(folder)


def write_tokenizer(folder: Path, config: ModelConfig, source: str, entries: list[str]) -> None:
    """Write the tokenizer's files: `source` is the text of tokenizer.json, `entries` are by id."""
    (folder / vocabulary.TOKENIZER).write_bytes(source.encode())
    (folder / vocabulary.VOCAB).write_bytes("".join(f"{entry}\n" for entry in entries).encode())
    said = names_for(config).tokenizer | vocabulary.tokenizer_config(config, source)
    write_json(folder / vocabulary.TOKENIZER_CONFIG, said)


def make_readable(folder: Path) -> None:
    """Let everyone read what is in a folder: safetensors files are their owner's alone."""
    for path in folder.iterdir():
        path.chmod(0o644)


def cast(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A weight as `dtype`; no copy where it is already.

    Raises:
        InputError: it is too large for that, or not a number to begin with.
    """
    cast = tensor.to(dtype).contiguous()
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise InputError(
            f"{name}: {bad:,} of its {tensor.numel():,} values are not finite (NaN or infinite): "
            "the weights are broken, whatever the dtype; take an earlier checkpoint",
            key="train",
        )
    if not torch.isfinite(cast).all():
        raise InputError(
            f"{name}: a value of {float(tensor.abs().max()):.3g} is too large for "
            f"{str(dtype).removeprefix('torch.')}; take dtype=bf16 or fp32",
            key="dtype",
        )
    return cast


def write_tensors(folder: Path, tensors: dict[str, Tensor], shard_bytes: int | None) -> None:
    """Write one file, or several with an index as transformers names and reads them."""
    parts = list(shards(tensors, shard_bytes)) if shard_bytes else [tensors]
    if len(parts) == 1:
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        return
    places: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        name = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        save_file(part, folder / name, metadata={"format": "pt"})
        places |= dict.fromkeys(part, name)
    total = sum(tensor.nbytes for tensor in tensors.values())
    write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": places})


def shards(tensors: dict[str, Tensor], size: int) -> Iterator[dict[str, Tensor]]:
    """Runs of tensors of at most `size` bytes; a larger tensor is alone."""
    part: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if part and sum(other.nbytes for other in part.values()) + tensor.nbytes > size:
            yield part
            part = {}
        part[name] = tensor
    yield part


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file for people to read too."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        InputError: it is not there or not a JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: not a JSON object")
    return content


def read_config(folder: Path | str) -> dict[str, Any]:
    """The config.json of a folder in Hugging Face's format.

    Raises:
        InputError: there is none, or it is no JSON object.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        near = [place / "convert" for place in (folder, folder.parent)]
        made = next((place for place in near if (place / CONFIG).is_file()), None)
        mend = f"try {made}" if made else "python -m pipeline.convert makes one"
        raise InputError(f"{folder}: no model in Hugging Face's format there; {mend}")
    return read_json(folder / CONFIG)


def their_config(config: ModelConfig, entries: list[str], dtype: torch.dtype) -> dict[str, Any]:
    """The content of config.json."""
    names = names_for(config)
    return {
        "architectures": [names.pretrained],
        "model_type": names.model_type,
        **{theirs: getattr(config, ours) for ours, theirs in names.sizes.items()},
        **names.fixed,
        **names.settings(config, entries),
        "dtype": str(dtype).removeprefix("torch."),
    }


def load(folder: Path | str) -> tuple[ModelConfig, dict[str, Tensor], list[str]]:
    """Any BERT or ModernBERT folder: its sizes, fp32 weights in our names, and notes.

    The notes say what was made up or left out.

    Weights may have the prefix of their encoder or not, the old names gamma and beta, be one file
    or several, .safetensors or .bin. Heads that are not there are drawn from a fixed seed.

    Raises:
        InputError: another architecture, or a file that is missing, broken or does not fit.
    """
    folder = Path(folder)
    config = our_config(folder, read_config(folder))
    return map_state_dict(folder, config, read_weights(folder, names_for(config)))


def map_state_dict(
    folder: Path, config: ModelConfig, found: dict[str, Tensor]
) -> tuple[ModelConfig, dict[str, Tensor], list[str]]:
    """What `load` returns, from the tensors of `folder` in Hugging Face's names.

    Raises:
        InputError: they do not fit `config` or the vocabulary in `folder`.
    """
    names = names_for(config)
    check_decoder(folder, found, names)
    shapes = parameter_shapes(config)
    state: dict[str, Tensor] = {}
    missing = []
    for name, shape in shapes.items():
        tensor = found.pop(names.their_name(name), None)
        if tensor is None:
            missing.append(name)
        elif tensor.shape != shape:
            raise InputError(
                f"{folder}: {names.their_name(name)} is of shape {tuple(tensor.shape)}, {CONFIG} "
                f"asks for {tuple(shape)}"
            )
        else:
            state[name] = tensor.float().contiguous()
    lost = [names.their_name(name) for name in missing if not name.startswith(names.heads)]
    if lost:
        raise InputError(f"{folder}: {len(lost)} tensors are missing, {lost[0]} among them")
    state |= init_missing({name: shapes[name] for name in missing}, config)
    notes = [f"{name}: not in {folder}, drawn anew" for name in missing]
    notes += [f"{name}: left out, no part of pre-training" for name in sorted(found)]
    config = without_padding(folder, config, state, notes)
    return config, {name: state[name] for name in shapes}, notes


def without_padding(
    folder: Path, config: ModelConfig, state: dict[str, Tensor], notes: list[str]
) -> ModelConfig:
    """Check the weights against the vocabulary in `folder`, and cut rows that have no entry.

    Raises:
        InputError: they are not of one size, and no padding explains it.
    """
    if not vocabulary.exists(folder):
        return config
    entries, rows = len(vocabulary.read(folder)[1]), config.vocab_size
    assert rows is not None
    if not vocabulary.is_padding(rows, entries):
        vocabulary.check_size(config, entries, folder)
        return config
    for name in vocabulary.WORD_ROWS:
        state[name] = state[name][:entries].contiguous()
    notes.append(f"word embeddings: {rows - entries} of {rows:,} rows have no entry, left out")
    return replace(config, vocab_size=entries)


def our_config(folder: Path, theirs: dict[str, Any]) -> ModelConfig:
    """The sizes in a config.json.

    Raises:
        InputError: it is of another architecture, or says what we compute otherwise.
    """
    kind = theirs.get("model_type", "bert")
    if kind not in NAMES:
        named = ", ".join(theirs.get("architectures") or [kind])
        raise InputError(
            f"{folder}: the architecture is {named} (model_type {kind}), not BERT or ModernBERT"
        )
    names = NAMES[kind]
    for key, value in names.fixed.items():
        if theirs.get(key, value) != value:
            raise InputError(
                f"{folder / CONFIG}: {key} is {theirs[key]}, only {value} is supported"
            )
    try:
        sizes = {ours: theirs[key] for ours, key in names.sizes.items() if key in theirs}
        required = ("layers", "hidden", "heads", "feed_forward", "vocab_size")
        missing = [names.sizes[key] for key in required if key not in sizes]
        if missing:
            raise InputError(f"{folder / CONFIG}: no {missing[0]}")
        sizes |= names.read(theirs)
        return ModelConfig(name=folder.resolve().name, architecture=kind, **sizes)
    except (TypeError, ValueError, ConfigError) as error:
        raise InputError(f"{folder / CONFIG}: {error}") from error


def check_decoder(folder: Path, found: dict[str, Tensor], names: Names) -> None:
    """Take the decoder out of `found`: it must be the word embeddings again.

    Raises:
        InputError: it is a matrix of its own.
    """
    weight, words = found.pop(names.decoder, None), found.get(names.words)
    if weight is not None and words is not None and not torch.equal(weight, words):
        raise InputError(f"{folder}: the decoder is not tied to the word embeddings")


def init_missing(shapes: dict[str, torch.Size], config: ModelConfig) -> dict[str, Tensor]:
    """Parameters as they are before training, always the same ones."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        state = {name: torch.empty(shape) for name, shape in shapes.items()}
        for name, tensor in state.items():
            architecture_of(config).initialise(name, tensor, config)
    return state
