"""The plan made by the driver of `prepare`, and the paths of its tasks' files."""

import dataclasses
import json
import secrets
from pathlib import Path
from typing import Any

from pipeline.beam.exchange import Exchange
from pipeline.common.atomic import write_text
from pipeline.config import PrepareConfig
from pipeline.readers import FileRange
from pipeline.shards import ShardInfo
from pipeline.shards.sentence_pairs import held_out


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparePlan:
    """The driver's decisions, sent to every task without the splits, which tasks read from a file.

    The size of the graph therefore does not depend on the number of splits.
    """

    config: PrepareConfig
    out: str
    info: ShardInfo
    splits: list[FileRange]
    buckets: dict[str, int]  # train, validation -> number of buckets
    separator: int  # the id of [SEP]
    exchange: Exchange
    token: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state sent to workers."""
        return {**vars(self), "splits": []}

    @property
    def is_current(self) -> bool:
        """Return whether the run that made this plan still owns the folder.

        The job of a killed driver may continue for a while, concurrently with its successor.
        """
        return (self.scratch / f"run-{self.token}").exists()

    def write_splits(self) -> None:
        """Write the splits for the workers, and the marker of this run."""
        (self.scratch / f"run-{self.token}").touch()
        listed = [dataclasses.astuple(split) for split in self.splits]
        write_text(self.scratch / "splits.json", json.dumps(listed))

    def read_splits(self) -> list[FileRange]:
        """Read the splits written by `write_splits`."""
        listed = json.loads((self.scratch / "splits.json").read_text(encoding="utf-8"))
        return [FileRange(*each) for each in listed]

    @property
    def scratch(self) -> Path:
        """Return the folder of temporary files."""
        return Path(self.out) / ".scratch"

    @property
    def error_note(self) -> Path:
        """Return the file where a task records a user error; all tasks stop once it exists."""
        return self.scratch / "error.json"

    def split_file(self, index: int) -> Path:
        """Return the file of a split's tokenized documents."""
        return self.scratch / f"split-{index:05d}.arrow"

    def merged_file(self, group: int, index: int) -> Path:
        """Return the file of a group of splits' documents in one range of buckets."""
        return self.scratch / f"merged-{group:05d}-{index:05d}.arrow"

    def split_account(self, index: int) -> Path:
        """Return the file of a split's document counts."""
        return self.scratch / f"split-{index:05d}.json"

    def signatures(self, index: int) -> Path:
        """Return the file of a split's MinHash signatures, used with near_duplicates."""
        return self.scratch / f"split-{index:05d}.signatures"

    def near_duplicates(self) -> Path:
        """Return the file of the hashes of near duplicates."""
        return self.scratch / "near-duplicates"

    def shard_account(self, name: str) -> Path:
        """Return the file of a bucket's document counts."""
        return self.scratch / f"{name}.json"

    def report(self, account: Path) -> Path:
        """Return the progress file of the task that will write these counts."""
        return account.with_suffix(".progress")

    def shard_names(self) -> list[str]:
        """Return the names of the shards, in the order of their buckets."""
        return [self.shard_name(bucket) for bucket in range(sum(self.buckets.values()))]

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
