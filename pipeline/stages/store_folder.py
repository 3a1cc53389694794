"""A stage whose folder, or whose inputs, are in an object store.

The stage works on local copies (`pipeline.common.stores.mirror`). Before it, what it reads is
fetched, by the manifests. After it, its files are put, then its manifest: what no manifest names
is not read. A stage that resumes puts what it has meanwhile; of a checkpoint its SHA256SUMS is the
manifest, and is put last.
"""

import contextlib
import dataclasses
import fnmatch
import json
from collections.abc import Iterator

import yaml

from pipeline.common import parallel, storage
from pipeline.common.errors import InputError, Restart, StoreError
from pipeline.common.forced import FORCED, remember
from pipeline.common.manifest import MANIFEST, Manifest, Result
from pipeline.common.redact import without_secrets
from pipeline.common.stores import lease, objects
from pipeline.common.stores.background_upload import BackgroundUpload
from pipeline.common.stores.mirror import Copy, addressed, hidden
from pipeline.common.stores.remote_file import Info
from pipeline.config import StageConfig
from pipeline.stages.store_inputs import (
    CHECKPOINT,
    SUMS,
    fetch_checkpoint,
    in_store,
    root_of,
    sums_of,
)

UNFINISHED = ".unfinished"  # says that a folder without a manifest is a stage's


@contextlib.contextmanager
def locked_run(workdir: str, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a run's folder, where that is in a store.

    Raises:
        InputError: another process works there.
    """
    if not in_store(workdir):
        yield
        return
    with lease.held(f"{storage.normal(workdir)}/.lock", "workdir", wait):
        yield


def put_logs(workdir: str, mirror: str | None) -> None:
    """Put a run's logs and the settings of its stages."""
    if in_store(workdir):
        logs = Copy(root_of(mirror), f"{storage.normal(workdir)}/logs")
        files = logs.files()
        parallel.each(logs.put, [name for name in files if not name.endswith(".yaml")])
        logs.save_index()
        for name, path in files.items():
            if name.endswith(".yaml"):  # others may read the bucket: secrets stay here
                settings = without_secrets(yaml.safe_load(path.read_text(encoding="utf-8")))
                text = yaml.safe_dump(settings, sort_keys=False)
                objects.put(f"{logs.address}/{name}", text.encode())


class StoreFolder:
    """The folder of one stage in a store; a local folder needs nothing of this."""

    def __init__(self, stage: str, config: StageConfig):
        self.stage, self.config = stage, config
        self.stored = in_store(config.out)
        self._root = root_of(config.mirror)
        if self.stored:
            self.copy = Copy(self._root, config.out)
            self._address = self.copy.address
        self._lease: lease.Lease | None = None

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
        with lease.held(f"{top}/.{name}.lock", "out", wait) as self._lease:
            yield

    def check_free(self) -> None:
        """Refuse a place that holds what this stage did not make: it would be lost.

        Raises:
            InputError: there are files of another stage, or of none.
        """
        present = Manifest.read(self._address)
        if present is not None and present.stage != self.stage:
            found = f"contains the output of {present.stage}"
        elif present is None and (names := self.copy.listed()) and UNFINISHED not in names:
            found = f"contains files not created by {self.stage}"
        else:
            return
        raise InputError(
            f"out={self._address}: {found} and is not overwritten; delete it, or set another out",
            key="out", path=self._address,
        )  # fmt: skip

    def unsent(self, fingerprint: str) -> Manifest | None:
        """Return the manifest of what was made here as it is wanted, but not put yet."""
        manifest = Manifest.read(self.copy.path)
        if manifest is None or manifest.fingerprint != fingerprint:
            return None
        if self.copy.sent == fingerprint:  # removed from the store since
            return None
        whole = self.copy.files().keys() >= manifest.files.keys()
        return manifest if whole else None

    def begin(self, in_place: bool, run: str) -> None:
        """Get the place ready: what an earlier start has left of this stage is fetched.

        `run` is the name of the folder of this training's checkpoints.
        """
        self._check()
        again = self.was_forced()
        self.mark(again)
        if not in_place:
            return
        objects.delete([f"{self._address}/{MANIFEST}"])
        if self.config.force and not again:
            listed = self.copy.listed()
            self._remove([name for name in listed if name != UNFINISHED])
            self.copy.clear()
            self.mark(forced=True)
            return
        self.resume(run)
        if again:
            remember(self.copy.path, run)

    def was_forced(self) -> bool:
        """Return whether an unfinished start of this stage was forced, which starts over once."""
        found = objects.read(f"{self._address}/{UNFINISHED}")
        return found is not None and found[0].decode().endswith(FORCED)

    def mark(self, forced: bool = False) -> None:
        """Mark the content of the folder as this stage's, although it has no manifest yet."""
        text = f"{self.stage} {FORCED}" if forced else self.stage
        objects.put(f"{self._address}/{UNFINISHED}", text.encode())

    @contextlib.contextmanager
    def part(self, pattern: str) -> Iterator[None]:
        """Share a stage out over machines: the body finds the files of the others that match.

        What it writes is put, and what the others have put until then is fetched at its end.
        """
        if not self.stored:
            yield
            return
        if Manifest.read(self._address) is None:
            self.check_free()
            self.mark()
        self.resume("", pattern)
        with self.uploading(None):
            yield
        self.sync()
        self.resume("", pattern)

    def resume(self, run: str, pattern: str = "*") -> None:
        """Fetch what is there of a stage that resumes; what is newer here stays."""
        listed = self.copy.listed()
        for name in list(self.copy.entries):
            path = self.copy.path / name
            if name not in listed:  # another start has removed it
                path.unlink(missing_ok=True)
            if name not in listed or not path.exists():
                del self.copy.entries[name]
        others: dict[str, str | None] = {}
        for name, info in listed.items():
            known = self.copy.entries.get(name)
            if CHECKPOINT.fullmatch(name) or hidden(name) or name == MANIFEST:
                continue
            if not fnmatch.fnmatchcase(name, pattern):
                continue
            if known is None or known.etag != info.etag:
                others[name] = None
        self.copy.fetch(others, listed)
        if self.stage == "train":
            self._resume_checkpoints(listed, f"checkpoints/{run}/step-")

    def _resume_checkpoints(self, listed: dict[str, Info], start: str) -> None:
        """Fetch the last whole checkpoints; remove what training would have removed."""
        groups = sorted({m[1] for name in listed if (m := CHECKPOINT.fullmatch(name))})
        mine = [group for group in groups if group.startswith(start)]
        whole = [group for group in mine if f"{group}/{SUMS}" in listed]
        keep, every = getattr(self.config, "keep", 1), getattr(self.config, "keep_every", None)
        spare = [g for g in whole[:-keep] if every is None or int(g.removeprefix(start)) % every]
        spare += [group for group in mine if group not in whole]  # an upload that was cut off
        for group in whole[-keep:]:
            fetch_checkpoint(self.copy, group, listed)
        self._remove([name for name in listed if name.rpartition("/")[0] in spare])

    @contextlib.contextmanager
    def uploading(self, uploads: BackgroundUpload | None) -> Iterator[None]:
        """Put what the body writes as it goes, and the rest when it ends, however it ends."""
        if not self.stored:
            yield
            return
        uploads = uploads or BackgroundUpload()
        uploads.start(self.sync)
        try:
            yield
        except BaseException:
            uploads.close()
            with contextlib.suppress(StoreError, Restart):
                self.sync()
            raise
        uploads.close()

    def sync(self) -> None:
        """Put what is new, and remove what is gone: of a checkpoint the sums first, or last."""
        files = self.copy.files()
        files.pop(MANIFEST, None)
        known = set(self.copy.entries)
        # Of what depends on other files the deeper ones are older.
        for name in sorted(files, key=lambda name: (name.endswith(SUMS), -name.count("/"), name)):
            group = CHECKPOINT.fullmatch(name)
            sums = sums_of(self.copy.path / group[1]) if group else {}
            with contextlib.suppress(FileNotFoundError):
                self.copy.put(name, sums.get(name.rpartition("/")[2]))
        self._remove([name for name in known if not (self.copy.path / name).exists()])
        self.copy.save_index()

    def finish(self, manifest: Manifest) -> None:
        """Put the folder of a finished stage: its files, then its manifest.

        Raises:
            StoreError: the store refuses.
            Restart: it does not answer, or another process has taken the folder over.
        """
        self._check()
        objects.delete([f"{self._address}/{MANIFEST}"])
        listed = self.copy.listed()
        self.copy.drop_stale(listed)
        parallel.each(
            lambda name: self.copy.put(name, manifest.files[name]["sha256"]), manifest.files
        )
        self.copy.save_index()
        listed = self.copy.listed()
        wrong = [n for n, f in manifest.files.items()
                 if n not in listed or listed[n].size != f["bytes"]]  # fmt: skip
        if wrong:
            raise InputError(
                f"{self._address}/{wrong[0]}: another process changed it; start the same command "
                "again",
                path=f"{self._address}/{wrong[0]}",
            )
        # Checkpoints of other settings, or kept for good by another start, stay.
        spare = [n for n in listed if n not in manifest.files and n != UNFINISHED]
        self._remove([n for n in spare if CHECKPOINT.fullmatch(n) is None])
        self._check()
        objects.put(f"{self._address}/{MANIFEST}", (self.copy.path / MANIFEST).read_bytes())
        self.copy.sent = manifest.fingerprint
        self.copy.save_index()
        objects.delete([f"{self._address}/{UNFINISHED}"])

    def addressed(self, result: Result) -> Result:
        """Return what a stage says of itself with addresses for the paths of the local copies."""
        figures = json.loads(addressed(self._root, json.dumps(result.figures)))
        summary = addressed(self._root, result.summary)
        return dataclasses.replace(result, summary=summary, figures=figures)

    def _remove(self, names: list[str]) -> None:
        """Remove objects, what makes others count first."""
        for last in (True, False):
            self.copy.forget([name for name in names if name.endswith(SUMS) == last])

    def _check(self) -> None:
        assert self._lease is not None
        self._lease.check()
