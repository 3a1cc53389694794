"""A thread that fetches shards into a folder in the order in which they will be read.

What is there is a shard under the name of its checksum, compared when it was fetched. Shards that
every rank of the node is done with make room for the next ones; of those, the ones that are needed
again the latest go first.
"""

import contextlib
import dataclasses
import json
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from model.loader.sample_order import Span
from pipeline.common import parallel
from pipeline.common.atomic import remove_leftovers, write_text
from pipeline.common.errors import InputError, Restart, StoreError, UserError, disk_failure
from pipeline.common.manifest import sha256
from pipeline.common.stores import objects

LOOK = 0.1  # seconds between looks for room
FAILED = ".failed.json"
KEPT = ".kept-"  # before the name of a file of an earlier start, whose bytes are not compared yet


@dataclasses.dataclass(frozen=True)
class Source:
    """A shard in the store."""

    address: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """Return its name in the folder."""
        return f"{self.sha256}.arrow"


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why fetching ended, as all ranks of the node read it."""

    kind: str
    message: str

    def error(self) -> Exception:
        """Return the error to raise."""
        kinds = (Restart, StoreError, InputError)
        found = {kind.__name__: kind for kind in kinds}.get(self.kind, RuntimeError)
        return found(self.message)


def read_failure(folder: Path) -> Failure:
    """Return what the fetching process has written."""
    return Failure(**json.loads((folder / FAILED).read_text()))


class Fetcher:
    """Fetches for all ranks of a node, as far ahead as there is room."""

    def __init__(
        self,
        folder: Path,
        limit: int,
        sources: list[Source],
        spans: Callable[[int], Iterator[Span]],
        start: int,
        progress: npt.NDArray[np.int64],
    ):
        """Start.

        Args:
            folder: where the shards go.
            limit: the most bytes in it; 0: no limit.
            sources: the shards by number.
            spans: the spans of samples from one on, which name shards by number.
            start: the first sample.
            progress: the sample that each rank reads now; last, what is set when fetching failed.
        """
        self._folder, self._limit, self._sources = folder, limit, sources
        self._spans, self._progress = spans, progress
        self._start, self._closing = start, threading.Event()
        remove_leftovers(folder)
        self._present = self._kept()
        self._thread = threading.Thread(target=self._run, name="shards", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the requests that are under way."""
        self._closing.set()
        self._thread.join()

    def _kept(self) -> dict[str, Source]:
        """Return what an earlier start has left, by name; it is used once its bytes are compared.

        Until then it has another name, as ranks use what is there.
        """
        known = {source.name: source for source in self._sources}
        found = {}
        for path in self._folder.glob("*.arrow"):
            name = path.name.removeprefix(KEPT)
            if name in known and path.stat().st_size == known[name].size:
                path.replace(self._folder / f"{KEPT}{name}")
                found[name] = known[name]
            else:
                path.unlink()
        return found

    def _run(self) -> None:
        try:
            near: list[Span] = []  # spans that a rank may still read
            for span in self._spans(self._start):
                wanted = self._of(span)
                near = self._wait_for_room([*near, span])
                if self._closing.is_set():
                    return
                self._evict(near)
                self._present |= wanted
                self._fetch_all(wanted, near)
        except Exception as error:
            self._fail(error)

    def _fetch_all(self, wanted: dict[str, Source], near: list[Span]) -> None:
        """Fetch the shards of the last span of `near`.

        A store that does not answer is a failure only when a rank reads the span before it: so much
        is left to train on that the ranks have the time to save.
        """
        while not self._closing.is_set():
            try:
                parallel.each(self._fetch, wanted.values())
                return
            except Restart:
                if len(near) == 1 or int(self._progress[:-1].max()) >= near[-2].first:
                    raise

    def _of(self, *spans: Span) -> dict[str, Source]:
        """Return the shards of some spans by name."""
        numbers = [number for span in spans for number in span.shards.tolist()]
        return {self._sources[number].name: self._sources[number] for number in numbers}

    def _wait_for_room(self, near: list[Span]) -> list[Span]:
        """Wait until the shards that are needed now fit; return the spans that need them."""
        while True:
            slowest = int(self._progress[:-1].min())
            near = [span for span in near[:-1] if span.last > slowest] + near[-1:]
            if not self._limit or _size(self._of(*near)) <= self._limit:
                return near
            if self._closing.wait(LOOK):
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

    def _fetch(self, source: Source) -> None:
        path, kept = self._folder / source.name, self._folder / f"{KEPT}{source.name}"
        if self._closing.is_set() or path.exists():
            return
        if kept.exists():
            if sha256(kept) == source.sha256:
                kept.replace(path)
                return
            kept.unlink()
        info = objects.head(source.address)
        if info is None or info.size != source.size:
            raise StoreError(
                "not found as the manifest lists it; run prepare again with force=true", path=source.address
            )
        objects.fetch(source.address, info, path, source.sha256)

    def _fail(self, error: Exception) -> None:
        """Tell all ranks why no more shards come."""
        if isinstance(error, Restart | StoreError):
            failure = Failure(type(error).__name__, str(error))
        elif isinstance(error, UserError):
            failure = Failure(StoreError.__name__, str(error))
        elif (what := disk_failure(error)) is not None:
            place = self._folder.parent
            failure = Failure(
                InputError.__name__, f"data.cache={place}: {what.lower()}; free some space, or set data.cache_size"
            )
        else:
            failure = Failure(RuntimeError.__name__, traceback.format_exc())
        with contextlib.suppress(OSError):
            write_text(self._folder / FAILED, json.dumps(dataclasses.asdict(failure)))
        self._progress[-1] = 1


def _size(sources: dict[str, Source]) -> int:
    return sum(source.size for source in sources.values())
