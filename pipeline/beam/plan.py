"""The plan made by the driver of `prepare`, and the paths of its tasks' files."""

import dataclasses
import json
import secrets
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.beam.exchange import Exchange
from pipeline.beam.units import Splits, Units, name_of
from pipeline.config import PrepareConfig
from pipeline.readers import FileRange
from pipeline.shards import ShardInfo
from pipeline.shards.sentence_pairs import held_out

PACKED = 4096  # reading tasks per packet


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparePlan:
    """The driver's decisions, sent to every task without the splits.

    Splits are sent once, in compressed packets, to the tasks that read them: the graph has a few
    bytes per split.
    """

    config: PrepareConfig
    out: str
    info: ShardInfo
    tasks: list[Splits]  # those of each reading task
    buckets: dict[str, int]  # train, validation -> number of buckets
    separator: int  # the id of [SEP]
    exchange: Exchange
    short: dict[str, int]  # evaluation files that no document can match, see `filters.Decontamination`
    removed: frozenset[str]  # what `filters.remove` names; tasks read it themselves
    units: Units
    reading: str  # a hash of all but the splits that determines what a reading task reads
    token: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state sent to workers."""
        return {**vars(self), "tasks": [], "removed": frozenset()}

    def check_current(self) -> None:
        """Raise where another run owns the folder.

        The job of a killed driver may continue for a while, concurrently with its successor.
        """
        if not (self.scratch / f"run-{self.token}").exists():
            raise RuntimeError("another run is writing to this folder")

    def claim(self) -> None:
        """Write the marker of this run."""
        (self.scratch / f"run-{self.token}").touch()

    @property
    def splits(self) -> Splits:
        """Return the splits of all reading tasks."""
        return [split for task in self.tasks for split in task]

    def packets(self) -> Iterator[bytes]:
        """Yield all reading tasks for `unpack`, many at a time."""
        tasks = [(read, list(map(dataclasses.astuple, splits))) for read, splits in enumerate(self.tasks)]
        for start in range(0, len(tasks), PACKED):
            yield zlib.compress(json.dumps(tasks[start : start + PACKED]).encode())

    @property
    def scratch(self) -> Path:
        """Return the folder of temporary files."""
        return Path(self.out) / ".scratch"

    @property
    def unit_names(self) -> list[str]:
        """Return the names of the units of all reading tasks."""
        return [name_of(self.reading, splits) for splits in self.tasks]

    @property
    def error_note(self) -> Path:
        """Return the file where a task records a user error; all tasks stop once it exists."""
        return self.scratch / "error.json"

    def read_account(self, read: int) -> Path:
        """Return the file of the document counts of a reading task."""
        return self.scratch / f"read-{read:05d}.json"

    def write_account(self, write: int) -> Path:
        """Return the file of the document counts of a writing task."""
        return self.scratch / f"write-{write:05d}.json"

    def report(self, account: Path) -> Path:
        """Return the progress file of the task that will write these counts."""
        return account.with_suffix(".progress")

    def shard_name(self, bucket: int) -> str:
        """Return the name of a bucket's shard."""
        train = self.buckets["train"]
        split, index = ("train", bucket) if bucket < train else ("validation", bucket - train)
        return f"{split}-{index:05d}-of-{self.buckets[split]:05d}"

    def bucket(self, digest: bytes) -> int:
        """Return the bucket of a document."""
        number = int.from_bytes(digest[8:], "big")
        if held_out(digest, self.config.validation_share):
            return self.buckets["train"] + number % self.buckets["validation"]
        return number % self.buckets["train"]


def unpack(packet: bytes) -> Iterator[tuple[int, Splits]]:
    """Yield the reading tasks of a packet, with their splits."""
    for read, splits in json.loads(zlib.decompress(packet)):
        yield read, [FileRange(*each) for each in splits]
