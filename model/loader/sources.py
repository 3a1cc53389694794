"""Where the shards of a training are: in local folders, or in a store and a local cache of limited size.

Those of a store are fetched ahead, in the order in which the samples need them, by a thread
of one rank of each node for all ranks of it. Each is in the folder under the name of its checksum, compared when it was
fetched. Those that every rank of the node is done with make room for the next ones; of those, the ones that are needed
again the latest go first. Batches are those of local files: rows and tokens of a
shard are known from the manifest, and its data is mapped when it is needed.
"""

import contextlib
import dataclasses
import fcntl
import itertools
import json
import shutil
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from model.config import DataConfig
from model.loader.sample_order import Span
from pipeline.common import parallel
from pipeline.common.counter_rng import Ints
from pipeline.console.formatting import byte_count
from pipeline.errors import (
    BY_FORCE,
    ConfigError,
    InputError,
    Restart,
    StoreError,
    UserError,
    disk_failure,
    error_from_record,
    writable,
)
from pipeline.records import estimate
from pipeline.records.manifest import require_manifest
from pipeline.records.metrics import CorpusCounts, ShardCounts
from pipeline.shards import Shard, ShardInfo, open_folder, open_shard
from pipeline.storage.atomic import remove_leftovers, write_text
from pipeline.storage.checksums import sha256
from pipeline.storage.file_search import inside
from pipeline.storage.stores import objects
from pipeline.storage.strict_json import Json

FAILED = ".failed.json"
KEPT = ".kept-"  # before the name of a file of an earlier start, whose bytes are not compared yet
LOOK = 0.05  # seconds between looks for a shard that is being fetched, or for room
LOCK, PROGRESS = ".lock", ".progress"
DONE = np.iinfo(np.int64).max  # progress of a rank that reads no more


@dataclasses.dataclass(frozen=True)
class ReadPlan:
    """What a training reads, and as which of its ranks."""

    run: str  # name of its folder in the cache
    rank: int
    spans: Callable[[int], Iterator[Span]]  # from a sample on, by the first sample, without end
    start: int
    stop: int
    batch: int  # samples of the largest batch
    gather: Callable[[Any], list[Any]]  # each rank's value, of JSON's types, on all ranks
    beat: Callable[[], None]  # called while a shard is waited for

    def until_stop(self, start: int) -> Iterator[Span]:
        """Return the spans of samples `start` to `stop - 1`."""
        return itertools.takewhile(lambda span: span.first < self.stop, self.spans(start))


class ShardSource:
    """The shards that a loader reads, and when they are there: here in local folders, from the beginning."""

    complete = True  # whether all are there from the beginning

    def shards(self, folder: str, split: str) -> list[Shard]:
        """Open the shards of a folder."""
        return open_folder(folder, split)

    def begin(self, reading: ReadPlan) -> None:
        """Start to fetch; all ranks call it."""

    def ready(self, start: int, stop: int) -> None:
        """Have the shards of samples `start` to `stop - 1`; what is before them is done with."""

    @property
    def failure(self) -> Exception | None:
        """Why no more shards will come; None as long as they do."""
        return None

    def close(self) -> None:
        """Stop to wait for shards."""

    def remove(self) -> None:
        """Remove local copies: the training is done."""


LOCAL = ShardSource()


class CachedShard(Shard):
    """A shard in the store, whose data is there only between `open` and `close`."""

    def __init__(self, path: Path, info: ShardInfo, address: str, file: Json, counts: ShardCounts):
        """Take what its folder's manifest says of the file and of what is in it."""
        self.path, self.info, self.address = path, info, address
        self.size, self.sha256 = file["bytes"], file["sha256"]
        self.rows, self.tokens = counts.rows, counts.tokens

    @property
    def name(self) -> str:
        """Return its name in the local folder."""
        return f"{self.sha256}.arrow"

    def open(self, folder: Path) -> None:
        """Map the file that was fetched into `folder`.

        Raises:
            InputError: it is not a shard, or not the one that the manifest describes.
        """
        shard = open_shard(folder / self.name)
        if (shard.info, shard.rows, shard.tokens) != (self.info, self.rows, self.tokens):
            raise InputError(f"is not as its manifest says; rerun prepare {BY_FORCE}", path=self.address)
        self._batch = shard._batch
        self.offsets, self.values, self.a_len = shard.offsets, shard.values, shard.a_len

    def close(self) -> None:
        """Unmap the file."""
        for name in ("_batch", "offsets", "values", "a_len", "is_random_next"):
            self.__dict__.pop(name, None)

    def read_ahead(self) -> None:
        """Do nothing: what was fetched ahead is in memory."""


Sources = dict[str, CachedShard]  # by name


class Fetcher:
    """Fetches for all ranks of a node, as far ahead as there is room."""

    def __init__(self, folder: Path, limit: int, sources: list[CachedShard], reading: ReadPlan, progress: Ints):
        """Start.

        Args:
            folder: where the shards go.
            limit: the most bytes in it; 0: no limit.
            sources: the shards by number.
            reading: what is read, which names shards by number.
            progress: the sample that each rank reads now; last, what is set when fetching failed.
        """
        self._folder, self._limit, self._sources = folder, limit, sources
        self._spans, self._start, self._progress = reading.until_stop, reading.start, progress
        self._closing = threading.Event()
        remove_leftovers(folder)
        self._present = self._kept()
        self._thread = threading.Thread(target=self._run, name="shards", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the requests that are under way."""
        self._closing.set()
        self._thread.join()

    def _kept(self) -> Sources:
        """Return what an earlier start has left, by name; it is used once its bytes are compared.

        Until then it has another name, as ranks use what is there.
        """
        sources = {source.name: source for source in self._sources}
        kept = {}
        for path in self._folder.glob("*.arrow"):
            name = path.name.removeprefix(KEPT)
            if name in sources and path.stat().st_size == sources[name].size:
                path.replace(self._folder / f"{KEPT}{name}")
                kept[name] = sources[name]
            else:
                path.unlink()
        return kept

    def _run(self) -> None:
        try:
            near: list[Span] = []  # spans that a rank may still read
            for span in self._spans(self._start):
                sources = self._of(span)
                near = self._wait_for_room([*near, span])
                if self._closing.is_set():
                    return
                self._evict(near)
                self._present |= sources
                self._fetch_all(sources, near)
        except Exception as error:
            self._fail(error)

    def _fetch_all(self, sources: Sources, near: list[Span]) -> None:
        """Fetch the shards of the last span of `near`.

        A store that does not answer is a failure only when a rank reads the span before it: so much
        is left to train on that the ranks have the time to save.
        """
        while not self._closing.is_set():
            try:
                parallel.each(self._fetch, sources.values())
                return
            except Restart:
                if len(near) == 1 or int(self._progress[:-1].max()) >= near[-2].first:
                    raise

    def _of(self, *spans: Span) -> Sources:
        """Return the shards of some spans by name."""
        numbers = [number for span in spans for number in span.shards.tolist()]
        return {self._sources[number].name: self._sources[number] for number in numbers}

    def _wait_for_room(self, near: list[Span]) -> list[Span]:
        """Wait until the shards that are needed now fit; return the spans that need them."""
        while True:
            slowest = int(self._progress[:-1].min())
            near = [span for span in near[:-1] if span.last > slowest] + near[-1:]
            if not self._limit or _size(self._of(*near)) <= self._limit or self._closing.wait(LOOK):
                return near

    def _evict(self, near: list[Span]) -> None:
        """Remove what is not needed until the shards of all of `near` fit."""
        needed = self._of(*near)
        spare = {name for name in self._present if name not in needed}
        excess = _size(self._present | needed) - self._limit
        if not self._limit or excess <= 0:
            return
        for name in self._latest_first(spare, near[-1].last):
            for path in (self._folder / name, self._folder / f"{KEPT}{name}"):
                path.unlink(missing_ok=True)
            excess -= self._present.pop(name).size
            if excess <= 0:
                return

    def _latest_first(self, names: set[str], sample: int) -> list[str]:
        """Return shards in the opposite order of their next use, from a sample on."""
        soon: dict[str, None] = {}
        spans = self._spans(sample)
        while len(soon) < len(names) and (span := next(spans, None)) is not None:
            soon |= dict.fromkeys(name for name in self._of(span) if name in names)
        return sorted(names - soon.keys()) + list(soon)[::-1]

    def _fetch(self, source: CachedShard) -> None:
        path, kept = self._folder / source.name, self._folder / f"{KEPT}{source.name}"
        if self._closing.is_set() or path.exists():
            return
        if kept.exists():
            if sha256(kept) == source.sha256:
                kept.replace(path)
                return
            kept.unlink()
        info = objects.client(source.address).head(source.address)
        if info is None or info.size != source.size:
            raise StoreError(f"not found as the manifest lists it; run prepare again {BY_FORCE}", path=source.address)
        objects.fetch(source.address, info, path, source.sha256)

    def _fail(self, error: Exception) -> None:
        """Tell all ranks why no more shards come."""
        if (what := disk_failure(error)) is not None and not isinstance(error, UserError | Restart):
            place = self._folder.parent
            error = InputError(f"{what.lower()}; free some space, or set data.cache_size", "data.cache", place)
        bug = {"kind": "RuntimeError", "problem": traceback.format_exc()}
        record = error.record() if isinstance(error, UserError | Restart) else bug
        with contextlib.suppress(OSError):
            write_text(self._folder / FAILED, json.dumps(record))
        self._progress[-1] = 1


def _size(sources: Sources) -> int:
    return sum(source.size for source in sources.values())


class CachedShards(ShardSource):
    """The cached shards of one rank; numbers are places in the order of `shards`' results."""

    complete = False

    def __init__(self, data: DataConfig, addresses: Mapping[str, str]):
        """Take the local folders of manifests, with the addresses that shards are fetched from."""
        assert data.cache is not None
        self._top, self._limit = Path(data.cache), byte_count(data.cache_size)
        self._addresses = addresses
        self._shards: list[CachedShard] = []
        self._failure: Exception | None = None
        self._closed = threading.Event()
        self._fetcher: Fetcher | None = None
        self._lock: IO[str] | None = None

    def shards(self, folder: str, split: str) -> list[Shard]:
        """Return the training shards of a folder, whose held-out shards are local.

        Raises:
            InputError: there are none, or the manifest does not describe them.
        """
        manifest = require_manifest(folder, "prepare", "data.dir")
        counts = CorpusCounts.of(manifest).shards
        info = dataclasses.replace(open_folder(folder, "validation")[0].info, split=split)
        names = sorted(n for n in manifest.files if n.startswith(f"{split}-") and n.endswith(".arrow"))
        if not names or any(name not in counts or not counts[name].rows for name in names):
            raise InputError(
                "its manifest does not list training shards and their rows, which data.cache needs; run prepare "
                f"again {BY_FORCE}",
                "data.cache",
                path=self._addresses[folder],
            )
        shards: list[CachedShard] = []
        for name in names:
            address = f"{self._addresses[folder]}/{name}"
            shards.append(CachedShard(Path(folder, name), info, address, manifest.files[name], counts[name]))
            inside(self._top, shards[-1].name, self._addresses[folder])
        self._shards += shards
        return list(shards)

    def begin(self, reading: ReadPlan) -> None:
        """Start to fetch; all ranks call it.

        Raises:
            ConfigError: the cache is too small.
            InputError: its folder is not writable.
        """
        self._reading = reading
        if self._limit and (needed := self.needed(reading)) > self._limit:
            raise ConfigError(
                "too small for the shards that are read at once, those of two windows (data.window_rows); set "
                f"data.cache_size to {-(-needed // 10**6)}MB or more",
                "data.cache_size",
                estimate.size(self._limit),
            )
        with writable(self._top, "data.cache"):
            self._join()
        self._open: list[Span] = []
        self._ahead = reading.until_stop(reading.start)
        self._next = next(self._ahead, None)

    def ready(self, start: int, stop: int) -> None:
        """Map the shards of samples `start` to `stop - 1`; what is before them is done with.

        Raises:
            StoreError, Restart: the store refuses a shard, or does not answer.
            InputError: the disk is full, or a shard is damaged.
        """
        done = [span for span in self._open if span.last <= start]
        self._open = [span for span in self._open if span.last > start]
        in_use = {number for span in self._open for number in span.shards.tolist()}
        for span in done:
            for number in set(span.shards.tolist()) - in_use:
                self._shards[number].close()
        self._progress[self._slot] = start
        while self._next is not None and self._next.first < stop:
            for number in self._next.shards.tolist():
                self._wait(self._shards[number])
                self._shards[number].open(self._folder)
            self._open.append(self._next)
            self._next = next(self._ahead, None)

    @property
    def failure(self) -> Exception | None:
        """Why no more shards will come; None as long as they do."""
        if self._failure is None and self._progress[-1]:
            record = json.loads((self._folder / FAILED).read_text())
            bug = record["kind"] == "RuntimeError"
            self._failure = RuntimeError(record["problem"]) if bug else error_from_record(record)
        return self._failure

    def close(self) -> None:
        """Stop to wait and to fetch; the files stay for a training that resumes."""
        self._closed.set()
        self._progress[self._slot] = DONE
        if self._fetcher is not None:
            self._fetcher.close()

    def remove(self) -> None:
        """Remove the files: the training is done."""
        if self._lock is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._lock.close()

    def _wait(self, shard: CachedShard) -> None:
        while not (self._folder / shard.name).exists():
            if (failure := self.failure) is not None:
                raise failure
            if self._closed.wait(LOOK):
                raise Restart("stopped while a shard was waited for")
            self._reading.beat()

    def needed(self, reading: ReadPlan) -> int:
        """Return the bytes of the shards that one batch may have open at once, at most."""
        near, needed = list[Span](), 0
        for span in reading.until_stop(reading.start):
            near = [one for one in near if one.last > span.first - reading.batch] + [span]
            shards = {number for one in near for number in one.shards.tolist()}
            needed = max(needed, sum(self._shards[number].size for number in shards))
        return needed

    def _join(self) -> None:
        """Agree with the other ranks of this node on a folder, and on who fetches."""
        reading = self._reading
        self._top.mkdir(parents=True, exist_ok=True)
        stat = self._top.stat()
        node = [socket.gethostname(), stat.st_dev, stat.st_ino]
        peers = [rank for rank, other in enumerate(reading.gather(node)) if other == node]
        self._slot = peers.index(reading.rank)
        first = self._slot == 0
        folder = self._locked_folder() if first else None
        if folder is not None:
            self._progress = _progress(folder, len(peers), "w+")
            self._progress[:] = reading.start
            self._progress[-1] = 0
            # Before others know the folder: they take what has a shard's name for compared.
            self._fetcher = Fetcher(folder, self._limit, self._shards, reading, self._progress)
        self._folder = Path(reading.gather(str(folder))[peers[0]])
        if not first:
            self._progress = _progress(self._folder, len(peers), "r+")

    def _locked_folder(self) -> Path:
        """Return the folder of this training on this node; remove those of trainings that ended."""
        host, folder, number = socket.gethostname(), None, 0
        while folder is None:
            path = self._top / f"{self._reading.run}.{number}@{host}"
            path.mkdir(exist_ok=True)
            lock = (path / LOCK).open("w")
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                folder, self._lock = path, lock
            number += 1
        for other in self._top.glob(f"*@{host}"):
            with contextlib.suppress(OSError), (other / LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other, ignore_errors=True)
        (folder / FAILED).unlink(missing_ok=True)
        return folder


def _progress(folder: Path, ranks: int, mode: Any) -> Ints:
    """Map the sample that each rank of the node reads, and whether fetching has failed."""
    return np.memmap(folder / PROGRESS, np.int64, mode, shape=(ranks + 1,))
