"""Folders of stages in object stores: their local copies, and what stages read of them.

A stage works on local copies (`pipeline.storage.cached_folders`). Before it, what it reads is
fetched, by the manifests.
"""

import contextlib
import copy
import fnmatch
import glob
import os
from pathlib import Path
from typing import Any, TypeVar

from pipeline.common import parallel
from pipeline.common.schema import set_key
from pipeline.config import StageConfig
from pipeline.errors import InputError
from pipeline.records.checkpoint_folder import FILE, RUNS, SUMS, sums_of
from pipeline.records.manifest import MANIFEST, Manifest
from pipeline.stages.fingerprints import inputs
from pipeline.storage import file_search, lease, places
from pipeline.storage.cached_folders import CachedFolder, default_root, local_path
from pipeline.storage.stores import objects
from pipeline.storage.stores.remote_file import Info
from pipeline.storage.uploads import BackgroundUpload

# What a stage reads of its inputs, where that is not all of them.
READS = {"report": ("*.json", "*.jsonl"), "submit": ("*.tsv", "*.json")}
DEPTH = 4  # an input and folders above it that may have the manifest that names it
BUCKET = 3  # parts of an address without a key: s3:, nothing, the bucket

Config = TypeVar("Config", bound=StageConfig)


def root_of(mirror: str | None) -> Path:
    """Return the folder of the local copies."""
    return Path(os.path.abspath(mirror)) if mirror else default_root()


def in_store(place: str) -> bool:
    """Return whether a folder is in a store that this module keeps copies of."""
    return place.lower().startswith(objects.SCHEMES)


def local_place(place: str, mirror: str | None) -> Path:
    """Return the local folder of a place: its copy's where it is in a store."""
    return local_path(root_of(mirror), place) if in_store(place) else Path(place)


def list_stages(workdir: str, pattern: str = "*") -> list[str]:
    """Return the folders of finished stages in the folder of a run, sorted."""
    files = places.matching(f"{glob.escape(places.normal(workdir))}/{pattern}/{MANIFEST}")
    return [str(file.parent) for file in files if not file_search.hidden(file.parent.name)]


def list_checkpoints(out: str) -> list[tuple[str, int]]:
    """Return the checkpoints of a train stage, as (folder of the run, step), the newest last."""
    place = places.normal(out) if in_store(out) else out
    files = places.matching(f"{glob.escape(place)}/{RUNS}/*/step-*/{SUMS}")
    files.sort(key=lambda file: file.stat().st_mtime_ns)
    matches = (FILE.search(str(file)) for file in files)
    return [(match[2], int(match[3])) for match in matches if match]


def checkpoint_store(config: StageConfig) -> BackgroundUpload:
    """Return how the ranks of a training share checkpoints."""
    if not in_store(config.out):
        return BackgroundUpload()

    def fetch(path: Path) -> None:
        copy = CachedFolder(root_of(config.mirror), config.out)
        with copy.reading() as free:  # it is not on rank 0's node, which has written it
            if free:
                fetch_checkpoint(copy, path.as_posix(), copy.listed())

    return BackgroundUpload(fetch)


def localise(stage: str, config: Config) -> Config:
    """Return the configuration with local paths, its inputs fetched.

    Raises:
        InputError, StoreError: an input is missing or damaged.
        Restart: the store does not answer.
    """
    local = copy.deepcopy(config)
    for key, place in inputs(config).items():
        if in_store(place) and not key.startswith("corpus."):
            # Of shards that come as they are trained on, only those of validation are read before it begins.
            data = getattr(config, "data", None) if key.startswith(("data.dir", "data.more")) else None
            read = READS.get(stage, ("*",)) if getattr(data, "cache", None) is None else ("validation-*",)
            set_key(local, key, str(fetch_input(root_of(config.mirror), place, key, read)))
    for key in ("out", "workdir"):
        if in_store(getattr(local, key)):
            setattr(local, key, str(local_place(getattr(local, key), config.mirror)))
    return local


def shard_addresses(config: Any) -> dict[str, str]:
    """Return the addresses of a training's folders of shards, by the local folders of copies."""
    stored = [places.normal(place) for place in config.data.folders if in_store(place)]
    return {str(local_place(place, config.mirror)): place for place in stored}


def fetch_input(root: Path, address: str, key: str, patterns: tuple[str, ...] = ("*",)) -> Path:
    """Fetch an input, a folder or a file; return its local path.

    Raises:
        InputError: there are no such files.
        StoreError, Restart: the store refuses, or does not answer.
    """
    address = places.normal(address)
    parts = address.split("/")
    for count in [len(parts), *range(len(parts) - 1, BUCKET, -1)][:DEPTH]:
        top, inner = "/".join(parts[:count]), "/".join(parts[count:])
        manifest = Manifest.read(top, of_input=True)
        if manifest is not None and (manifest.part(inner) or not inner):
            break
    else:
        return _fetch_listed(root, address, key)
    if manifest.changed(top, inner):
        return _fetch_listed(root, address, key)
    checksums: dict[str, str | None] = {
        name: entry["sha256"]
        for name, entry in manifest.part(inner).items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    folder = CachedFolder(root, top)
    with folder.reading() as free:
        if free:
            folder.fetch(checksums, folder.listed() if checksums else {})
            # Other ranks of this node may read the manifest now.
            folder.keep_only({*manifest.files, MANIFEST})
            folder.path.mkdir(parents=True, exist_ok=True)  # nothing of it may have been wanted
            manifest.write(folder.path)
    return local_path(root, address)


def _fetch_listed(root: Path, address: str, key: str) -> Path:
    """Fetch what no stage made: all objects below an address, or the one at it."""
    top, _, name = address.rpartition("/")
    info = objects.client(address).head(address) if top.count("/") >= 2 else None
    folder = CachedFolder(root, top if info is not None else address)
    listed = {name: info} if info is not None else folder.listed()
    checksums: dict[str, str | None] = dict.fromkeys(n for n in listed if not file_search.hidden(n))
    if not checksums:
        raise InputError("not found; check the address", key, address)
    with folder.reading() as free:
        if free:
            folder.fetch(checksums, listed)
            if info is None:
                folder.keep_only(checksums)
    return local_path(root, address)


def fetch_checkpoint(copy: CachedFolder, group: str, listed: dict[str, Info]) -> None:
    """Fetch a checkpoint by its sums, which go last."""
    copy.fetch({f"{group}/{SUMS}": None}, listed)
    copy.fetch({f"{group}/{name}": checksum for name, checksum in sums_of(copy.path / group).items()}, listed)


def lock_run(workdir: str) -> contextlib.AbstractContextManager[object]:
    """Hold the lock of a run's folder, where that is in a store.

    Raises:
        InputError: another process works there.
    """
    stored = in_store(workdir)
    return lease.hold_lock(f"{places.normal(workdir)}/.lock", "workdir") if stored else contextlib.nullcontext()


def put_logs(workdir: str, mirror: str | None) -> None:
    """Put the logs of a run's stages."""
    if in_store(workdir):
        logs = CachedFolder(root_of(mirror), f"{places.normal(workdir)}/logs")
        parallel.each(logs.put, list(logs.files()))
        logs.save_index()
