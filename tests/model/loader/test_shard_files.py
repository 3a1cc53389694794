"""Shards are those that were prepared, and a checkpoint's are those that it was trained on."""

import dataclasses
import shutil

import pytest

from benchmarks.small import write_split
from model.config import DataConfig
from model.loader.shard_files import ShardFiles
from pipeline.records.manifest import Manifest, file_checksums
from pipeline.tokenization.wordpiece import WordPiece
from tests.model.conftest import SHARD, SMALL, train_many
from tests.support import finished

pytestmark = pytest.mark.slow


def change_a_token(path):
    """In the middle of a shard, where only its checksum tells."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 & ~1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "why"),
    [(change_a_token, SHARD), (lambda shard: shard.rename(shard.with_name("train-00009.arrow")), "train-00009")],
)
def test_changed_shards_are_refused_before_the_first_step(work, tmp_path, change, why):
    folder = shutil.copytree(work / "prepare", tmp_path / "prepare")
    change(folder / SHARD)
    settings = [f"workdir={work}", f"out={tmp_path / 'train'}", f"data.dir={folder}", *SMALL]
    said = train_many([(2, settings)], code=2)
    assert why in said
    assert said.count("error: ") == 2  # each rank leaves by itself, none waits for another


def test_a_checkpoint_of_other_shards_is_not_gone_on_from(work, tmp_path):
    folder = shutil.copytree(work / "prepare", tmp_path / "prepare")
    settings = [f"workdir={work}", f"out={tmp_path / 'train'}", f"data.dir={folder}", *SMALL]
    train_many([(1, settings)])
    (tmp_path / "train" / "manifest.json").unlink()
    write_split(folder, WordPiece.load(work / "vocab"), "train", 200, seed=9)
    manifest = Manifest.read(folder)
    assert manifest is not None  # its fingerprint stays: the same settings gave other bytes
    dataclasses.replace(manifest, files=file_checksums(folder, {})).write(folder)
    assert "other shards" in train_many([(1, settings)], code=2)


@pytest.mark.parametrize(("pairs", "random", "said"), [("nsp", 6, 1), ("nsp", 60, 0), ("nsp", 120, 1), ("none", 0, 0)])
def test_shards_with_next_segments_of_one_kind_are_warned_of(tmp_path, pairs, random, said):
    counts = {"totals": {"train": 120, "random_next": random}, "sequence_length": 32}
    finished.manifest("prepare", config={"pairs": pairs}, figures=counts).write(tmp_path)
    assert len(ShardFiles(DataConfig(dir=str(tmp_path)), [str(tmp_path)]).warnings) == said
