"""The Hugging Face format: reading and writing of folders for `from_pretrained`.

`names` holds the differences between architectures.
"""

import json
import pickle
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import get_type_hints

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from model.config import Json, ModelConfig, Weights
from model.encoders.architectures import architecture_of, parameter_shapes
from model.encoders.encoder import initialise
from model.huggingface import model_card, sentence_model, vocabulary
from model.huggingface.names import NAMES, Names
from pipeline.common.schema import built, check
from pipeline.errors import ConfigError, InputError, first_line, hub_cure, named
from pipeline.records.manifest import Manifest
from pipeline.storage import placeholders, strict_json
from pipeline.storage.file_search import inside
from pipeline.tokenization import known_models, tokenizer_folder
from pipeline.tokenization.wordpiece import SPECIAL, PairFrame, is_wordpiece, special_names

CONFIG = "config.json"
SCALE = {"label_mean": 0.0, "label_deviation": 1.0}  # of the scores that a head gives, without a word 0 and 1

SEGMENTS = "token_type_ids"  # transformers' name of the inputs that tell two texts apart
ABSURD = 1000  # times as many weights as there are
PADDING = 128  # limit of padding rows in published matrices, whose number is a multiple of 8
MOST_POSITIONS = 2**20  # for each, a rotary model keeps a row of a table
INITIALISED = "randomly initialised"  # end of the notes on missing parameters
UNTRAINED = "untrained_parts"  # key of config.json: those with random weights; transformers keeps what it does not know
# In order of preference; an index lists the files of the parts.
FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
NUMBERS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)  # others are quantised, with scales elsewhere


def initialised_parts(notes: Iterable[str]) -> list[str]:
    """Return the parts of a model, such as `masked_head`, that have random weights, in order.

    `notes` are those of `load`.
    """
    return sorted({note.partition(".")[0] for note in notes if note.endswith(INITIALISED)})


def names_for(config: ModelConfig) -> Names:
    """Return Hugging Face's names for a model's architecture.

    Raises:
        InputError: the architecture was added here without them.
    """
    if config.architecture not in NAMES:
        raise InputError(
            f"architecture {config.architecture} has no Hugging Face format; add its names to NAMES in "
            "model/huggingface/names.py (docs/add-architecture.md)",
            "train",
        )
    return NAMES[config.architecture]


def save(
    folder: Path | str,
    config: ModelConfig,
    state: Weights,
    vocab_folder: Path | str,
    manifests: Iterable[Manifest] = (),
    *,
    dtype: torch.dtype = torch.float32,
    shard_bytes: int | None = None,
    remarks: Json | None = None,
    learnt: int | None = None,
    untrained: Iterable[str] = (),
) -> None:
    """Write weights, sizes, tokenizer and model card (with the metrics of `manifests`).

    The weights are written as `dtype`, in files of at most `shard_bytes` (but at least one tensor)
    if set. `remarks` are further rows of the model card. `learnt` are the tokens of the longest
    sequences that were learnt; None: as many as there are positions.
    `untrained` parts are random.

    Raises:
        InputError: The vocabulary is incomplete or does not match the model's size, or a weight is
            too large for `dtype`.
    """
    folder, vocab_folder, untrained = Path(folder), Path(vocab_folder), list(untrained)
    folder.mkdir(parents=True, exist_ok=True)
    source, entries = vocabulary.read(vocab_folder)
    vocabulary.check_size(config, len(entries), vocab_folder)
    weights = {name: cast(name, tensor, dtype) for name, tensor in state.items()}
    parameters = sum(tensor.numel() for tensor in state.values())
    kind, mask = type(Tokenizer.from_str(source).model).__name__, special_names(entries)[-1]
    text = model_card.write(config, parameters, manifests, remarks or {}, kind, mask, "masked_head" not in untrained)
    (folder / "README.md").write_text(text, encoding="utf-8")
    tokenizer_folder.keep_files(vocab_folder, folder)
    theirs = their_config(config, entries, dtype) | ({UNTRAINED: untrained} if untrained else {})
    tensors = names_for(config).their_tensors(weights, theirs)
    judges = config.traits.sentence_pairs and "next_sentence" not in untrained
    pairs = PairFrame() if judges else vocabulary.pairs_of(source, config.traits)
    write(folder, config, tensors, theirs, source, entries, pairs, learnt, shard_bytes)


def write(
    folder: Path,
    config: ModelConfig,
    tensors: Weights,
    theirs: Json,
    source: str,
    entries: list[str],
    pairs: PairFrame,
    learnt: int | None,
    shard_bytes: int | None = None,
) -> None:
    """Write the files that transformers reads, and make all of the folder readable for everybody.

    `tensors` and the content `theirs` of config.json are in Hugging Face's words; `source` is the
    text of tokenizer.json, `entries` are those of the vocabulary by id, `learnt` is as in `save`. `pairs` were
    framed so.
    """
    save_torch_state_dict(tensors, folder, max_shard_size=shard_bytes or sys.maxsize)
    write_json(folder / CONFIG, theirs)
    settings = names_for(config).tokenizer
    made = vocabulary.framed(source, SEGMENTS in settings["model_input_names"], pairs)
    (folder / vocabulary.TOKENIZER).write_bytes(made.encode())
    if is_wordpiece(Tokenizer.from_str(source)) and "" not in entries:  # unused ids have no line
        lines = "".join(f"{entry}\n" for entry in entries)
        (folder / vocabulary.VOCAB).write_bytes(lines.encode())
    longest = learnt or config.positions
    write_json(folder / vocabulary.TOKENIZER_CONFIG, settings | vocabulary.tokenizer_config(longest, made))
    write_json(folder / sentence_model.BERT, {"max_seq_length": longest})  # for text-embeddings-inference
    for path in folder.iterdir():  # safetensors files are private to their owner
        path.chmod(0o644)


def cast(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a weight to `dtype`, without a copy if it has that type, and a memory of its own, already.

    Raises:
        InputError: A value is too large for `dtype` or not finite.
    """
    cast = tensor.to(dtype).contiguous()
    if cast.untyped_storage().nbytes() > cast.nbytes:  # the hub's writer takes no part of a larger one
        cast = cast.clone()
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise InputError(
            f"{name}: {bad:,} of its {tensor.numel():,} values are not finite (NaN or infinite) "
            "regardless of the stored type; use an earlier checkpoint",
            "train",
        )
    if not torch.isfinite(cast).all():
        raise InputError(
            f"{name} has a value of {float(tensor.abs().max()):.3g}, too large for "
            f"{str(dtype).removeprefix('torch.')}; use {named('dtype')}=bf16 or fp32",
            "dtype",
        )
    return cast


def write_json(path: Path, content: Json) -> None:
    """Write an indented JSON file."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_config(folder: Path | str) -> Json:
    """Read the config.json of a folder in Hugging Face format.

    Raises:
        InputError: The file does not exist or is not a JSON object.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        near = [folder / "model", *(path / "convert" for path in (folder, folder.parent))]
        made = next((path for path in near if (path / CONFIG).is_file()), None)
        cure = f"use {made}" if made else f"run python -m pipeline.convert{hub_cure(folder)}"
        raise InputError(f"no model in Hugging Face format found; {cure}", path=folder)
    return strict_json.read_object(folder / CONFIG)


def their_config(config: ModelConfig, entries: list[str], dtype: torch.dtype) -> Json:
    """Return the content of config.json."""
    names, usual = names_for(config), dict(zip(special_names(entries), SPECIAL, strict=True))
    return {
        "architectures": [names.pretrained],
        "model_type": names.model_type,
        **{key: values[0] for key, values in known_models.MODELS[names.model_type].items()},
        **{theirs: getattr(config, ours) for ours, theirs in names.sizes.items()},
        **names.settings(config, [usual.get(entry, entry) for entry in entries]),
        "dtype": str(dtype).removeprefix("torch."),
    }


def random_of(content: Json, names: Iterable[str]) -> list[str]:
    """Return those of our names of parameters that have random weights by a config.json."""
    stated = content.get(UNTRAINED)
    return [name for name in names if isinstance(stated, list) and name.partition(".")[0] in stated]


def load(folder: Path | str) -> tuple[ModelConfig, Weights, list[str], Weights]:
    """Read a folder of an architecture in `NAMES`: sizes, fp32 weights in our names, notes, and other tensors.

    The notes list parameters that were initialised and tensors that were ignored. Names may lack the
    encoder's prefix or use gamma and beta; weights may be one file or several, .safetensors or .bin.
    Missing heads are initialised from a fixed seed.

    Raises:
        InputError: Unsupported architecture, or a file is missing, broken or inconsistent.
    """
    folder = Path(folder)
    config = our_config(folder, content := read_config(folder))
    names = names_for(config)
    weights = read_weights(folder, names, content)
    check_sizes(folder, config, sum(tensor.numel() for tensor in weights.values()))
    if config.layers > len(weights):
        raise InputError(f"{config.layers} layers, but {len(weights)} tensors in the weights", path=folder / CONFIG)
    check_decoder(folder, weights, names)
    shapes = parameter_shapes(config)
    state, missing = Weights(), list[str]()
    for name, shape in shapes.items():
        tensor = weights.pop(names.their_name(name), None)
        if tensor is None:
            missing.append(name)
        elif tensor.shape != shape:
            raise InputError(
                f"{names.their_name(name)} has shape {tuple(tensor.shape)}, but {CONFIG} requires {tuple(shape)}",
                path=folder,
            )
        else:
            state[name] = tensor.float().contiguous()
    lost = [names.their_name(name) for name in missing if not name.startswith(tuple(names.heads))]
    if lost:
        raise InputError(f"{len(lost)} tensors are missing, e.g. {lost[0]}", path=folder)
    state |= init_missing({name: shapes[name] for name in missing}, config)
    notes = [f"{name}: not in {folder}, {INITIALISED}" for name in missing]
    notes += [f"{name}: in {folder} as {INITIALISED}" for name in random_of(content, shapes) if name not in missing]
    notes += [f"{name}: ignored, not part of pre-training" for name in sorted(weights)]
    config = without_padding(folder, content, config, state, notes)
    return config, {name: state[name] for name in shapes}, notes, weights


def scale_of(content: Json) -> tuple[float, float]:
    """Return the mean and deviation of the scores that a config.json says its head gives."""
    mean, deviation = (float(content.get(key, usual)) for key, usual in SCALE.items())
    return mean, deviation


def read_sizes(folder: Path | str) -> ModelConfig:
    """Return the sizes of a folder by its configuration alone.

    Raises:
        InputError: Unsupported architecture, or the configuration is missing or broken.
    """
    return our_config(Path(folder), read_config(folder))


def read_weights(folder: Path, names: Names, content: Json) -> Weights:
    """Read all tensors of a folder, whose config.json has `content`, with the names of `names`.

    Raises:
        InputError: No weight file was found, or one is broken.
    """
    path = next((folder / name for name in FILES if (folder / name).exists()), None)
    if path is None:
        raise InputError(f"no weights found; expected one of {', '.join(FILES)}", path=folder)
    weights = Weights()
    for part in parts_of(path) if path.suffix == ".json" else [path]:
        weights |= read_file(part)
    words = ".".join(names.embedding_name.split(".")[-2:])
    if not any(name.endswith((words, names.decoder)) for name in weights):
        title, _ = model_card.PUBLISHED[names.model_type]
        raise InputError(f"not a {title}: {words} not found", path=path)
    try:
        weights = names.canonical({n.removeprefix("module."): t for n, t in weights.items()}, content)
    except ValueError as error:
        raise InputError(f"{error}", path=path) from error
    for name, tensor in weights.items():
        if tensor.dtype not in NUMBERS or not tensor.isfinite().all():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise InputError(
                f"{name} is {kind}, or not finite; use a model in fp32, bf16 or fp16 that has not diverged", path=folder
            )
    return weights


def parts_of(index: Path) -> list[Path]:
    """Return the files listed in an index.

    Raises:
        InputError: The index is broken, or lists a missing file or one outside its folder.
    """
    try:
        names = sorted(set(strict_json.read(index)["weight_map"].values()))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"not an index of weights ({error})", path=index) from error
    parts = [inside(index.parent, name, index) for name in names]
    lost = [part.name for part in parts if not part.is_file()]
    if lost:
        raise InputError(f"{len(lost)} of its {len(names)} files are missing, e.g. {lost[0]}", path=index)
    return sorted(parts)


def read_file(path: Path) -> Weights:
    """Read the tensors of one file; does not execute code in pickled files.

    Raises:
        InputError: The file is missing or broken.
    """
    placeholders.refuse(path)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(f"cannot be read ({first_line(error)})", path=path) from error
    if not isinstance(content, dict):
        raise InputError("contains no named tensors", path=path)
    weights = {name: tensor for name, tensor in content.items() if isinstance(name, str) and isinstance(tensor, Tensor)}
    for name, tensor in weights.items():
        if tensor.layout != torch.strided or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise InputError(f"{name} is stored in part; save it whole", path=path)
    return weights


def without_padding(folder: Path, content: Json, config: ModelConfig, state: Weights, notes: list[str]) -> ModelConfig:
    """Check weights and config.json against the vocabulary in `folder`, and remove padding rows.

    Raises:
        InputError: Their sizes differ by more than padding, or the ids of the padding do.
    """
    if not vocabulary.exists(folder):
        return config
    vocab = vocabulary.read(folder)[1]
    known_models.check_padding(content, vocab.index(special_names(vocab)[0]), folder / CONFIG)
    entries, rows = len(vocab), config.entries
    if not 0 < rows - entries < PADDING or rows % 8:
        vocabulary.check_size(config, entries, folder)
        return config
    for name in vocabulary.WORD_ROWS:
        state[name] = state[name][:entries].clone()
    notes.append(f"word embeddings: {rows - entries} of {rows:,} rows are padding, removed")
    return replace(config, vocab_size=entries)


def our_config(folder: Path, theirs: Json) -> ModelConfig:
    """Return the sizes in a config.json.

    Raises:
        InputError: The architecture or a setting is not supported.
    """
    kind = known_models.check(theirs, folder / CONFIG)
    names = NAMES[kind]
    try:
        said = {ours: theirs.get(key) for ours, key in names.sizes.items()}
        sizes = {ours: value for ours, value in said.items() if value is not None}
        required = ("layers", "hidden", "heads", "feed_forward", "vocab_size")
        missing = [names.sizes[key] for key in required if key not in sizes]
        if missing:
            raise InputError(f"{missing[0]} is required", path=folder / CONFIG)
        sizes = names.defaults | sizes | names.read(theirs)
        kinds = get_type_hints(ModelConfig)
        for ours, value in sizes.items():
            built(kinds[ours], value, names.sizes.get(ours, ours))
        config = ModelConfig(name=folder.resolve().name, architecture=kind, **sizes)
        check((config.vocab_size or 0) >= 1, "vocab_size must be at least 1")
        check(config.positions <= MOST_POSITIONS, f"more than {MOST_POSITIONS:,} positions")
        return config
    except (AttributeError, TypeError, ValueError, OverflowError, ConfigError) as error:
        raise InputError(f"{error}", path=folder / CONFIG) from error


def check_sizes(folder: Path, config: ModelConfig, weights: int) -> None:
    """Check that a model has by far not more parameters than there are `weights`, or bytes of them.

    Raises:
        InputError: It has; a network of such sizes is not even described.
    """
    layer = config.hidden * (4 * config.hidden + 2 * config.feed_forward)
    if config.layers * layer + config.entries * config.hidden > ABSURD * weights:
        raise InputError(
            f"its sizes need far more than the {weights:,} weights that are there; correct it", path=folder / CONFIG
        )


def check_decoder(folder: Path, found: Weights, names: Names) -> None:
    """Remove the decoder from `found`, and check that it equals the word embeddings, or is their only name."""
    weight = found.pop(names.decoder, None)
    if weight is not None and not torch.equal(weight, found.setdefault(names.embedding_name, weight)):
        raise InputError(known_models.UNTIED, path=folder)


def init_missing(shapes: dict[str, torch.Size], config: ModelConfig) -> Weights:
    """Return freshly initialised parameters, always the same ones."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        state = {name: torch.empty(shape) for name, shape in shapes.items()}
        initialise(state.items(), config, architecture_of(config))
    return state
