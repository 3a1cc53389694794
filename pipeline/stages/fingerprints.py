"""Fingerprints: what a stage is made from, as a hash of its settings, inputs and version."""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.common import storage
from pipeline.common.manifest import Manifest, enclosing_manifest
from pipeline.config import StageConfig
from pipeline.stages.registry import version_of


def walk_fields(config: Any) -> Iterator[tuple[str, str, Any]]:
    """Walk a config dataclass: (dotted key, role, value); role is input, incidental or setting."""
    for field in dataclasses.fields(config):
        value, role = getattr(config, field.name), field.metadata.get("role", "setting")
        if role != "incidental" and dataclasses.is_dataclass(value):
            for key, inner, item in walk_fields(value):
                yield f"{field.name}.{key}", inner, item
        else:
            yield field.name, role, value


def inputs(config: StageConfig) -> dict[str, str]:
    """The paths that a stage reads, by config key."""
    found: dict[str, str] = {}
    for key, role, value in walk_fields(config):
        if role == "input" and isinstance(value, list):
            found |= {f"{key}.{index}": str(item) for index, item in enumerate(value)}
        elif role == "input" and value is not None:
            found[key] = str(value)
    corpus = getattr(config, "corpus", None)
    if corpus is not None and corpus.path is not None:
        found.pop("source", None)
        found["corpus.path"] = corpus.path
    elif corpus is not None and not corpus.files:
        found.pop("source", None)
    for name, part in (corpus.parts if corpus is not None else {}).items():
        if isinstance(part, Mapping) and part.get("path"):
            found[f"corpus.parts.{name}.path"] = str(part["path"])
    return found


def producer_of(path: str, folders: Mapping[str, Any]) -> Any:
    """What `folders` says of the stage that makes `path`: its folder, or something in it; or None.

    The keys are normalised paths.
    """
    path = os.path.normpath(path)
    return folders.get(path) or folders.get(os.path.dirname(path))


def fingerprint_path(path: Path | str) -> str:
    """The fingerprint of an input: its stage's, else one of names, sizes and times."""
    manifest = Manifest.read(path) or enclosing_manifest(path)
    if manifest is not None:
        return manifest.fingerprint
    top = storage.at(str(path))
    folder = storage.is_folder(top)
    digest = hashlib.sha256()
    for file in storage.below(top) if folder else storage.matching(str(path)):
        with contextlib.suppress(FileNotFoundError):
            stat = file.stat()
            name = str(file).removeprefix(f"{top}/") if folder else file.name
            digest.update(f"{name}\x1f{stat.st_size}\x1f{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def fingerprint(
    stage: str, config: StageConfig, known: Mapping[str, str] | None = None
) -> tuple[str, dict[str, str]]:
    """The stage's fingerprint, and those of its inputs by config key.

    `known` gives the fingerprints of input folders that are not made yet, by path.
    """
    sources = {
        key: producer_of(path, known or {}) or fingerprint_path(path)
        for key, path in inputs(config).items()
    }
    settings = {
        key: value
        for key, role, value in walk_fields(config)
        if role == "setting" and key != "corpus.path"
    }
    text = json.dumps(
        {"stage": stage, "version": version_of(stage), "settings": settings, "inputs": sources},
        sort_keys=True, default=dataclasses.asdict,
    )  # fmt: skip
    return hashlib.sha256(text.encode()).hexdigest(), sources
