"""Reading of published weight files into one dictionary with canonical names."""

import pickle
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from model.config import Weights
from model.huggingface.names import Names
from pipeline.common import foreign_json, stand_ins
from pipeline.common.errors import InputError, first_line
from pipeline.common.file_search import inside

# In order of preference; an index lists the files of the parts.
FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")

NUMBERS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)  # others are quantised, with scales elsewhere


def read_weights(folder: Path, names: Names) -> Weights:
    """Read all tensors of a folder, with the names of `names`.

    Raises:
        InputError: No weight file was found, or one is broken.
    """
    for name in FILES:
        if (folder / name).exists():
            parts = parts_of(folder / name) if name.endswith(".json") else [folder / name]
            found: Weights = {}
            for part in parts:
                found |= read_file(part)
            words = ".".join(names.words.split(".")[-2:])
            if not any(name.endswith(words) for name in found):
                raise InputError(f"not a {names.title}: {words} not found", path=folder / name)
            found = names.canonical({n.removeprefix("module."): t for n, t in found.items()})
            for name, tensor in found.items():
                if tensor.dtype not in NUMBERS or not tensor.isfinite().all():
                    kind = str(tensor.dtype).removeprefix("torch.")
                    raise InputError(
                        f"{name} is {kind}, or not finite; use a model in fp32, bf16 or fp16 that has not diverged",
                        path=folder,
                    )
            return found
    raise InputError(f"no weights found; expected one of {', '.join(FILES)}", path=folder)


def parts_of(index: Path) -> list[Path]:
    """Return the files listed in an index.

    Raises:
        InputError: The index is broken, or lists a missing file or one outside its folder.
    """
    try:
        names = sorted(set(foreign_json.read(index)["weight_map"].values()))
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
    stand_ins.refuse(path)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(f"cannot be read ({first_line(error)})", path=path) from error
    if not isinstance(content, dict):
        raise InputError("contains no named tensors", path=path)
    found = {name: tensor for name, tensor in content.items() if isinstance(name, str) and isinstance(tensor, Tensor)}
    for name, tensor in found.items():
        if tensor.layout != torch.strided or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise InputError(f"{name} is stored in part; save it whole", path=path)
    return found
