"""Where the shards of a training are: in local folders, or in a store and a local cache of limited size."""

import contextlib
import dataclasses
import fcntl
import json
import shutil
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from model.config import DataConfig
from model.loader.sample_order import Span
from model.loader.shard_cache import DONE, FAILED, LOCK, LOOK, PROGRESS, CachedShard, Fetcher, ReadPlan
from pipeline.common.counter_rng import Ints
from pipeline.console.formatting import byte_count
from pipeline.errors import BY_FORCE, ConfigError, InputError, Restart, error_from_record, writable
from pipeline.records import estimate
from pipeline.records.manifest import require_manifest
from pipeline.records.metrics import CorpusCounts
from pipeline.shards import Shard, open_folder
from pipeline.storage.file_search import inside


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
        known = CorpusCounts.of(manifest).shards
        info = dataclasses.replace(open_folder(folder, "validation")[0].info, split=split)
        names = sorted(n for n in manifest.files if n.startswith(f"{split}-") and n.endswith(".arrow"))
        if not names or any(name not in known or not known[name].rows for name in names):
            raise InputError(
                "its manifest does not list training shards and their rows, which data.cache needs; run prepare "
                f"again {BY_FORCE}",
                "data.cache",
                path=self._addresses[folder],
            )
        found: list[CachedShard] = []
        for name in names:
            address = f"{self._addresses[folder]}/{name}"
            found.append(CachedShard(Path(folder, name), info, address, manifest.files[name], known[name]))
            inside(self._top, found[-1].name, self._addresses[folder])
        self._shards += found
        return list(found)

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
        kept = {number for span in self._open for number in span.shards.tolist()}
        for span in done:
            for number in set(span.shards.tolist()) - kept:
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
        there = self._top.stat()
        node = [socket.gethostname(), there.st_dev, there.st_ino]
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
        host, mine, number = socket.gethostname(), None, 0
        while mine is None:
            path = self._top / f"{self._reading.run}.{number}@{host}"
            path.mkdir(exist_ok=True)
            lock = (path / LOCK).open("w")
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine, self._lock = path, lock
            number += 1
        for other in self._top.glob(f"*@{host}"):
            with contextlib.suppress(OSError), (other / LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other, ignore_errors=True)
        (mine / FAILED).unlink(missing_ok=True)
        return mine


def _progress(folder: Path, ranks: int, mode: Any) -> Ints:
    """Map the sample that each rank of the node reads, and whether fetching has failed."""
    return np.memmap(folder / PROGRESS, np.int64, mode, shape=(ranks + 1,))
