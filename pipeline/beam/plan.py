"""What the driver of `prepare` decided, and where its tasks leave what."""

import dataclasses
from pathlib import Path

from pipeline.config import PrepareConfig
from pipeline.readers import FileRange
from pipeline.shards import ShardInfo
from pipeline.shards.sentence_pairs import held_out


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparePlan:
    """What the driver decided; every task gets it whole."""

    config: PrepareConfig
    out: str
    info: ShardInfo
    splits: list[FileRange]
    buckets: dict[str, int]  # train, validation -> how many
    separator: int  # the id of [SEP]

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
        return [
            f"{split}-{index:05d}-of-{count:05d}"
            for split, count in self.buckets.items()
            for index in range(count)
        ]

    def bucket(self, digest: bytes) -> int:
        """The bucket of a document."""
        place = int.from_bytes(digest[8:], "big")
        if held_out(digest, self.config.validation_share):
            return self.buckets["train"] + place % self.buckets["validation"]
        return place % self.buckets["train"]
