"""`manifest.json`: a stage's inputs, settings, output files, checksums and figures."""

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pipeline.console.redact import without_secrets
from pipeline.errors import InputError
from pipeline.storage import file_search, places
from pipeline.storage.atomic import write_text
from pipeline.storage.checksums import sha256
from pipeline.storage.strict_json import Json

MANIFEST = "manifest.json"
KIND = "manifest/"  # begins the format of every version
FORMAT = f"{KIND}1"
TRACKER = "wandb/"  # W&B writes there after the stage has ended
BEGUN = "begun"  # the stage that has begun a folder in a store


Files = dict[str, Json]  # bytes and sha256, by relative path
Spent = dict[str, list[float]]  # by step: seconds of the processor, and seconds of waiting


@dataclass(frozen=True, kw_only=True)
class Result:
    """The results that a stage reports."""

    summary: str  # one line of key figures
    figures: Json  # everything the report or a later stage may need
    sums: dict[str, str] = field(default_factory=dict)  # known sha256 by relative path
    earlier: float = 0.0  # seconds that earlier starts spent on it
    spent: Spent = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The record of a finished stage, `manifest.json` in its folder."""

    stage: str
    fingerprint: str
    version: int
    config: Json
    inputs: dict[str, str]  # config key -> fingerprint
    files: Files
    figures: Json
    summary: str
    seconds: float  # over all starts
    finished: str  # UTC, ISO 8601
    times: dict[str, int] = field(default_factory=dict)  # of the files, in ns
    spent: Spent = field(default_factory=dict)  # in the last start
    format: str = FORMAT

    @classmethod
    def read(cls, folder: places.File | str, *, of_input: bool = False) -> "Manifest | None":
        """Return the manifest of `folder`, which may be in a store; None: it is missing, or begun.

        With `of_input`, a `manifest.json` of another program counts as none: an input may be any
        folder.

        Raises:
            InputError: it is there but not a manifest of a known format, or may not be read.
            StoreError, Restart: the store refuses, or does not answer.
        """
        content = cls._load(folder, of_input)
        return content if isinstance(content, Manifest) else None

    @classmethod
    def maker(cls, folder: places.File | str) -> str | None:
        """Return the stage that has made a folder, or has begun it; None: no stage has.

        Raises:
            InputError, StoreError, Restart: as `read`.
        """
        content = cls._load(folder)
        return content.stage if isinstance(content, Manifest) else content

    @classmethod
    def _load(cls, folder: places.File | str, of_input: bool = False) -> "Manifest | str | None":
        """Return the manifest of a folder, or the stage that has begun it."""
        top = places.at(folder)
        place = places.normal(str(top)) if isinstance(top, places.Remote) else str(top)
        path = places.at(f"{place}/{MANIFEST}")
        ours = False
        try:
            fields = json.loads(path.read_bytes())
            ours = isinstance(fields, dict) and str(fields.get("format")).startswith(KIND)
            if not ours and of_input:
                return None
            if not ours:
                raise ValueError("written by another program")
            if BEGUN in fields:
                return str(fields[BEGUN])
            if fields["format"] != FORMAT:
                raise InputError(
                    f"format {fields['format']} is not {FORMAT}; use the release that wrote it, or delete the folder",
                    path=path,
                )
            for name in fields["files"]:
                file_search.inside(Path(), name, path)
            return cls(**fields)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            at_fault = path if os.access(str(folder), os.X_OK) else folder
            raise InputError(f"cannot be read ({(error.strerror or '').lower()})", path=at_fault) from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            cure = "delete the folder" if ours else "move it elsewhere, or set another folder"
            raise InputError(f"not a manifest ({error}); {cure}", path=path) from error

    def changed(self, folder: places.File | str, below: str = "") -> str | None:
        """Return the first file below a part of `folder` that is not what this says; None: all are.

        A file of the noted size is looked into where its time is neither the noted one nor, if none
        was noted or the store has its own, before that of the manifest. A tracker's files are no
        part of the result.

        Raises:
            InputError, StoreError, Restart: a file cannot be read.
        """
        top = places.at(folder)
        remote = isinstance(top, places.Remote)
        start = len(str(top)) + 1
        files = {str(file)[start:]: file for file in places.below(top)} if remote else {}
        written = places.at(f"{top}/{MANIFEST}").stat().st_mtime_ns
        for name, entry in self.part(below).items():
            if name.startswith(TRACKER):
                continue
            file = files.get(name) if remote else Path(str(top), name)
            try:
                stat = None if file is None else file.stat()
            except (FileNotFoundError, NotADirectoryError):
                stat = None
            if file is None or stat is None or stat.st_size != entry.get("bytes"):
                return name
            noted = None if remote else self.times.get(name)
            if stat.st_mtime_ns == noted or (noted is None and stat.st_mtime_ns <= written):
                continue
            if sha256(file) != entry["sha256"]:
                return name
            if isinstance(file, Path) and noted is not None:  # a copy: looked into once
                with contextlib.suppress(OSError):
                    os.utime(file, ns=(noted, noted))
        return None

    def part(self, name: str) -> Files:
        """Return the files of a part of the folder, which is one of them or has some of them; "" is all of it."""
        return {each: entry for each, entry in self.files.items() if f"{each}/".startswith(name and f"{name}/")}

    def write(self, folder: Path) -> None:
        """Write `manifest.json` into `folder`, with secrets redacted."""
        write_text(folder / MANIFEST, json.dumps(without_secrets(asdict(self)), indent=1) + "\n")


def unfinished_manifest(stage: str) -> bytes:
    """Return the manifest of a folder in a store that `stage` has begun and not finished.

    No two are equal: S3 gives equal bytes one ETag, and who stood still would take another's for its own.
    """
    return json.dumps({"format": FORMAT, BEGUN: stage, "by": os.urandom(8).hex()}).encode()


def require_manifest(folder: places.File | str, stage: str, key: str) -> Manifest:
    """Return the manifest of an input folder, which may be in a store.

    Raises:
        InputError: the folder has no manifest, or was made by a stage other than `stage`.
    """
    manifest = Manifest.read(folder, of_input=True)
    if manifest is None:
        raise InputError(
            f"not the folder of a finished {stage}; run python -m pipeline.{stage} first, or set {key}", key, folder
        )
    if manifest.stage != stage:
        raise InputError(f"made by {manifest.stage}, not by {stage}; set {key}", key, folder)
    return manifest


def enclosing_manifest(path: Path | str) -> Manifest | None:
    """Return the manifest of the folder of `path` if it lists `path`, else None."""
    place = places.at(places.normal(str(path)))
    manifest = Manifest.read(place.parent, of_input=True)
    return manifest if manifest is not None and manifest.part(place.name) else None


def manifest_of(path: Path | str) -> Manifest | None:
    """Return the manifest of the stage that made an input, None if no stage did."""
    return Manifest.read(path, of_input=True) or enclosing_manifest(path)


def file_checksums(folder: Path, sums: Mapping[str, str], other: Callable[[str], bool] = lambda name: False) -> Files:
    """Return size and sha256 of every file below `folder` that is no `other` result's.

    A sha256 in `sums` is reused.
    """
    return {
        name: {"bytes": path.stat().st_size, "sha256": sums.get(name) or sha256(path)}
        for name, path in file_search.visible(folder).items()
        if name != MANIFEST and not other(name)
    }
