"""The files of a sentence-transformers model other than its BERT, and what they do to vectors."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.config import Json
from pipeline.errors import ConfigError, InputError
from pipeline.storage import strict_json
from pipeline.storage.file_search import inside, leads_out, say_left_out
from pipeline.tokenization.tokenizer_folder import keep_files, read_object

if TYPE_CHECKING:
    from torch import nn

MODULES, BERT, MODEL = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
# Settings of all modules, and of the first module, the BERT.
SETTINGS = (MODULES, MODEL, BERT)
POOLINGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
# The prompts by name that sentence-transformers puts before a query or a document, the first that a model has.
QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")


@dataclass(frozen=True)
class Pooling:
    """How a sentence-transformers model makes a vector of a text."""

    kind: str  # cls, mean or max
    after: "nn.Sequential"  # the Dense and Normalize modules, and the cut at truncate_dim: (N, H) -> (N, W)
    similarity: str  # cosine, dot, …
    longest: int | None  # most tokens of a text, where a setting of its own says so
    prompts: dict[str, str]  # by name
    usual: str | None  # name of the prompt of other texts
    pools_prompt: bool
    lowercase: bool
    folder: Path

    def prompt(self, *names: str) -> str:
        """Return what is read before a text: the first prompt of these names that there is, else the usual one.

        Raises:
            ConfigError: It is read, but not pooled, which is not supported.
        """
        name = next((one for one in names if one in self.prompts), self.usual or "")
        prompt = self.prompts.get(name, "")
        if prompt and not self.pools_prompt:
            raise _unsupported(self.folder, ["a prompt that is not pooled"])
        return prompt


def copy(source: Path, target: Path) -> None:
    """Copy the settings and modules of a sentence-transformers model, if `source` is one.

    Links that lead out of the source, or to a folder, are left out, and said.

    Raises:
        InputError: The list of modules is broken, or names a folder outside the source.
    """
    left_out: list[Path] = []

    def leaves(folder: str | Path, names: list[str]) -> list[str]:
        paths = [Path(folder, name) for name in names]
        rings = {path for path in paths if path.is_symlink() and path.is_dir()}
        left = [path for path in paths if path in rings or leads_out(source, path)]
        left_out.extend(left)
        return [path.name for path in left]

    path = source / MODULES
    if path.is_file() and not leaves(source, [MODULES]):
        for name in filter(None, (module["path"] for module in _modules(source))):  # the BERT's is empty
            if inside(source, name, path).is_dir() and not leaves(source, [name]):
                shutil.copytree(source / name, target / name, ignore=leaves, dirs_exist_ok=True)
        keep_files(source, target, SETTINGS)
        _complete(target)
    say_left_out(str(source), len(left_out))


def _complete(folder: Path) -> None:
    """Write the keys that text-embeddings-inference asks for, and sentence-transformers 6 writes no more."""
    wanted: dict[Path, Json] = {folder / BERT: {"max_seq_length": most} if (most := stated_length(folder)) else {}}
    for module in _modules(folder):
        path = folder / module["path"] / "config.json"
        stated = read_object(path)
        if any(key.startswith("pooling_mode") for key in stated):
            wanted[path] = {key: stated.get("pooling_mode") == kind for key, kind in POOLINGS.items()}
    for path, keys in wanted.items():
        if path.is_file() and not keys.keys() <= (stated := read_object(path)).keys():
            path.write_text(json.dumps(keys | stated, indent=2), encoding="utf-8")


def pooling_of(folder: Path) -> Pooling | None:
    """Return how a sentence-transformers model makes vectors; None if the folder is not of one.

    Raises:
        ConfigError: It does something else than pooling by the first token, mean or maximum.
        InputError: A file of its settings is broken.
    """
    modules = _modules(folder)
    types = [str(one.get("type") or one["path"] or "Transformer") for one in modules]
    names = [each.rpartition(".")[2].rpartition("_")[2] for each in types]
    if "Pooling" not in names:
        return None
    place = names.index("Pooling")
    stated = read_object(folder / modules[place]["path"] / "config.json")
    modes = [
        POOLINGS.get(key, key) for key, value in stated.items() if key.startswith("pooling_mode_") and value is True
    ]
    modes = [str(stated["pooling_mode"])] if "pooling_mode" in stated else modes
    first, whole = read_object(folder / BERT), read_object(folder / MODEL)
    others = sorted({*names[:place]} - {"Transformer"} | {*names[place + 1 :]} - {"Dense", "Normalize"})
    if others or len(modes) != 1 or modes[0] not in POOLINGS.values():
        raise _unsupported(folder, [*modes, *others])
    pooling = Pooling(
        kind=modes[0],
        after=_after(folder, list(zip(names, modules, strict=True))[place + 1 :], whole.get("truncate_dim")),
        similarity=whole.get("similarity_fn_name") or "cosine",
        longest=_shortest(first.get("max_seq_length")),
        prompts={str(name): str(text or "") for name, text in (whole.get("prompts") or {}).items()},
        usual=whole.get("default_prompt_name"),
        pools_prompt=stated.get("include_prompt") is not False,
        lowercase=bool(first.get("do_lower_case")),
        folder=folder,
    )
    pooling.prompt()
    return pooling


def _unsupported(folder: Path, ways: list[str]) -> ConfigError:
    return ConfigError(
        f"makes vectors by {', '.join(ways)}, which is not supported; embed pools it by pooling=cls, mean or max, "
        f"convert takes it without onnx and quantize, other commands take the mean of a copy without {MODULES}",
        "pretrained",
        folder,
    )


def _after(folder: Path, modules: list[tuple[str, Json]], most: int | None) -> "nn.Sequential":
    """Return the modules after the pooling; then the first `most` numbers of a vector are left."""
    from torch import nn

    class Step(nn.Module):
        """A function of vectors."""

        def __init__(self, step: Callable[[Any], Any]):
            super().__init__()
            self._step = step

        def forward(self, vectors: Any) -> Any:
            """Map `(N, W)` -> `(N, W)`."""
            return self._step(vectors)

    steps = nn.Sequential()
    for name, module in modules:
        dense = name == "Dense" and _dense(inside(folder, module["path"], folder / MODULES), folder)
        steps.extend(dense or [Step(nn.functional.normalize)])
    steps.append(Step(lambda vectors: vectors[:, :most]))
    return steps.eval().requires_grad_(False)


def _dense(path: Path, folder: Path) -> "list[Any]":
    """Return a linear layer and its activation.

    Raises:
        ConfigError: It is not of a vector alone, or has another activation than Tanh, GELU, ReLU or none.
        InputError: A file of it is missing or broken.
    """
    import torch
    from safetensors.torch import load_file
    from torch import nn

    stated = read_object(path / "config.json")
    kind = str(stated.get("activation_function", "Tanh")).rpartition(".")[2]
    read_and_made = {stated.get(f"module_{end}_name") or "sentence_embedding" for end in ("input", "output")}
    plain = read_and_made == {"sentence_embedding"} and not stated.get("use_residual")
    if kind not in ("Tanh", "Identity", "GELU", "ReLU") or not plain:
        raise _unsupported(folder, [f"Dense of another kind than supported ({kind})"])
    file = path / "model.safetensors"
    try:
        old = path / "pytorch_model.bin"
        weights = load_file(file) if file.is_file() else torch.load(old, "cpu", weights_only=True)
        linear = nn.Linear(stated["in_features"], stated["out_features"], "linear.bias" in weights)
        linear.load_state_dict({name.removeprefix("linear."): tensor.float() for name, tensor in weights.items()})
    except Exception as error:  # of unpickling, of safetensors, of sizes: they have no base class
        raise InputError(f"not the weights of a Dense module ({type(error).__name__}: {error})", path=path) from error
    return [linear, getattr(nn, kind)()]


def stated_length(folder: Path) -> int | None:
    """Return the longest sequence by a model's folder: as it was tuned, else as its tokenizer and its positions allow.

    None if it has no number that can be one.

    Raises:
        InputError: A file of its settings is broken.
    """
    config, tokenizer = read_object(folder / "config.json"), read_object(folder / "tokenizer_config.json")
    tuned = config.get("fine_tuning")  # as `saved_model` writes it
    own = _shortest(tuned.get("sequence_length") if isinstance(tuned, dict) else None)
    return own or _shortest(tokenizer.get("model_max_length"), config.get("max_position_embeddings"))


def _shortest(*lengths: object) -> int | None:
    """Return the smallest of these values that can be the tokens of a sequence."""
    return min((each for each in lengths if isinstance(each, int) and each > 2), default=None)


def _modules(folder: Path) -> list[Json]:
    """Return the list of modules, each with its `path`; an empty one without such a list."""
    path = folder / MODULES
    if not path.is_file():
        return []
    try:
        modules = [dict(each) for each in strict_json.read(path)]
        if not all(isinstance(each["path"], str) for each in modules):
            raise TypeError("a path must be a text")
        return modules
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"not a list of modules ({error})", path=path) from error
