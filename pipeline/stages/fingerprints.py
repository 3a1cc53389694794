"""Fingerprints: a hash of a stage's settings, inputs and version.

Only settings that differ from the schema's defaults are hashed, so that a new option does not
change the fingerprints of earlier runs. `tests/pipeline/stages/golden/defaults.json` records the
defaults.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from pipeline.common.schema import counted, default_of, has_default, walk_fields
from pipeline.config import EvaluateConfig, StageConfig
from pipeline.console.redact import redact
from pipeline.errors import InputError
from pipeline.records.manifest import Manifest, enclosing_manifest
from pipeline.stages.registry import KNOWN
from pipeline.storage import places
from pipeline.storage.checksums import sha256_of

Settings = dict[str, Any]  # by dotted key
Sources = Mapping[str, str]  # fingerprints of inputs, by config key or by path
Identity = tuple[str, dict[str, str]]  # a fingerprint, and those of the inputs by config key
LONGEST_SETTING = 40  # characters of a setting that is said to differ
CHECKPOINT = "chck_"  # how the folder of one of several converted checkpoints begins


def inputs(config: StageConfig) -> dict[str, str]:
    """Return the paths that a stage reads, by config key."""
    paths: dict[str, str] = {}
    for key, role, value in walk_fields(config):
        if role == "input" and isinstance(value, list):
            paths |= {f"{key}.{index}": str(item) for index, item in enumerate(value)}
        elif role == "input" and value is not None:
            paths[key] = str(value)
    if corpus := getattr(config, "corpus", None):
        if corpus.path is not None or not corpus.files:
            paths.pop("source", None)
        if corpus.path is not None:
            paths["corpus.path"] = corpus.path
        for name, part in corpus.parts.items():
            if isinstance(part, Mapping) and part.get("path"):
                paths[f"corpus.parts.{name}.path"] = str(part["path"])
    if isinstance(config, EvaluateConfig):
        for task in (config.task, *config.own_tasks.values()):
            for name in filter(None, (task.train, *task.dev_names, task.test)):
                place = absolute(os.path.join(config.data, task.folder, name))
                if os.path.relpath(place, absolute(config.data)).startswith(".."):  # what is there counts with `data`
                    paths[f"task.{name}"] = place
    return paths


def settings_of(config: StageConfig) -> Settings:
    """Return all settings by dotted key: everything but the inputs that determines the output."""
    return {key: value for key, role, value in walk_fields(config) if role == "setting" and key != "corpus.path"}


def changed_settings(config: StageConfig) -> Settings:
    """Return the settings that differ from the schema's defaults, by dotted key."""
    defaults = defaults_of(type(config))
    return {key: value for key, value in settings_of(config).items() if key not in defaults or value != defaults[key]}


def defaults_of(schema: Any, prefix: str = "") -> Settings:
    """Return the schema's default for each setting that has one, by dotted key."""
    defaults: Settings = {}
    for field in dataclasses.fields(schema):
        key = prefix + field.name
        if field.metadata.get("role") in ("input", "runtime"):
            continue
        if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
            defaults |= defaults_of(field.type, f"{key}.")
        elif has_default(field):
            defaults[key] = default_of(field)
    return defaults


def producer_of(path: str, folders: Mapping[str, Any]) -> Any:
    """Return the value in `folders` for `path` or its parent folder, or None if no stage makes it.

    The keys are normalised paths.
    """
    path = os.path.normpath(path)
    return folders.get(path) or folders.get(os.path.dirname(path))


def fingerprint_path(path: Path | str, of_readers: bool = False) -> str:
    """Return the fingerprint of an input: its stage's, or else a hash of names, sizes and times.

    What was changed since its stage has made it is no longer the stage's. `of_readers`: see
    `fingerprint_files`.
    """
    manifest = Manifest.read(path, of_input=True)
    if manifest is not None:
        return fingerprint_files(path, of_readers) if manifest.changed(path) else manifest.fingerprint
    manifest, place = enclosing_manifest(path), places.at(places.normal(str(path)))
    if manifest is None or manifest.changed(place.parent, place.name):
        return fingerprint_files(path, of_readers)
    return fingerprint_part(manifest.fingerprint, path)


def fingerprint_part(whole: str, path: Path | str) -> str:
    """Return the fingerprint of a folder in a stage's folder, whose fingerprint is `whole`.

    It is the same, except for the checkpoints that `convert` writes side by side.
    """
    name = os.path.basename(os.path.normpath(path))
    return f"{whole}/{name}" if name.startswith(CHECKPOINT) else whole


def fingerprint_to_be(path: str, upstream: Sources) -> str | None:
    """Return the fingerprint of an input that is made by a stage of `upstream`; None if none does."""
    source = producer_of(path, upstream)
    return source if source is None or os.path.normpath(path) in upstream else fingerprint_part(source, path)


def absolute(place: str) -> str:
    """Return a place as it is compared: a local path from the root."""
    return os.path.normpath(place if places.is_address(place) else os.path.abspath(place))


def compare_inputs(manifest: Manifest, upstream: Sources) -> dict[str, bool]:
    """Return the inputs of a finished stage that stages of `upstream` make: whether each is what it has read.

    `upstream` has their fingerprints by absolute path.
    """
    inputs = {key: absolute(str(_lookup(manifest.config, key, ""))) for key in manifest.inputs}
    now = {key: fingerprint_to_be(place, upstream) for key, place in inputs.items()}
    return {key: digest == manifest.inputs[key] for key, digest in now.items() if digest is not None}


def fingerprint_files(path: Path | str, of_readers: bool = False) -> str:
    """Return the fingerprint of files that no stage made: of their names, sizes and times.

    With `of_readers` links that lead out of the folder are left out, as readers of a corpus do.
    """
    top, left_out = places.at(str(path)), set[Path]() if of_readers else None
    folder = places.is_folder(top)
    digest = hashlib.sha256()
    for file in places.below(top, left_out) if folder else places.matching(str(path), left_out):
        with contextlib.suppress(FileNotFoundError):
            name = str(file).removeprefix(f"{top}/") if folder else file.name
            mark, _ = places.mark_and_size(file, name)
            digest.update(f"{mark}\n".encode("utf-8", "surrogateescape"))  # a name need not be UTF-8
    return digest.hexdigest()


def fingerprint(stage: str, config: StageConfig, upstream: Sources | None = None) -> Identity:
    """Return the stage's fingerprint, and those of its inputs by config key.

    `upstream` holds the fingerprints of input folders that do not exist yet, by path.

    Raises:
        InputError: an input is in the folder that the stage writes.
    """
    sources, own_folder = {}, absolute(config.out)
    for key, path in inputs(config).items():
        if f"{absolute(path)}/".startswith(f"{own_folder}/"):
            raise InputError("is in the folder that this command writes; set another out", key, path)
        text = key == "source" or key.startswith("corpus.")
        # Of a store the keys may read the corpus alone, so its folder is not asked for a manifest.
        bare = key.startswith("corpus.") and places.is_address(path)
        hash_input = fingerprint_files if bare else fingerprint_path
        sources[key] = fingerprint_to_be(path, upstream or {}) or hash_input(path, text)
    return fingerprint_of(stage, changed_settings(config), sources), sources


def partial_fingerprint(config: StageConfig, sources: Sources, apart: tuple[str, ...]) -> str:
    """Return the fingerprint of the settings and inputs of a training whose keys begin otherwise."""
    parts = (changed_settings(config), sources)
    return fingerprint_of("train", *({k: v for k, v in part.items() if not k.startswith(apart)} for part in parts))


def fingerprint_of(stage: str, settings: Settings, sources: Sources) -> str:
    """Return the fingerprint of a stage with these settings and fingerprints of its inputs."""
    version = KNOWN[stage].version
    what = {"stage": stage, "version": version, "settings": settings, "inputs": sources}
    return sha256_of(json.dumps(what, sort_keys=True, default=dataclasses.asdict))


def recognise(stage: str, config: StageConfig, expected: str, sources: Sources) -> Manifest | None:
    """Return the manifest of `config.out` if its settings, inputs and files are the same.

    If the stage's version was raised since, only folders of slow stages are accepted, so that an
    upgrade never repeats a training.
    """
    present, fault = compare_manifest(stage, config, expected, sources)
    return present if fault is None else None


def compare_manifest(
    stage: str, config: StageConfig, expected: str, sources: Sources
) -> tuple[Manifest | None, str | None]:
    """Return the stage's manifest of `config.out`, and None if `recognise` accepts it.

    Otherwise a file that is missing or has changed, or "".
    """
    present = Manifest.read(config.out)
    if present is None or present.stage != stage:
        return None, ""
    if file := present.changed(config.out):
        return present, file
    if present.fingerprint == expected:
        return present, None
    if present.version != KNOWN[stage].version and KNOWN[stage].quick:
        return present, ""
    old = config if present.version == KNOWN[stage].version else _as_before(config)
    same = present.inputs == dict(sources) and not changes(present.config, old)
    return present, None if same else ""


def _as_before(config: StageConfig) -> StageConfig:
    """Return a configuration with the defaults of earlier versions in place of today's."""
    dated = [each for each in dataclasses.fields(config) if "formerly" in each.metadata]
    usual = (each for each in dated if getattr(config, each.name) == default_of(each))
    return dataclasses.replace(config, **{each.name: each.metadata["formerly"] for each in usual})


def changes(before: Settings, config: StageConfig) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ from a manifest's, as (before, now) by dotted key.

    A setting missing from the manifest had today's default; the golden file ensures that.
    """
    defaults = defaults_of(type(config))
    top = {field.name: field for field in dataclasses.fields(config)}
    before = {key: counted(top[key], old) if key in top else old for key, old in before.items()}
    changed = {}
    for key, value in settings_of(config).items():
        old = _lookup(before, key, defaults.get(key))
        if _plain(old) != _plain(value):
            changed[key] = (old, value)
    return changed


def differences(changed: Mapping[str, tuple[Any, Any]], language: str = "") -> str:
    """Format changed settings as `key old -> new`, combining those of another corpus.

    `language` is the corpus language now, in case it did not change.
    """
    parts = []
    if "corpus.name" in changed:
        languages = changed.get("corpus.language", (language, language))
        names = zip(changed["corpus.name"], languages, strict=True)
        parts.append("corpus " + " -> ".join(f"{name} ({code})" for name, code in names))
        changed = {key: pair for key, pair in changed.items() if not key.startswith("corpus.")}
    parts += [f"{key} {shorten(a)} -> {shorten(b)}" for key, (a, b) in sorted(changed.items())]
    return "; ".join(parts)


def shorten(value: Any) -> str:
    """Return a value as text of at most LONGEST_SETTING characters, with secrets redacted."""
    text = redact(str(value))  # before the cut: a part of a secret is not recognised
    return text if len(text) <= LONGEST_SETTING else f"{text[: LONGEST_SETTING - 1]}…"


def _lookup(nested: Settings, key: str, default: Any) -> Any:
    value: Any = nested
    for part in key.split("."):
        if isinstance(value, list):
            value = {str(place): one for place, one in enumerate(value)}
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value


def _plain(value: Any) -> Any:
    """Return the value as a manifest stores it."""
    return json.loads(json.dumps(value, default=dataclasses.asdict))


def pin(config: Any, commits: MutableMapping[str, str] | None = None) -> None:
    """Replace the revisions in a configuration's addresses of the hub by their commits.

    A branch may move while a stage or a run reads it. `commits` keeps those of several
    configurations: each address is resolved once.

    Raises:
        ConfigError, StoreError: the data set is missing, or the token may not see it.
        Restart: the hub does not answer.
    """
    commits = {} if commits is None else commits

    def pinned(place: str) -> str:
        if place not in commits:
            commits[place] = places.pin_revision(place)
        return commits[place]

    if corpus := getattr(config, "corpus", None):
        config.corpus = corpus.with_places(pinned)
