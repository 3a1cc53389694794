"""A stage: one config in, one folder out, and a manifest that says what was made from what.

The manifest is written last, and the folder gets its name last, by rename: a crash leaves the old
folder or the new one. A stage's fingerprint hashes its config, the fingerprints of its inputs and
the version of its code; a folder whose manifest has the same fingerprint is not made again.
"""

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pipeline.common import redact, storage
from pipeline.common.errors import InputError, UserError
from pipeline.config import StageConfig

MANIFEST = "manifest.json"
FORMAT = "manifest/1"

# Raised when the same inputs would give other bytes than before.
VERSIONS = {
    "download": 1,
    "vocab": 1,
    "prepare": 3,
    "tasks": 1,
    "train": 1,
    "convert": 3,
    "evaluate": 2,
    "submit": 1,
    "report": 4,
}

Config = TypeVar("Config", bound=StageConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What a stage says of what it made."""

    summary: str  # one line of key figures
    figures: dict[str, Any]  # JSON: everything the report or a later stage may want
    sums: dict[str, str] = dataclasses.field(default_factory=dict)  # known sha256 by relative path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """The account of a finished stage, `manifest.json` in its folder."""

    stage: str
    fingerprint: str
    version: int
    config: dict[str, Any]
    inputs: dict[str, str]  # config key -> fingerprint
    files: dict[str, dict[str, Any]]  # relative path -> bytes, sha256
    figures: dict[str, Any]
    summary: str
    seconds: float
    finished: str  # UTC, ISO 8601
    format: str = FORMAT

    @classmethod
    def read(cls, folder: Path | str) -> "Manifest | None":
        """The manifest of `folder`; None where there is none.

        Raises:
            InputError: it is there but not a manifest of a known format.
        """
        path = Path(folder) / MANIFEST
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if fields["format"] != FORMAT:
                raise InputError(f"{path}: format {fields['format']}, this code reads {FORMAT}")
            return cls(**fields)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(f"{path}: not a manifest ({error}); remove the folder") from error

    def write(self, folder: Path) -> None:
        """Write beside and rename; secrets stay out."""
        text = json.dumps(dataclasses.asdict(self), indent=1)
        write_text(folder / MANIFEST, redact.redact(text) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a small text file so that a crash leaves the old content or the new."""
    beside = path.with_name(f".{path.name}.tmp")
    with beside.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def sha256(path: Path) -> str:
    """The checksum of a file, as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_manifest(folder: Path | str, stage: str, key: str) -> Manifest:
    """The manifest of an input folder that `stage` must have made.

    Raises:
        InputError: there is none, or another stage made what is there.
    """
    manifest = Manifest.read(folder)
    if manifest is None:
        raise InputError(
            f"{key}={folder}: no finished {stage} there; run python -m pipeline.{stage} first, "
            f"or set {key}"
        )
    if manifest.stage != stage:
        raise InputError(f"{key}={folder}: made by {manifest.stage}, not by {stage}; set {key}")
    return manifest


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


def enclosing_manifest(path: Path | str) -> Manifest | None:
    """The manifest of the folder that `path` lies in, if it accounts for it."""
    path = Path(os.path.normpath(path))
    manifest = Manifest.read(path.parent)
    if manifest is None:
        return None
    mine = any(name == path.name or name.startswith(f"{path.name}/") for name in manifest.files)
    return manifest if mine else None


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
    folder = top.is_dir()
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
        {"stage": stage, "version": VERSIONS[stage], "settings": settings, "inputs": sources},
        sort_keys=True, default=dataclasses.asdict,
    )  # fmt: skip
    return hashlib.sha256(text.encode()).hexdigest(), sources


@contextlib.contextmanager
def locked(out: Path, wait: bool = False) -> Iterator[None]:
    """Hold the folder's lock file, so that two runs cannot make one folder at once.

    With `wait`, let another process finish first.

    Raises:
        InputError: another process holds it, or the place cannot be written.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        lock = (out.parent / f".{out.name}.lock").open("w")
    except OSError as error:
        raise InputError(f"out={out}: cannot write there ({error.strerror})") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            raise InputError(f"out={out}: another run is making this folder") from error
        yield


@contextlib.contextmanager
def disk_errors_as_input_errors(out: Path) -> Iterator[None]:
    """Say it in one line where the body finds the disk full, limited, or not to be written.

    Engines and libraries wrap the error of the system in errors of their own: its words stay.

    Raises:
        InputError: in place of such an error.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError):
            raise
        for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS):
            if os.strerror(code) in str(error):
                what = os.strerror(code).lower()
                raise InputError(f"out={out}: {what}; make room, or choose another out") from error
        raise


def check_free(stage: str, out: Path, in_place: bool) -> None:
    """Refuse a place that holds what `stage` did not make: it would be lost.

    A stage that works `in_place` may find what it has begun, without a manifest yet.

    Raises:
        InputError: a file is there, files of nobody's, or another stage's.
    """
    present = Manifest.read(out)
    if present is not None and present.stage != stage:
        found = f"there is what {present.stage} made"
    elif out.exists() and not out.is_dir():
        found = "there is a file"
    elif present is None and not in_place and out.is_dir() and any(out.iterdir()):
        found = f"there are files that {stage} did not make"
    else:
        return
    raise InputError(f"out={out}: {found}, and would be lost; remove it, or choose another out")


def replace(old: Path, new: Path) -> None:
    """Give the folder `new` the name `old`; what was there goes."""
    away = old.with_name(f".{old.name}.old")
    if old.exists():
        old.rename(away)
    new.rename(old)
    shutil.rmtree(away, ignore_errors=True)


def recover(out: Path) -> None:
    """Mend what a crash within `replace` left behind."""
    away = out.with_name(f".{out.name}.old")
    if away.exists() and not out.exists():
        away.rename(out)
    shutil.rmtree(away, ignore_errors=True)


def is_current(stage: str, config: StageConfig) -> bool:
    """Whether `config.out` is there already, made from the same inputs by the same settings."""
    present = Manifest.read(config.out)
    return (
        present is not None
        and not config.force
        and present.fingerprint == fingerprint(stage, config)[0]
    )


def run(
    stage: str,
    config: Config,
    make: Callable[[Config, Path], Result],
    *,
    in_place: bool = False,
    wait: bool = False,
) -> Manifest:
    """Make `config.out` by `make(config, folder)`, unless it is there already.

    With `in_place` the folder keeps its name while it is made, for stages that resume by
    themselves; its old manifest goes before anything is written. With `wait`, another process that
    makes the folder now is let finish first; else that is an error.

    Raises:
        UserError: what `make` raises; or `out` is being made, cannot be written, or is not ours.
    """
    out = Path(os.path.normpath(config.out))
    with disk_errors_as_input_errors(out), locked(out, wait):
        recover(out)
        check_free(stage, out, in_place)
        wanted, sources = fingerprint(stage, config)
        if is_current(stage, config):
            present = Manifest.read(out)
            assert present is not None
            print(f"{stage}: up to date, {present.summary} -> {out}", flush=True)
            return present
        started = time.monotonic()
        folder = out if in_place else out.with_name(f".{out.name}.tmp")
        if in_place:
            (out / MANIFEST).unlink(missing_ok=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            result = make(config, folder)
        except BaseException:
            if not in_place:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        manifest = Manifest(
            stage=stage,
            fingerprint=wanted,
            version=VERSIONS[stage],
            config=dataclasses.asdict(config),
            inputs=sources,
            files=file_checksums(folder, result.sums),
            figures=result.figures,
            summary=result.summary,
            seconds=round(time.monotonic() - started, 3),
            finished=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )
        manifest.write(folder)
        if not in_place:
            replace(out, folder)
    told = f"{stage}: {manifest.summary} in {manifest.seconds:.1f} s -> {out}"
    print(redact.redact(told), flush=True)
    return manifest


def file_checksums(folder: Path, known: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Size and sha256 of every file under `folder`; checksums in `known` are taken as given."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not any(part.startswith(".") for part in Path(name).parts):
            files[name] = {
                "bytes": path.stat().st_size,
                "sha256": known.get(name) or sha256(path),
            }
    return files
