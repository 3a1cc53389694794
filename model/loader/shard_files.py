"""The shards that manifests list, and their checksums."""

from collections.abc import Callable
from pathlib import Path

from model.config import DataConfig
from pipeline.errors import InputError
from pipeline.records.manifest import require_manifest
from pipeline.records.metrics import CorpusCounts
from pipeline.storage.checksums import sha256, sha256_of


class ShardFiles:
    """All shards of some of a run's data folders, as listed in the folders' manifests."""

    def __init__(self, data: DataConfig, folders: list[str]):
        """Read the manifests; raises InputError if a folder has none."""
        manifests = {Path(d): require_manifest(d, "prepare", data.key_of(d)) for d in folders}
        self.sequence_length = max(CorpusCounts.of(m).sequence_length for m in manifests.values())
        self.warnings = [
            f"{share:.0%} of the next segments of {folder} are random, so next-sentence accuracy says nothing; prepare "
            "with pairs=none"
            for folder, manifest in manifests.items()
            if manifest.config.get("pairs") == "nsp" and (share := CorpusCounts.of(manifest).one_kind) is not None
        ]
        self._listed = {
            folder / name: entry
            for folder, manifest in manifests.items()
            for name, entry in manifest.files.items()
            if name.endswith(".arrow")
        }
        self._folders = list(manifests)

    def held_out_folders(self) -> set[Path]:
        """Return the folders of which `prepare` has held a part out."""
        return {path.parent for path in self._listed if path.name.startswith("validation-")}

    def checksum(self) -> str:
        """Return a checksum over all shards' checksums in the order of the folders."""
        return sha256_of("".join(f"{path.name} {entry['sha256']}\n" for path, entry in self._listed.items()))

    def verify(
        self,
        rank: int,
        world: int,
        gather: Callable[[list[str]], list[list[str]]],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Compare all shards with their manifests' checksums, each rank a part of them.

        Every rank must call it, and all raise the same error: `gather` returns every rank's value.
        `beat` is called for each shard.

        Raises:
            InputError: A shard is missing, damaged, changed, or not in the manifest.
        """
        paths = [path for folder in self._folders for path in sorted(folder.glob("*.arrow"))]
        wrong = [f"{path} is not in this folder's manifest" for path in paths[rank::world] if path not in self._listed]
        for path in list(self._listed)[rank::world]:
            beat()
            if not path.exists():
                wrong.append(f"{path} is missing")
            elif path.stat().st_size != self._listed[path]["bytes"] or (sha256(path) != self._listed[path]["sha256"]):
                wrong.append(f"{path} has changed since prepare")
        problems = [problem for of_rank in gather(wrong) for problem in of_rank]
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise InputError(f"{problems[0]}{more}; rerun prepare or restore the original file")
