"""A training in an object store gives the bytes of one on a disk, on any machine."""

from pathlib import Path

import pytest

from model.training import checkpoint
from pipeline.common import s3, s3_transfer
from pipeline.common.manifest import MANIFEST, Manifest
from tests.model.conftest import SMALL, train_many

pytestmark = [pytest.mark.slow, pytest.mark.store]

EVERY = (*SMALL, "save_every=4", "keep=2")


def words(work: str, out: str, mirror: Path) -> list[str]:
    return [
        *EVERY, f"data.dir={work}/prepare", f"data.vocab={work}/vocab", f"out={out}/train",
        f"mirror={mirror}",
    ]  # fmt: skip


def checkpoints(address: str) -> set[str]:
    found = (info.key.split("/") for info in s3.below(address))
    return {parts[-2] for parts in found if parts[-1] == checkpoint.SUMS}


def sums(manifest: Manifest | None) -> dict[str, str]:
    assert manifest is not None
    return {
        name.partition("/step-")[2]: account["sha256"] for name, account in manifest.files.items()
        if name.endswith("safetensors")
    }  # fmt: skip


def test_a_training_in_a_store_is_that_on_a_disk(
    root: Path, work: Path, bucket: str, tmp_path: Path
) -> None:
    for name in ("prepare", "vocab"):
        for path in (work / name).iterdir():
            s3_transfer.put(f"{bucket}/{name}/{path.name}", path.read_bytes())
    run = f"{bucket}/run"
    train_many(
        root,
        [
            (1, words(str(work), str(tmp_path), tmp_path / "unused")),
            (1, words(bucket, run, tmp_path / "a")),
        ],
    )
    local, stored = Manifest.read(tmp_path / "train"), Manifest.read(f"{run}/train")
    assert sums(stored) == sums(local) != {}
    assert checkpoints(f"{run}/train") == {"step-00000008", "step-00000012"}

    # As if the machine had been lost while it put the last checkpoint.
    top = f"{run}/train/checkpoints/{stored.fingerprint[:12]}"
    s3_transfer.delete([f"{run}/train/{MANIFEST}", f"{top}/step-00000012/SHA256SUMS"])
    s3_transfer.put(f"{run}/train/.unfinished", b"train")
    said = train_many(root, [(2, words(bucket, run, tmp_path / "b"))])
    assert "resumed after step 8" in said
    assert sums(Manifest.read(f"{run}/train")).keys() == sums(local).keys()
    assert checkpoints(f"{run}/train") == {"step-00000008", "step-00000012"}
