"""The files of a sentence-transformers model other than its BERT, and what they do to vectors."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.common.errors import ConfigError, InputError

MODULES, BERT = "modules.json", "sentence_bert_config.json"
# Settings of all modules, and of the first module, the BERT.
SETTINGS = (MODULES, "config_sentence_transformers.json", BERT)
POOLING = {"cls": "cls", "cls_token": "cls", "mean": "mean", "mean_tokens": "mean", "max": "max",
           "max_tokens": "max"}  # fmt: skip


@dataclass(frozen=True)
class Pooling:
    """How a sentence-transformers model makes a vector of a text."""

    kind: str  # cls, mean or max
    normalized: bool
    longest: int | None  # most tokens of a text


def copy(source: Path, target: Path) -> None:
    """Copy the settings and modules of a sentence-transformers model, if `source` is one.

    Links that lead out of the folder are left out, but those into the blobs of the hub's cache.

    Raises:
        InputError: The list of modules is broken, or names a folder outside the source.
    """
    for module in _modules(source):
        name = module["path"]
        if not name:  # the BERT
            continue
        if Path(name).name != name or name in (".", "..") or (source / name).is_symlink():
            raise InputError(
                f"{source / MODULES}: lists {name}, which is not in its folder",
                path=source / MODULES,
            )
        for path in _files(source, (source / name).rglob("*")):
            made = target / path.relative_to(source)
            made.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, made)
    if _modules(source):
        for path in _files(source, (source / name for name in SETTINGS)):
            shutil.copyfile(path, target / path.name)


def pooling_of(folder: Path) -> Pooling | None:
    """Return how a sentence-transformers model makes vectors; None if the folder is not of one.

    Raises:
        ConfigError: It does something else than pooling by the first token, mean or maximum.
        InputError: A file of its settings is broken.
    """
    modules = _modules(folder)
    kinds = [str(one.get("type") or one["path"] or "Transformer") for one in modules]
    names = [kind.rpartition(".")[2].rpartition("_")[2] for kind in kinds]
    if not modules or "Pooling" not in names:
        return None
    stated = _read(folder / modules[names.index("Pooling")]["path"] / "config.json")
    modes = [key.removeprefix("pooling_mode_") for key, value in stated.items()
             if key.startswith("pooling_mode_") and value is True]  # fmt: skip
    modes += [str(stated["pooling_mode"])] if "pooling_mode" in stated else []
    others = sorted({*names} - {"Transformer", "Pooling", "Normalize"})
    if others or len(modes) != 1 or modes[0] not in POOLING:
        raise ConfigError(
            f"pretrained={folder}: makes vectors by {', '.join([*modes, *others])}, which is not "
            "supported; set pooling to one of cls, mean, max to have it pooled otherwise",
            key="pooling",
        )
    longest = _read(folder / BERT).get("max_seq_length")
    known = isinstance(longest, int) and longest > 2
    return Pooling(POOLING[modes[0]], "Normalize" in names, longest if known else None)


def _modules(folder: Path) -> list[dict[str, Any]]:
    """Return the list of modules, each with its `path`; an empty one without such a list."""
    path = folder / MODULES
    if not path.is_file():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [{**module, "path": str(module["path"])} for module in content]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: not a list of modules ({error})", path=path) from error


def _read(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file; an empty one without a file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})", path=path) from error
    return content if isinstance(content, dict) else {}


def _files(source: Path, paths: Iterator[Path]) -> Iterator[Path]:
    """Yield the files among paths whose content is in the folder, or in the hub's cache of it."""
    inside = [source.resolve()]
    if inside[0].parent.name == "snapshots":
        inside.append(inside[0].parent.parent / "blobs")
    for path in paths:
        real = path.resolve()
        if real.is_file() and any(real.is_relative_to(root) for root in inside):
            yield path
