"""Shards of an object store, read through a local folder of limited size.

They are fetched ahead, in the order in which the samples need them (`model.loader.shard_fetcher`),
by one rank of each node for all ranks of it. Batches are those of local files: rows and tokens of a
shard are known from the manifest, and its data is mapped when it is needed.
"""

import contextlib
import dataclasses
import fcntl
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from model.config import DataConfig
from model.loader.sample_order import Span
from model.loader.shard_fetcher import FAILED, Failure, Fetcher, Source, read_failure
from pipeline.common import estimate
from pipeline.common.errors import ConfigError, InputError, Restart
from pipeline.common.figures import CorpusCounts
from pipeline.common.file_search import inside
from pipeline.common.formatting import byte_count
from pipeline.common.manifest import require_manifest
from pipeline.shards import Shard, ShardInfo, open_folder, open_shard

LOOK = 0.05  # seconds between looks for a shard that is being fetched
LOCK, PROGRESS = ".lock", ".progress"
DONE = np.iinfo(np.int64).max  # progress of a rank that reads no more


class CachedShard(Shard):
    """A shard whose data is there only between `open` and `close`."""

    def __init__(self, path: Path, info: ShardInfo, source: Source, rows: int, tokens: int):
        self.path, self.info, self.source = path, info, source
        self.rows, self.tokens = rows, tokens

    def open(self, folder: Path) -> None:
        """Map the file that was fetched into `folder`.

        Raises:
            InputError: it is not a shard, or not the one that the manifest describes.
        """
        there = open_shard(folder / self.source.name)
        if (there.info, there.rows, there.tokens) != (self.info, self.rows, self.tokens):
            raise InputError("is not as its manifest says; rerun prepare with force=true", path=self.source.address)
        self._batch = there._batch
        self.offsets, self.values, self.a_len = there.offsets, there.values, there.a_len

    def close(self) -> None:
        """Unmap the file."""
        for name in ("_batch", "offsets", "values", "a_len", "is_random_next"):
            self.__dict__.pop(name, None)

    def read_ahead(self) -> None:
        """Do nothing: what was fetched ahead is in memory."""


@dataclasses.dataclass(frozen=True)
class Reading:
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
        """Yield the spans of samples `start` to `stop - 1`."""
        for span in self.spans(start):
            if span.first >= self.stop:
                return
            yield span


class ShardCache:
    """The cached shards of one rank; numbers are places in the order of `shards`' results."""

    def __init__(self, data: DataConfig, addresses: Mapping[str, str]):
        """Take the local folders of manifests, with the addresses that shards are fetched from.

        Raises:
            ConfigError: a folder is not in a store.
        """
        assert data.cache is not None
        self._top, self._limit = Path(data.cache), byte_count(data.cache_size)
        for folder in data.folders:
            if folder not in addresses:
                raise ConfigError(
                    f"is for shards in an object store, and {folder} is a local folder; remove data.cache",
                    "data.cache",
                    data.cache,
                )
        self._addresses = addresses
        self._shards: list[CachedShard] = []
        self._failure: Failure | None = None
        self._closed = threading.Event()
        self._fetcher: Fetcher | None = None
        self._lock: IO[str] | None = None

    def shards(self, folder: str) -> list[Shard]:
        """Return the training shards of a folder, whose held-out shards are local.

        Raises:
            InputError: there are none, or the manifest does not describe them.
        """
        manifest = require_manifest(folder, "prepare", "data.dir")
        known = CorpusCounts.of(manifest).shards
        info = dataclasses.replace(open_folder(folder, "validation")[0].info, split="train")
        names = sorted(n for n in manifest.files if n.startswith("train-") and n.endswith(".arrow"))
        if not names or any(name not in known or not known[name].rows for name in names):
            raise InputError(
                "its manifest does not list training shards and their rows, which data.cache needs; run prepare "
                "again with force=true",
                "data.cache",
                path=self._addresses[folder],
            )
        found: list[CachedShard] = []
        for name in names:
            file, rows = manifest.files[name], known[name]
            source = Source(f"{self._addresses[folder]}/{name}", file["bytes"], file["sha256"])
            inside(self._top, source.name, self._addresses[folder])
            path = Path(folder, name)
            found.append(CachedShard(path, info, source, rows.rows, rows.tokens))
        self._shards += found
        return list(found)

    def begin(self, reading: Reading) -> None:
        """Start to fetch; all ranks call it.

        Raises:
            ConfigError: the cache is too small.
            InputError: its folder is not writable.
        """
        self._reading = reading
        self._check_size()
        try:
            self._join()
        except OSError as error:
            raise InputError(
                f"is not writable ({error.strerror}); set another folder", "data.cache", self._top
            ) from error
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
            self._failure = read_failure(self._folder)
        return None if self._failure is None else self._failure.error()

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
        while not (self._folder / shard.source.name).exists():
            if (failure := self.failure) is not None:
                raise failure
            if self._closed.wait(LOOK):
                raise Restart("stopped while a shard was waited for")
            self._reading.beat()

    def needed(self, reading: Reading) -> int:
        """Return the bytes of the shards that one batch may have open at once, at most."""
        near, needed = list[Span](), 0
        for span in reading.until_stop(reading.start):
            near = [one for one in near if one.last > span.first - reading.batch] + [span]
            shards = {number for one in near for number in one.shards.tolist()}
            needed = max(needed, sum(self._shards[number].source.size for number in shards))
        return needed

    def _check_size(self) -> None:
        """Refuse a cache that cannot hold the shards of a batch."""
        if self._limit and (needed := self.needed(self._reading)) > self._limit:
            raise ConfigError(
                "too small for the shards that are read at once, those of two windows (data.window_rows); set "
                f"data.cache_size to {-(-needed // 10**6)}MB or more",
                "data.cache_size",
                estimate.size(self._limit),
            )

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
            self._fetcher = Fetcher(
                folder,
                self._limit,
                [shard.source for shard in self._shards],
                reading.until_stop,
                reading.start,
                self._progress,
            )
        self._folder = Path(reading.gather(str(folder))[peers[0]])
        if not first:
            self._progress = _progress(self._folder, len(peers), "r+")

    def _locked_folder(self) -> Path:
        """Return the folder of this training on this node; remove those of trainings that ended."""
        host, mine = socket.gethostname(), None
        number = 0
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


def _progress(folder: Path, ranks: int, mode: Any) -> npt.NDArray[np.int64]:
    """Map the sample that each rank of the node reads, and whether fetching has failed."""
    return np.memmap(folder / PROGRESS, np.int64, mode, shape=(ranks + 1,))
