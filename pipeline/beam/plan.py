"""What the driver of `prepare` decided, and where its tasks leave what."""

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
    """What the driver decided; every task gets it, without the splits, of which it reads its own.

    So the graph is as large for a million splits as for one.
    """

    config: PrepareConfig
    out: str
    info: ShardInfo
    splits: list[FileRange]
    buckets: dict[str, int]  # train, validation -> how many
    separator: int  # the id of [SEP]
    exchange: Exchange
    token: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to workers."""
        return {**vars(self), "splits": []}

    @property
    def is_current(self) -> bool:
        """Whether the run that made this plan is still the one that makes the folder.

        A job of a driver that was killed may go on for a while, next to the one that came after.
        """
        return (self.scratch / f"run-{self.token}").exists()

    def write_splits(self) -> None:
        """Leave the splits where workers find them, and the mark of this run."""
        (self.scratch / f"run-{self.token}").touch()
        listed = [dataclasses.astuple(split) for split in self.splits]
        write_text(self.scratch / "splits.json", json.dumps(listed))

    def read_splits(self) -> list[FileRange]:
        """What `write_splits` has left."""
        listed = json.loads((self.scratch / "splits.json").read_text(encoding="utf-8"))
        return [FileRange(*each) for each in listed]

    @property
    def scratch(self) -> Path:
        """Where tasks leave what only this run needs."""
        return Path(self.out) / ".scratch"

    @property
    def error_note(self) -> Path:
        """Where a task says what the user has to change; nobody goes on then."""
        return self.scratch / "error.json"

    def split_file(self, index: int) -> Path:
        """The tokenized documents of a split."""
        return self.scratch / f"split-{index:05d}.arrow"

    def merged_file(self, group: int, index: int) -> Path:
        """The documents of a group of splits, in one range of buckets."""
        return self.scratch / f"merged-{group:05d}-{index:05d}.arrow"

    def split_account(self, index: int) -> Path:
        """What became of the documents of a split."""
        return self.scratch / f"split-{index:05d}.json"

    def signatures(self, index: int) -> Path:
        """The MinHash signatures of a split's documents, where near duplicates go."""
        return self.scratch / f"split-{index:05d}.signatures"

    def near_duplicates(self) -> Path:
        """The hashes of the documents that are too much like others."""
        return self.scratch / "near-duplicates"

    def shard_account(self, name: str) -> Path:
        """What became of the documents of a bucket."""
        return self.scratch / f"{name}.json"

    def report(self, account: Path) -> Path:
        """How far the task is that will leave this account."""
        return account.with_suffix(".progress")

    def shard_names(self) -> list[str]:
        """The shards to make; the k-th bucket becomes the k-th."""
        return [self.shard_name(bucket) for bucket in range(sum(self.buckets.values()))]

    def shard_name(self, bucket: int) -> str:
        """The shard that this bucket becomes."""
        train = self.buckets["train"]
        split, index = ("train", bucket) if bucket < train else ("validation", bucket - train)
        return f"{split}-{index:05d}-of-{self.buckets[split]:05d}"

    def bucket(self, digest: bytes) -> int:
        """The bucket of a document."""
        place = int.from_bytes(digest[8:], "big")
        if held_out(digest, self.config.validation_share):
            return self.buckets["train"] + place % self.buckets["validation"]
        return place % self.buckets["train"]
