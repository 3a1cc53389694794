"""Weight files of other people's models, read into one dictionary of canonical names."""

import json
import pickle
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from model.huggingface.names import Names
from pipeline.common.errors import InputError, first_line

# In order of preference; an index lists the files that hold the parts.
FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def read_weights(folder: Path, names: Names) -> dict[str, Tensor]:
    """All tensors of a folder, named as `names` has them.

    Raises:
        InputError: there is no weight file, or one is broken.
    """
    for name in FILES:
        if (folder / name).exists():
            parts = parts_of(folder / name) if name.endswith(".json") else [folder / name]
            found: dict[str, Tensor] = {}
            for part in parts:
                found |= read_file(part)
            words = ".".join(names.words.split(".")[-2:])
            if not any(name.endswith(words) for name in found):
                raise InputError(f"{folder / name}: no {names.title}, it has no {words}")
            return names.canonical({n.removeprefix("module."): t for n, t in found.items()})
    raise InputError(f"{folder}: no weights there, none of {', '.join(FILES)}")


def parts_of(index: Path) -> list[Path]:
    """The files that an index names.

    Raises:
        InputError: the index is broken, or names a file outside its folder.
    """
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{index}: not an index of weights ({error})") from error
    for name in names:
        if Path(name).name != name:
            raise InputError(f"{index}: names {name}, which is not a file beside it")
    lost = [name for name in names if not (index.parent / name).is_file()]
    if lost:
        raise InputError(
            f"{index}: {len(lost)} of its {len(names)} files are missing, {lost[0]} among them"
        )
    return [index.parent / name for name in names]


def read_file(path: Path) -> dict[str, Tensor]:
    """The tensors of one file; pickled ones are read without running what they contain.

    Raises:
        InputError: it is missing or broken.
    """
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(f"{path}: cannot be read ({first_line(error)})") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds no named tensors")
    return {name: tensor for name, tensor in content.items() if isinstance(tensor, Tensor)}
