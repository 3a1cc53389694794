"""The shards as `prepare` left them: known by their checksums, and whether they still are so."""

import hashlib
from pathlib import Path

import torch.distributed as dist

from model.config import DataConfig
from pipeline.common.errors import InputError
from pipeline.common.manifest import require_manifest, sha256


class ShardFiles:
    """All shards of the folders that a run reads, by the account in the folders' manifests."""

    def __init__(self, data: DataConfig):
        """Read the manifests.

        Raises:
            InputError: a folder has none.
        """
        manifests = {Path(d): require_manifest(d, "prepare", "data.dir") for d in data.folders}
        self.sequence_length = max(m.figures["sequence_length"] for m in manifests.values())
        self._accounts = {
            folder / name: account
            for folder, manifest in manifests.items()
            for name, account in manifest.files.items()
            if name.endswith(".arrow")
        }
        self._folders = list(manifests)

    def checksum(self) -> str:
        """Of the checksums of all shards: other shards, another order of folders, another value."""
        sums = (f"{path.name} {account['sha256']}\n" for path, account in self._accounts.items())
        return hashlib.sha256("".join(sums).encode()).hexdigest()

    def verify(self, rank: int, world: int) -> None:
        """Read every shard, each rank its part of them, and compare it with the account.

        Every rank must call it, and all get the same answer.

        Raises:
            InputError: a shard is missing, damaged, changed, or not in the account.
        """
        found = [path for folder in self._folders for path in sorted(folder.glob("*.arrow"))]
        wrong = [f"{path} is not of this folder's manifest" for path in found[rank::world]
                 if path not in self._accounts]  # fmt: skip
        for path in list(self._accounts)[rank::world]:
            if not path.exists():
                wrong.append(f"{path} is missing")
            elif path.stat().st_size != self._accounts[path]["bytes"] or (
                sha256(path) != self._accounts[path]["sha256"]
            ):
                wrong.append(f"{path} was changed after it was prepared")
        everyone: list[list[str]] = [[] for _ in range(world)]
        dist.all_gather_object(everyone, wrong)
        complaints = [complaint for each in everyone for complaint in each]
        if complaints:
            more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
            raise InputError(f"{complaints[0]}{more}; prepare it again, or put back the right file")
