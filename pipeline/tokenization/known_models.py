"""What a model's folder may say: its type, settings that are computed in few ways, its decoder; without PyTorch."""

import json
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import InputError, first_line
from pipeline.storage import placeholders

ACTIVATIONS = {"gelu": "none", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}  # to PyTorch's approximation
ROBERTAS = ("roberta", "xlm-roberta", "camembert")  # one network, of which transformers has a class each
ROBERTA_PADDING = 1  # id, where config.json has none
DECODER = "decoder.weight"  # end of its name
TABLES = ("word_embeddings.weight", "tok_embeddings.weight", DECODER)
UNTIED = "its decoder has other weights than its word embeddings, which is not supported; use a model with tied ones"
CHUNK = 2**24  # bytes that are compared at once
HEADER = 100_000_000  # bytes of a safetensors header, at most
ITEMS = {"FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2, "DoubleStorage": 8}  # bytes of one
BROKEN = (ValueError, TypeError, LookupError, AttributeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile)
Table = tuple[str, str, Any]  # name, type and bytes of a tensor

_BERT: dict[str, tuple[Any, ...]] = {
    "hidden_act": tuple(ACTIVATIONS),
    "position_embedding_type": ("absolute",),
    "tie_word_embeddings": (True,),
}
# By model_type: the values of a key, of which the first is the default.
MODELS: dict[str, dict[str, tuple[Any, ...]]] = {
    "bert": _BERT | {"type_vocab_size": (2,)},
    "modernbert": {
        "hidden_activation": tuple(ACTIVATIONS),
        **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), (False,)),
        **dict.fromkeys(("decoder_bias", "tie_word_embeddings"), (True,)),
    },
    **dict.fromkeys(ROBERTAS, _BERT),
}


def check(content: dict[str, Any], place: Path, key: str | None = None, cure: str = "") -> str:
    """Check a config.json, of which `place` is the path, and return the type of its model.

    Raises:
        InputError: The type or a setting is not supported; `cure` follows the supported types.
    """
    kind = str(content.get("model_type", "bert"))
    if kind not in MODELS:
        raise InputError(f"model_type {kind} is not supported; use one of {', '.join(MODELS)}{cure}", key, path=place)
    for setting, values in MODELS[kind].items():
        if (value := content.get(setting, values[0])) not in values:
            raise InputError(f"{setting} is {value}, must be {' or '.join(map(str, values))}", key, path=place)
    return kind


def check_padding(content: dict[str, Any], entry: int, place: Path) -> None:
    """Check that positions count from the id that the tokenizer's padding `entry` has.

    Raises:
        InputError: They count from another one.
    """
    said = content.get("pad_token_id", ROBERTA_PADDING)
    if content.get("model_type") in ROBERTAS and said != entry:
        raise InputError(f"pad_token_id is {said}, must be {entry}, the tokenizer's padding", path=place)


def check_decoder(folder: Path) -> None:
    """Check, by the bytes of its files of weights, that a model's decoder is its word embeddings.

    Raises:
        InputError: It has another one, which transformers then uses; or a file is broken.
    """
    wholes, weights = ("model.safetensors", "pytorch_model.bin"), dict[bool, tuple[str, Any]]()
    parts = sorted(folder.glob("model-*.safetensors")) or sorted(folder.glob("pytorch_model-*.bin"))
    for path in next(([folder / name] for name in wholes if (folder / name).is_file()), parts):
        placeholders.refuse(path)
        try:
            for name, kind, memory in tables(path) if path.suffix == ".safetensors" else pickled_tables(path):
                weights[name.endswith(DECODER)] = kind, memory
        except BROKEN as error:
            raise InputError(f"cannot be read ({first_line(error)})", path=path) from error
    if len(weights) == 2:
        (kind, words), (other, decoder) = weights.values()
        starts = range(0, max(len(words), len(decoder)), CHUNK)
        if kind == other and not all(np.array_equal(words[n : n + CHUNK], decoder[n : n + CHUNK]) for n in starts):
            raise InputError(UNTIED, "existing", path=folder)


def tables(path: Path) -> Iterator[Table]:
    """Yield the tables of a safetensors file; by hand, as the images of data lack the library."""
    memory = np.memmap(path, np.uint8, "r")
    start = 8 + int.from_bytes(memory[:8].tobytes(), "little")
    header = json.loads(memory[8 : min(start, HEADER)].tobytes())
    places = {name: (one["dtype"], *one["data_offsets"]) for name, one in header.items() if "dtype" in one}
    if start + max((last for *_, last in places.values()), default=0) != len(memory):
        raise ValueError("it ends too soon")
    for name, (kind, first, last) in places.items():
        if name.endswith(TABLES):
            yield name, kind, memory[start + first : start + last]


def pickled_tables(path: Path) -> Iterator[Table]:
    """Yield the tables of a file of `torch.save`, which names bytes of a ZIP archive; none of PyTorch before 1.6."""
    if not zipfile.is_zipfile(path):
        return
    memory = np.memmap(path, np.uint8, "r")
    with zipfile.ZipFile(path) as archive:
        (root,) = [name.removesuffix("data.pkl") for name in archive.namelist() if name.endswith("/data.pkl")]
        for name, tensor in _Names(archive.open(f"{root}data.pkl")).load().items():
            if name.endswith(TABLES):
                (_, kind, key, *_), first, shape, *_ = tensor
                size, begin = ITEMS[kind], archive.getinfo(f"{root}data/{key}").header_offset  # never compressed
                # The name and what follows it have their lengths at the end of the 30 bytes before.
                start = begin + 30 + int(memory[begin + 26 : begin + 30].view("<u2").sum())
                yield name, kind, memory[start + first * size : start + (first + math.prod(shape)) * size]


def _first(*parts: Any) -> Any:
    return parts[0] if parts else None


class _Names(pickle.Unpickler):
    """Reads what a file of tensors says of them, and makes nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if name.endswith("Storage"):
            return name
        return {"OrderedDict": OrderedDict, "_rebuild_tensor_v2": lambda *parts: parts}.get(name, _first)

    def persistent_load(self, pid: Any) -> Any:
        return pid
