"""A stage: one configuration in, one folder out, with a manifest of its inputs and settings.

The manifest is written last, and then the folder is renamed into place: a crash leaves the old
folder or the new one. A stage's fingerprint hashes its config, the fingerprints of its inputs and
the version of its code; a folder whose manifest has the same fingerprint is up to date.
"""

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pipeline.config import StageConfig
from pipeline.console import terminal
from pipeline.console.redact import one_line
from pipeline.errors import ConfigError, InputError, UserError, disk_failure, writable
from pipeline.records.checkpoint_folder import belongs_to_other, run_name
from pipeline.records.manifest import MANIFEST, Manifest, Result, file_checksums, unfinished_manifest
from pipeline.stages.fetch_inputs import Config, local_place, localise
from pipeline.stages.fingerprints import Identity, changes, differences, fingerprint, pin, recognise
from pipeline.stages.output_folder import OutputFolder, output_folder
from pipeline.stages.registry import KNOWN
from pipeline.storage.atomic import remove_leftovers, write_text
from pipeline.storage.uploads import BackgroundUpload


def output_place(out: str) -> Path:
    """Return the output path of a command.

    Raises:
        ConfigError: it does not end in a name (`.`, `..`, `/`), so no folder can be renamed to it.
    """
    path = Path(os.path.normpath(out))
    if path.name in ("", ".."):
        raise ConfigError("cannot be replaced; set out to a new folder, such as out=work/made", "out", out)
    return path


@contextlib.contextmanager
def lock_target(out: Path, wait: bool) -> Iterator[Path]:
    """Hold the lock of the folder that `out` links to, if it may be written; yield the folder.

    It is `out` itself if that is not a link: renaming folders would replace the link.
    """
    if not out.is_symlink():
        yield out
        return
    target = Path(os.path.realpath(out))
    writable = os.access(target.parent, os.W_OK)  # what is up to date may be read-only
    with lock_folder(target, wait) if writable else contextlib.nullcontext():
        yield target


def lock_folder(out: Path, wait: bool = False) -> contextlib.AbstractContextManager[None]:
    """Hold the lock file next to a folder, so that two runs cannot write the folder at once.

    With `wait`, wait until another process has finished.

    Raises:
        InputError: another process holds the lock, or the parent folder is not writable.
    """
    return _flock(out.parent / f".{out.name}.lock", out, "out", wait)


def lock_run(workdir: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the lock file in the folder of a run, whose parent may be anyone's.

    Raises:
        InputError: another run holds the lock, or the folder is not writable.
    """
    return _flock(workdir / ".lock", workdir, "workdir", wait=False)


@contextlib.contextmanager
def _flock(lock: Path, folder: Path, key: str, wait: bool) -> Iterator[None]:
    """Hold the lock file of a folder; `key` is what the folder is the value of.

    A start that leaves nothing else in a new folder, as after a mistake of the user, takes both away.
    """
    new = [above for above in lock.parents if not above.exists()]
    with writable(folder, key):
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            what = "another run is writing this folder; wait for it, or set another"
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                what = f"cannot be locked ({error.strerror}); mount its file system with locks (flock), or set another"
            raise InputError(f"{what} {key}", key, folder) from error
        if not (lock.exists() and os.path.samestat(os.fstat(file.fileno()), lock.stat())):
            raise InputError("was taken away by another start; rerun the same command", key, folder)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if new and os.listdir(lock.parent) == [lock.name]:
                    lock.unlink()
                    for above in new:
                        above.rmdir()


@contextlib.contextmanager
def convert_disk_errors(out: Path) -> Iterator[None]:
    """Convert errors of a disk raised in the body to a one-line InputError."""
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) or not (what := disk_failure(error)):
            raise
        raise InputError(f"{what.lower()}; free space, check the disk, or set another out", "out", out) from error


def replace(old: Path, new: Path) -> None:
    """Rename the folder `new` to `old`, deleting a previous `old`."""
    away = old.with_name(f".{old.name}.old")
    if old.exists():
        old.rename(away)
    new.rename(old)
    discard(away)


def recover(out: Path) -> None:
    """Restore the folder after a crash within `replace`."""
    away = out.with_name(f".{out.name}.old")
    if away.exists() and not out.exists():
        away.rename(out)
    discard(away)


def discard(away: Path) -> None:
    """Delete a folder that was replaced; of a link, only the link."""
    if away.is_symlink():
        away.unlink()
    shutil.rmtree(away, ignore_errors=True)


@contextlib.contextmanager
def _held(stage: str, config: StageConfig, wait: bool = False) -> Iterator[tuple[OutputFolder, Path]]:
    """Hold the folder of a stage; yield it, and where its local place leads to."""
    named = output_place(str(local_place(config.out, config.mirror)))
    folder = output_folder(stage, config, named)
    with convert_disk_errors(named), lock_folder(named, wait), folder.locked(wait), lock_target(named, wait) as out:
        recover(out)
        yield folder, out


def run(
    stage: str,
    config: Config,
    make: Callable[[Config, Path], Result],
    *,
    in_place: bool = False,
    wait: bool = False,
    uploads: BackgroundUpload | None = None,
    identity: Identity | None = None,
) -> Manifest:
    """Make `config.out` with `make(config, folder)`, unless it is up to date.

    With `in_place` the folder keeps its name while it is written, for stages that resume by
    themselves; its old manifest is deleted first. With `wait`, wait for another process that is
    writing the folder; otherwise that is an error.

    A folder in a store is made here and put there; `make` gets local paths. `uploads` is what puts
    the files of a stage in place while it is made. `identity` is the result of `fingerprint`, if
    known.

    Raises:
        UserError: raised by `make`, or `out` is locked, not writable or not a folder of `stage`.
    """
    pin(config)
    with _held(stage, config, wait) as (folder, out):
        identity = identity or fingerprint(stage, config)
        digest, _ = identity
        if config.force:
            _delete(folder, out, digest)
        folder.check_free(in_place)
        present = recognise(stage, config, *identity)
        if present is not None:
            same = present.version == KNOWN[stage].version
            age = "" if same else " (made by an earlier version of the code; rerun it with force=true)"
            terminal.say(f"{stage}: up to date{age}, {present.summary} -> {folder.place}")
            return present
        manifest = folder.unsent(digest)
        if manifest is None:
            if not in_place and (old := Manifest.read(out)) is not None:
                changed = differences(changes(old.config, config)) or "inputs or code"
                terminal.say(f"{stage}: will replace what is in {folder.place}, as these differ: {changed}")
            folder.begin(in_place, digest)
            manifest = _made(folder, config, make, out, in_place, uploads, identity)
        manifest = folder.finish(manifest)
    terminal.say(f"{stage}: {manifest.summary} in {manifest.seconds:.1f} s -> {folder.place}")
    return manifest


def delete(stage: str, config: StageConfig, digest: str) -> None:
    """Delete what a stage with the fingerprint `digest` has made, and what it would resume from.

    Raises:
        InputError: another process makes it, or it cannot be deleted.
    """
    with _held(stage, config) as (folder, out):
        _delete(folder, out, digest)


def _delete(folder: OutputFolder, out: Path, digest: str) -> None:
    """Delete a result, its manifest first; files of others and of other trainings stay."""
    folder.check_free(in_place=True)
    manifest = Manifest.read(folder.config.out)
    progress = KNOWN[folder.stage].progress.format(run_name(digest))
    files = manifest.files if manifest is not None and not progress else {}
    folder.discard(lambda name: name in files or (progress and name.startswith(f"{progress}/")))
    with writable(out):
        if files and (out / MANIFEST).exists():  # what a killed start leaves is the stage's
            write_text(out / MANIFEST, unfinished_manifest(folder.stage).decode())
        for name in [*files, MANIFEST]:
            (out / name).unlink(missing_ok=True)
        remove_leftovers(out)
        if progress and (out / progress).exists():
            (out / progress).rename(out / ".forced.tmp")
            remove_leftovers(out)


@contextlib.contextmanager
def _work_folder(out: Path, in_place: bool, keeps_manifest: bool) -> Iterator[Path]:
    """Yield the folder that the body makes: an empty one, or that of a stage that resumes, its manifest put aside.

    If the body fails, nothing stays of an empty one, and the manifest of the other may be as it was, see `_put_back`.
    """
    folder = out if in_place else out.with_name(f".{out.name}.tmp")
    aside = folder / f".{MANIFEST}.tmp"
    if not in_place:
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier start
    elif (folder / MANIFEST).exists():
        (folder / MANIFEST).rename(aside)
    new = not folder.exists()
    with writable(out):  # also in the place that a link leads to
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except BaseException as error:
        if not in_place:
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            if new:
                folder.rmdir()  # empty, after a mistake of the user
            _put_back(aside, out, keeps_manifest and isinstance(error, UserError))
        raise


def _put_back(aside: Path, out: Path, keep: bool) -> None:
    """Let a folder have its manifest again, if a mistake of the user was found before a file of it changed."""
    if aside.exists() and keep:
        aside.rename(out / MANIFEST)
        manifest = Manifest.read(out)
        if manifest is not None and manifest.changed(out) is not None:
            (out / MANIFEST).unlink()
    aside.unlink(missing_ok=True)


def _made(
    target: OutputFolder,
    config: Config,
    make: Callable[[Config, Path], Result],
    out: Path,
    in_place: bool,
    uploads: BackgroundUpload | None,
    identity: Identity,
) -> Manifest:
    """Make the local folder, with its manifest: an empty one, or that of a stage that resumes."""
    started, (digest, sources) = time.monotonic(), identity
    local = localise(target.stage, config)
    uploading = target.uploading(uploads) if in_place else contextlib.nullcontext()
    with _work_folder(out, in_place, target.keeps_manifest) as folder, uploading:
        result = make(local, folder)
    remove_leftovers(folder)
    result = target.addressed(result)
    # What was empty holds nothing of other trainings.
    others = [functools.partial(belongs_to_other, run_name(digest))] if in_place else []
    files = file_checksums(folder, result.sums, *others)
    manifest = Manifest(
        stage=target.stage,
        fingerprint=digest,
        version=KNOWN[target.stage].version,
        config=dataclasses.asdict(config),
        inputs=sources,
        files=files,
        times={name: (folder / name).stat().st_mtime_ns for name in files},
        figures=result.figures,
        summary=one_line(result.summary),
        spent=result.spent,
        seconds=round(result.earlier + time.monotonic() - started, 3),
        finished=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    manifest.write(folder)
    if not in_place:
        replace(out, folder)
    return manifest
