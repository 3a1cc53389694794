"""A stage whose folder, or whose inputs, are in an object store.

The stage works on local copies (`pipeline.storage.cached_folders`). Before it, what it reads is
fetched, by the manifests. After it, its files are put, then its manifest: what no manifest names
is not read. A stage that resumes puts what it has meanwhile; of a checkpoint its SHA256SUMS is the
manifest, and is put last.
"""

import contextlib
import copy
import dataclasses
import fnmatch
import glob
import json
import os
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pipeline.common import parallel
from pipeline.common.schema import set_key
from pipeline.config import StageConfig
from pipeline.errors import InputError, Restart, StoreError
from pipeline.records.checkpoint_folder import FILE, FILES, RUNS, STATE, SUMS, belongs_to_other, run_name, sums_of
from pipeline.records.manifest import MANIFEST, Files, Manifest, Result, unfinished_manifest
from pipeline.stages.fingerprints import inputs
from pipeline.storage import file_search, lease, places
from pipeline.storage.cached_folders import CachedFolder, default_root, local_path, other_than, restore_addresses
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
    found = places.matching(f"{glob.escape(places.normal(workdir))}/{pattern}/{MANIFEST}")
    return [str(file.parent) for file in found if not file_search.hidden(file.parent.name)]


def list_checkpoints(out: str) -> list[tuple[str, int]]:
    """Return the checkpoints of a train stage, as (folder of the run, step), the newest last."""
    place = places.normal(out) if in_store(out) else out
    files = places.matching(f"{glob.escape(place)}/{RUNS}/*/step-*/{SUMS}")
    files.sort(key=lambda file: file.stat().st_mtime_ns)
    found = (FILE.search(str(file)) for file in files)
    return [(match[2], int(match[3])) for match in found if match]


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
    found, root = copy.deepcopy(config), root_of(config.mirror)
    for key, place in inputs(config).items():
        if in_store(place) and not key.startswith("corpus."):
            set_key(found, key, str(fetch_input(root, place, key, _read_of(stage, key, config))))
    for key in ("out", "workdir"):
        if in_store(getattr(found, key)):
            setattr(found, key, str(local_place(getattr(found, key), config.mirror)))
    return found


def _read_of(stage: str, key: str, config: StageConfig) -> tuple[str, ...]:
    """Return patterns of the names that a stage reads of an input before it begins."""
    data = getattr(config, "data", None) if key.startswith(("data.dir", "data.more")) else None
    return READS.get(stage, ("*",)) if getattr(data, "cache", None) is None else ("validation-*",)


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
    wanted: dict[str, str | None] = {
        name: account["sha256"]
        for name, account in manifest.part(inner).items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    here = CachedFolder(root, top)
    with here.reading() as free:
        if free:
            here.fetch(wanted, here.listed() if wanted else {})
            # Other ranks of this node may read the manifest now.
            here.keep_only({*manifest.files, MANIFEST})
            here.path.mkdir(parents=True, exist_ok=True)  # nothing of it may have been wanted
            manifest.write(here.path)
    return local_path(root, address)


def _fetch_listed(root: Path, address: str, key: str) -> Path:
    """Fetch what no stage made: all objects below an address, or the one at it."""
    top = address.rpartition("/")[0]
    info = objects.client(address).head(address) if top.count("/") >= 2 else None
    here = CachedFolder(root, top if info is not None else address)
    name = address.rpartition("/")[2]
    listed = {name: info} if info is not None else here.listed()
    wanted: dict[str, str | None] = dict.fromkeys(n for n in listed if not file_search.hidden(n))
    if not wanted:
        raise InputError("not found; check the address", key, address)
    with here.reading() as free:
        if free:
            here.fetch(wanted, listed)
            if info is None:
                here.keep_only(wanted)
    return local_path(root, address)


def fetch_checkpoint(copy: CachedFolder, group: str, listed: dict[str, Info]) -> None:
    """Fetch a checkpoint by its sums, which go last."""
    copy.fetch({f"{group}/{SUMS}": None}, listed)
    sums = sums_of(copy.path / group)
    copy.fetch({f"{group}/{name}": checksum for name, checksum in sums.items()}, listed)


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


class StoreFolder:
    """The folder of one stage in a store; a local folder needs nothing of this.

    Every write asks the lock first, and replaces only the version that was seen before: a holder
    that stood still and lost its lock writes over nothing. The manifest says "begun" meanwhile.
    """

    def __init__(self, stage: str, config: StageConfig):
        self.stage, self.config = stage, config
        self.stored = in_store(config.out)
        self._root = root_of(config.mirror)
        if self.stored:
            self.copy = CachedFolder(self._root, config.out)
            self._address = self.copy.address
        self._version: str | None = None  # the ETag of the manifest

    @contextlib.contextmanager
    def locked(self, wait: bool) -> Iterator[None]:
        """Hold the lock of the folder.

        Raises:
            InputError: another process makes it.
        """
        if not self.stored:
            yield
            return
        top, _, name = self._address.rpartition("/")
        with lease.hold_lock(f"{top}/.{name}.lock", "out", wait) as held:
            self.copy.hold = held.hold
            found = objects.client(top).read(f"{self._address}/{MANIFEST}")
            self._version = found and found[1]
            yield

    def check_free(self, named: Path, in_place: bool) -> None:
        """Refuse a place that holds what this stage did not make: it would be lost.

        `named` is the local folder. A stage that works `in_place` may have begun it without a manifest.

        Raises:
            InputError: there are files of another stage, or of none.
        """
        place = self._address if self.stored else named
        if (maker := Manifest.maker(place)) == self.stage:
            return
        if self.stored:  # a process that began after the first look has marked it first
            foreign = self.copy.listed() and not Manifest.maker(place)
        else:
            foreign = not in_place and any(not path.is_dir() for path in named.rglob("*"))
        if maker:
            found = f"contains the output of {maker}"
        elif not self.stored and named.exists() and not named.is_dir():
            found = "is a file"
        elif foreign:
            found = f"contains files not created by {self.stage}"
        else:
            return
        raise InputError(f"{found} and is not overwritten; delete it, or set another out", "out", place)

    def unsent(self, fingerprint: str) -> Manifest | None:
        """Return the manifest of what was made here as it is wanted, but not put yet."""
        manifest = Manifest.read(self.copy.path)
        if manifest is None or manifest.fingerprint != fingerprint or self.copy.sent == fingerprint:
            return None  # not made, or removed from the store since
        here, there = self.copy.files(), self.copy.listed()
        # Who read a folder that somebody had changed has fetched the manifest too, and other files than it says.
        made = dataclasses.replace(manifest, files={n: f for n, f in manifest.files.items() if n in here})
        whole = manifest.files.keys() <= here.keys() | there.keys()
        return manifest if whole and not made.changed(self.copy.path) else None

    def begin(self, in_place: bool, run: str) -> None:
        """Get the place ready: what an earlier start has left of this stage is fetched.

        `run` is the name of the folder of this training's checkpoints.
        """
        if in_place or self._version is None:
            self.mark()
        if in_place:
            self.resume(run)

    def mark(self) -> None:
        """Mark the content of the folder as this stage's, and as not finished."""
        self._version = self.copy.replace(MANIFEST, self._version, unfinished_manifest(self.stage))

    def discard(self, mine: Callable[[str], object]) -> None:
        """Remove what the stage has made, after its manifest."""
        self.mark()
        self._remove(filter(mine, self.copy.listed()))

    @contextlib.contextmanager
    def part(self, pattern: str) -> Iterator[None]:
        """Share a stage out over machines: the body finds the files of the others that match.

        What it writes is put, and what the others have put until then is fetched at its end.
        """
        if not self.stored:
            yield
            return
        if Manifest.read(self._address) is None:
            self.check_free(self.copy.path, in_place=True)
            with contextlib.suppress(Restart):  # another part has marked it meanwhile
                self._version = None
                self.mark()
        self.resume("", pattern)
        with self.uploading(None):
            yield
        self.sync()
        self.resume("", pattern)

    def resume(self, run: str, pattern: str = "*") -> None:
        """Fetch what is there of a stage that resumes; what is newer here stays."""
        listed = self.copy.listed()
        gone = self.copy.entries.keys() - listed.keys()  # another start has removed them
        parts = _groups(gone)
        for name in self.copy.files():
            # Of a checkpoint it may remove the rest yet. Those that were never put are older than that start.
            thinned = name not in listed and (match := FILE.fullmatch(name)) and match[2] in parts.values()
            if name in gone or name.rpartition("/")[0] in parts or thinned:
                (self.copy.path / name).unlink()
        for name in [n for n in self.copy.entries if n in gone or not (self.copy.path / n).exists()]:
            del self.copy.entries[name]
        others = [name for name in listed if not (FILE.fullmatch(name) or file_search.hidden(name) or name == MANIFEST)]
        seen = {name: entry.etag for name, entry in self.copy.entries.items()}
        new = [n for n in others if fnmatch.fnmatchcase(n, pattern) and seen.get(n) != listed[n].etag]
        self.copy.fetch(dict.fromkeys(new), listed)
        if self.stage == "train":
            self._resume_checkpoints(listed, run)

    def _resume_checkpoints(self, listed: dict[str, Info], run: str) -> None:
        """Fetch the newest whole checkpoint of a training, and what says what all others are.

        Which of them stay is for the training to decide: `checkpoints.prune` knows why. It may
        continue from one of another training.
        """
        groups = _groups(listed)
        whole = [group for group in groups if _is_whole(group, listed)]
        self.copy.fetch({f"{group}/{name}": None for group in whole for name in (STATE, SUMS)}, listed)
        for group in sorted((group for group in whole if groups[group] == run), reverse=True):
            try:
                return fetch_checkpoint(self.copy, group, listed)
            except StoreError as error:
                print(f"warning: {error}; trying the previous checkpoint", flush=True)

    @contextlib.contextmanager
    def uploading(self, uploads: BackgroundUpload | None) -> Iterator[None]:
        """Put what the body writes as it goes, and the rest when it ends, however it ends."""
        if not self.stored:
            yield
            return
        uploads = uploads or BackgroundUpload()
        uploads.fetch = self._fetch
        uploads.start(self.sync)
        try:
            yield
        except BaseException:
            uploads.close()
            with contextlib.suppress(StoreError, Restart):
                self.sync()
            raise
        uploads.close()

    def _fetch(self, checkpoint: Path) -> None:
        if not all((self.copy.path / checkpoint / name).exists() for name in FILES):
            fetch_checkpoint(self.copy, checkpoint.as_posix(), self.copy.listed())

    def sync(self) -> None:
        """Put what is new, and remove what is gone: of a checkpoint the sums first, or last."""
        files = self.copy.files()
        files.pop(MANIFEST, None)
        # Of what depends on other files the deeper ones are older.
        for name in sorted(files, key=lambda name: (name.endswith(SUMS), -name.count("/"), name)):
            with contextlib.suppress(FileNotFoundError):
                self.copy.put(name, self._sum_of(name))
        gone = {name for name in self.copy.entries.keys() - {MANIFEST} if not (self.copy.path / name).exists()}
        self._remove(gone.union(f"{group}/{name}" for group in _groups(gone) for name in FILES))
        self.copy.save_index()

    def finish(self, manifest: Manifest) -> Manifest:
        """Put the folder of a finished stage: its files, then its manifest, which is returned.

        It also names the checkpoints of this training that are only in the store.

        Raises:
            StoreError: the store refuses.
            Restart: it does not answer, or another process has taken the folder over.
        """
        self.mark()
        listed = self.copy.listed()
        self.copy.drop_stale(listed)
        for name in manifest.files.keys() & listed.keys():  # what another start has put is replaced
            self.copy.entries.setdefault(name, other_than(listed[name]))
        here = manifest.files.keys() & self.copy.files()
        parallel.each(lambda name: self.copy.put(name, manifest.files[name]["sha256"]), here)
        run = run_name(manifest.fingerprint)
        elsewhere = self._elsewhere(listed, run)
        manifest = dataclasses.replace(manifest, files=manifest.files | elsewhere)
        self.copy.save_index()
        listed = self.copy.listed()
        if wrong := [n for n, f in manifest.files.items() if n not in listed or listed[n].size != f["bytes"]]:
            raise Restart(f"{self._address}/{wrong[0]}: another process changed it")
        # Checkpoints of other settings, or kept for good by another start, stay; not those that were cut off. A start
        # does not remove these: if it stood still then, it would remove what the next one has put.
        cut_off = {group for group, its in _groups(listed).items() if its == run and not _is_whole(group, listed)}
        spare = listed.keys() - manifest.files.keys() - {MANIFEST}
        self._remove(n for n in spare if n.rpartition("/")[0] in cut_off or not n.startswith(f"{RUNS}/"))
        manifest.write(self.copy.path)
        self._version = self.copy.replace(MANIFEST, self._version, (self.copy.path / MANIFEST).read_bytes())
        self.copy.sent = manifest.fingerprint
        self.copy.save_index()
        return manifest

    def _elsewhere(self, listed: dict[str, Info], run: str) -> Files:
        """Return the files of a training's kept checkpoints that were not fetched, as a manifest names them."""
        found = {}
        for name, info in listed.items():
            checksum = None if belongs_to_other(run, name) else self._sum_of(name)
            if checksum is not None and not (self.copy.path / name).exists():
                found[name] = {"bytes": info.size, "sha256": checksum}
        return found

    def _sum_of(self, name: str) -> str | None:
        """Return the checksum of a file of a checkpoint that is here, by its sums."""
        group, _, last = name.rpartition("/")
        return sums_of(self.copy.path / group).get(last) if FILE.fullmatch(name) else None

    def addressed(self, result: Result) -> Result:
        """Return what a stage says of itself with addresses for the paths of the local copies."""
        figures = json.loads(restore_addresses(self._root, json.dumps(result.figures)))
        summary = restore_addresses(self._root, result.summary)
        return dataclasses.replace(result, summary=summary, figures=figures)

    def _remove(self, names: Iterable[str]) -> None:
        """Remove objects, what makes others count first, the newest first: no older one is missing meanwhile."""
        listed = set(names)
        sums = {name for name in listed if name.endswith(SUMS)}
        for name in sorted(sums, reverse=True):
            self.copy.forget([name])
        self.copy.forget(sorted(listed - sums))


def _groups(listed: Iterable[str]) -> dict[str, str]:
    """Return the checkpoints among the names of files, with their runs."""
    return {match[1]: match[2] for name in listed if (match := FILE.fullmatch(name))}


def _is_whole(group: str, listed: Container[str]) -> bool:
    return all(f"{group}/{name}" in listed for name in (*FILES, SUMS))
