"""A stage: one config in, one folder out, and a manifest that says what was made from what.

The manifest is written last, and the folder gets its name last, by rename: a crash leaves the old
folder or the new one. A stage's fingerprint hashes its config, the fingerprints of its inputs and
the version of its code; a folder whose manifest has the same fingerprint is not made again.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from pipeline.common import screen
from pipeline.common.atomic import remove_leftovers
from pipeline.common.errors import ConfigError, InputError, UserError, disk_failure
from pipeline.common.manifest import MANIFEST, Manifest, Result, file_checksums
from pipeline.common.redact import redact
from pipeline.config import StageConfig
from pipeline.stages.fingerprints import fingerprint, recognise
from pipeline.stages.registry import stage_of

Config = TypeVar("Config", bound=StageConfig)


def output_place(out: str) -> Path:
    """Return the path of what a command makes.

    Raises:
        ConfigError: it is no name of its own, so that nothing can be moved there.
    """
    path = Path(os.path.normpath(out))
    if path.name in ("", ".."):
        raise ConfigError(
            f"out={out}: this place cannot be replaced; name a new one, such as out=work/made",
            key="out",
        )
    return path


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

    Raises:
        InputError: in place of such an error.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError):
            raise
        if what := disk_failure(error):
            raise InputError(
                f"out={out}: {what.lower()}; make room, or choose another out"
            ) from error
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


def current(stage: str, config: StageConfig) -> Manifest | None:
    """Return the manifest of `config.out` if it need not be made: same inputs, same settings."""
    return None if config.force else recognise(stage, config, *fingerprint(stage, config))


def age(present: Manifest) -> str:
    """Return what to know of a folder that earlier code made; nothing if today's did."""
    if present.version == stage_of(present.stage).version:
        return ""
    return " (made by an earlier version of the code; force=true makes it again)"


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
    out = output_place(config.out)
    with disk_errors_as_input_errors(out), locked(out, wait):
        recover(out)
        check_free(stage, out, in_place)
        wanted, sources = fingerprint(stage, config)
        present = None if config.force else recognise(stage, config, wanted, sources)
        if present is not None:
            screen.say(f"{stage}: up to date{age(present)}, {present.summary} -> {out}")
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
        remove_leftovers(folder)
        manifest = Manifest(
            stage=stage,
            fingerprint=wanted,
            version=stage_of(stage).version,
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
    screen.say(redact(told))
    return manifest
