"""The folder of a stage, local or in an object store: one interface for what makes it.

A stage in a store works on a local copy. After it, its files are put, then its manifest: what no
manifest names is not read. A stage that resumes puts what it has meanwhile; of a checkpoint its
SHA256SUMS is the manifest, and is put last.
"""

import contextlib
import dataclasses
import fnmatch
import json
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path

from pipeline.common import parallel
from pipeline.config import StageConfig
from pipeline.errors import InputError, Restart, StoreError
from pipeline.records.checkpoint_folder import FILE, FILES, RUNS, STATE, SUMS, belongs_to_other, run_name, sums_of
from pipeline.records.manifest import MANIFEST, Files, Manifest, Result, unfinished_manifest
from pipeline.stages.fetch_inputs import fetch_checkpoint, in_store, local_place, root_of
from pipeline.storage import file_search, lease
from pipeline.storage.cached_folders import CachedFolder, other_than, restore_addresses
from pipeline.storage.stores import objects
from pipeline.storage.stores.remote_file import Info
from pipeline.storage.uploads import BackgroundUpload


class OutputFolder:
    """The folder of one stage on a disk, which is made where it is read."""

    keeps_manifest = True  # after a mistake of the user that came before a file changed

    def __init__(self, stage: str, config: StageConfig, named: Path):
        self.stage, self.config = stage, config
        self.named = named  # the local folder
        self.place: str | Path = named  # what a user typed

    def locked(self, wait: bool) -> contextlib.AbstractContextManager[None]:
        """Hold the lock of the folder, besides that of the local one.

        Raises:
            InputError: another process makes it.
        """
        return contextlib.nullcontext()

    def check_free(self, in_place: bool) -> None:
        """Refuse a place that holds what this stage did not make: it would be lost.

        A stage that works `in_place` may have begun it without a manifest.

        Raises:
            InputError: there are files of another stage, or of none.
        """
        if (maker := Manifest.maker(self.place)) == self.stage:
            return
        problem = f"contains the output of {maker}" if maker else self._foreign(in_place)
        if problem is not None:
            raise InputError(f"{problem} and is not overwritten; delete it, or set another out", "out", self.place)

    def _foreign(self, in_place: bool) -> str | None:
        """Return what of others is in a folder without a manifest, None if nothing."""
        if self.named.exists() and not self.named.is_dir():
            return "is a file"
        foreign = not in_place and any(not path.is_dir() for path in self.named.rglob("*"))
        return f"contains files not created by {self.stage}" if foreign else None

    def unsent(self, fingerprint: str) -> Manifest | None:
        """Return the manifest of what was made here as it is wanted, but not put yet."""
        return None

    def begin(self, in_place: bool, fingerprint: str) -> None:
        """Get the place ready: what an earlier start has left of this stage is fetched."""

    def discard(self, is_own: Callable[[str], object]) -> None:
        """Remove what the stage has put, after its manifest."""

    def part(self, pattern: str) -> contextlib.AbstractContextManager[None]:
        """Share a stage out over machines: the body finds the files of the others that match.

        What it writes is put, and what the others have put until then is fetched at its end.
        """
        return contextlib.nullcontext()

    def uploading(self, uploads: BackgroundUpload | None) -> contextlib.AbstractContextManager[None]:
        """Put what the body writes as it goes, and the rest when it ends, however it ends."""
        return contextlib.nullcontext()

    def addressed(self, result: Result) -> Result:
        """Return what a stage says of itself with the names that a user typed."""
        return result

    def finish(self, manifest: Manifest) -> Manifest:
        """Put the folder of a finished stage: its files, then its manifest, which is returned.

        Raises:
            StoreError: the store refuses.
            Restart: it does not answer, or another process has taken the folder over.
        """
        return manifest


def output_folder(stage: str, config: StageConfig, named: Path | None = None) -> OutputFolder:
    """Return the folder of a stage; `named` is its local place, if that is known."""
    named = named or local_place(config.out, config.mirror)
    return (StoreFolder if in_store(config.out) else OutputFolder)(stage, config, named)


class StoreFolder(OutputFolder):
    """The folder of one stage in a store.

    Every write asks the lock first, and replaces only the version that was seen before: a holder
    that stood still and lost its lock writes over nothing. The manifest says "begun" meanwhile.
    """

    keeps_manifest = False  # by the store the folder is not finished

    def __init__(self, stage: str, config: StageConfig, named: Path):
        super().__init__(stage, config, named)
        self._root = root_of(config.mirror)
        self.copy = CachedFolder(self._root, config.out)
        self.place = self._address = self.copy.address
        self._version: str | None = None  # the ETag of the manifest

    @contextlib.contextmanager
    def locked(self, wait: bool) -> Iterator[None]:
        """Hold the lock in the store, and note the version of the manifest."""
        top, _, name = self._address.rpartition("/")
        with lease.hold_lock(f"{top}/.{name}.lock", "out", wait) as lock:
            self.copy.hold = lock.hold
            stored = objects.client(top).read(f"{self._address}/{MANIFEST}")
            self._version = stored and stored[1]
            yield

    def _foreign(self, in_place: bool) -> str | None:
        # A process that began after the first look has marked it first.
        foreign = self.copy.listed() and not Manifest.maker(self._address)
        return f"contains files not created by {self.stage}" if foreign else None

    def unsent(self, fingerprint: str) -> Manifest | None:
        """Return the manifest of what is whole here and there, unless it was put."""
        manifest = Manifest.read(self.copy.path)
        if manifest is None or manifest.fingerprint != fingerprint or self.copy.sent == fingerprint:
            return None  # not made, or removed from the store since
        local, remote = self.copy.files(), self.copy.listed()
        # Who read a folder that somebody had changed has fetched the manifest too, and other files than it says.
        fetched = dataclasses.replace(manifest, files={n: f for n, f in manifest.files.items() if n in local})
        whole = manifest.files.keys() <= local.keys() | remote.keys()
        return manifest if whole and not fetched.changed(self.copy.path) else None

    def begin(self, in_place: bool, fingerprint: str) -> None:
        """Mark the folder as not finished; fetch what a stage resumes from."""
        if in_place or self._version is None:
            self.mark()
        if in_place:
            self.resume(fingerprint)

    def mark(self) -> None:
        """Mark the content of the folder as this stage's, and as not finished."""
        self._version = self.copy.replace(MANIFEST, self._version, unfinished_manifest(self.stage))

    def discard(self, is_own: Callable[[str], object]) -> None:
        """Mark the folder as not finished, then remove its objects."""
        self.mark()
        self._remove(filter(is_own, self.copy.listed()))

    @contextlib.contextmanager
    def part(self, pattern: str) -> Iterator[None]:
        """Fetch what the others have put, before and after the body."""
        if Manifest.read(self._address) is None:
            self.check_free(in_place=True)
            with contextlib.suppress(Restart):  # another part has marked it meanwhile
                self._version = None
                self.mark()
        self.resume("", pattern)
        with self.uploading(None):
            yield
        self.sync()
        self.resume("", pattern)

    def resume(self, fingerprint: str, pattern: str = "*") -> None:
        """Fetch what is there of a stage that resumes; what is newer here stays."""
        listed = self.copy.listed()
        removed = self.copy.entries.keys() - listed.keys()  # another start has removed them
        parts = _groups(removed)
        for name in self.copy.files():
            # Of a checkpoint it may remove the rest yet. Those that were never put are older than that start.
            thinned = name not in listed and (match := FILE.fullmatch(name)) and match[2] in parts.values()
            if name in removed or name.rpartition("/")[0] in parts or thinned:
                (self.copy.path / name).unlink()
        for name in [n for n in self.copy.entries if n in removed or not (self.copy.path / n).exists()]:
            del self.copy.entries[name]
        others = [name for name in listed if not (FILE.fullmatch(name) or file_search.hidden(name) or name == MANIFEST)]
        seen = {name: entry.etag for name, entry in self.copy.entries.items()}
        new = [n for n in others if fnmatch.fnmatchcase(n, pattern) and seen.get(n) != listed[n].etag]
        self.copy.fetch(dict.fromkeys(new), listed)
        if self.stage == "train":
            self._resume_checkpoints(listed, run_name(fingerprint))

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
        """Put files in a thread of `uploads`."""
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
        removed = {name for name in self.copy.entries.keys() - {MANIFEST} if not (self.copy.path / name).exists()}
        self._remove(removed.union(f"{group}/{name}" for group in _groups(removed) for name in FILES))
        self.copy.save_index()

    def finish(self, manifest: Manifest) -> Manifest:
        """Put the files; the manifest also names checkpoints of this training that are only in the store."""
        self.mark()
        listed = self.copy.listed()
        self.copy.drop_stale(listed)
        for name in manifest.files.keys() & listed.keys():  # what another start has put is replaced
            self.copy.entries.setdefault(name, other_than(listed[name]))
        local = manifest.files.keys() & self.copy.files()
        parallel.each(lambda name: self.copy.put(name, manifest.files[name]["sha256"]), local)
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
        files = {}
        for name, info in listed.items():
            checksum = None if belongs_to_other(run, name) else self._sum_of(name)
            if checksum is not None and not (self.copy.path / name).exists():
                files[name] = {"bytes": info.size, "sha256": checksum}
        return files

    def _sum_of(self, name: str) -> str | None:
        """Return the checksum of a file of a checkpoint that is here, by its sums."""
        group, _, last = name.rpartition("/")
        return sums_of(self.copy.path / group).get(last) if FILE.fullmatch(name) else None

    def addressed(self, result: Result) -> Result:
        """Return it with addresses for the paths of the local copies."""
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
