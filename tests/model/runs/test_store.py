"""A training in an object store gives the bytes of one on a disk, on any machine."""

import os
import shlex
import shutil
import subprocess
import sys

import pytest

from benchmarks.small import write_split
from pipeline.common.ports import free_port
from pipeline.errors import Exit
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import MANIFEST, Manifest, file_checksums, unfinished_manifest
from pipeline.shards import open_folder
from pipeline.storage.cached_folders import local_path
from pipeline.tokenization.wordpiece import WordPiece
from tests.model.conftest import SMALL, losses, train_many
from tests.support import finished, objects

pytestmark = [pytest.mark.slow, pytest.mark.store, pytest.mark.timeout(900)]

EVERY = (*SMALL, "save_every=4", "keep=2")


def words(work, out, mirror):
    return [*EVERY, f"data.dir={work}/prepare", f"data.vocab={work}/vocab", f"out={out}/train", f"mirror={mirror}"]


def steps_in(address):
    found = (info.key.split("/") for info in objects.below(address))
    return {parts[-2] for parts in found if parts[-1] == checkpoint_folder.SUMS}


def sums(manifest):
    return {
        name.partition("/step-")[2]: account["sha256"]
        for name, account in manifest.files.items()
        if name.endswith("safetensors")
    }


def test_a_training_in_a_store_is_that_on_a_disk(work, bucket, tmp_path):
    for name in ("prepare", "vocab"):
        for path in (work / name).iterdir():
            objects.put(f"{bucket}/{name}/{path.name}", path.read_bytes())
    run = f"{bucket}/run"
    train_many([(1, words(str(work), str(tmp_path), tmp_path / "unused")), (1, words(bucket, run, tmp_path / "a"))])
    local, stored = Manifest.read(tmp_path / "train"), Manifest.read(f"{run}/train")
    assert sums(stored) == sums(local) != {}
    assert steps_in(f"{run}/train") == {"step-00000008", "step-00000012"}

    # As if the machine had been lost while it put the last checkpoint.
    top = f"{run}/train/checkpoints/{stored.fingerprint[:12]}"
    objects.delete([f"{top}/step-00000012/SHA256SUMS"])
    objects.put(f"{run}/train/{MANIFEST}", unfinished_manifest("train"))
    said = train_many([(2, words(bucket, run, tmp_path / "b"))])
    assert "resumed after step 8" in said
    assert sums(Manifest.read(f"{run}/train")).keys() == sums(local).keys()
    assert steps_in(f"{run}/train") == {"step-00000008", "step-00000012"}


def train_on_nodes(root, node, disks, overrides):
    """Train with one rank a node; each has another disk at the path `node`. What rank 0 said."""
    port = free_port()
    ranks = []
    for number, disk in enumerate(disks):
        inner = shlex.join([sys.executable, "model/train.py", *overrides])
        mounted = f"mount --bind {disk} {node} && exec {inner}"
        variables = {"RANK": str(number), "LOCAL_RANK": "0", "WORLD_SIZE": str(len(disks)), "DS_ACCELERATOR": "cpu"}
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        words = ["unshare", "--mount", "sh", "-c", mounted]
        ranks.append(subprocess.Popen(words, cwd=root, env=os.environ | variables, **pipes))
    said = [process.communicate()[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0] * len(ranks), said
    return said[0]


@pytest.mark.netns
@pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")
def test_nodes_need_no_shared_folder(root, work, bucket, tmp_path):
    for name in ("prepare", "vocab"):
        for path in (work / name).iterdir():
            objects.put(f"{bucket}/{name}/{path.name}", path.read_bytes())
    out, node, disks = f"{bucket}/run", tmp_path / "node", [tmp_path / "0", tmp_path / "1"]
    for folder in (node, *disks):
        folder.mkdir()
    train_on_nodes(root, node, disks, words(bucket, out, node))
    first = Manifest.read(f"{out}/train")
    assert not list(disks[1].rglob("*.safetensors"))  # rank 0 alone writes

    # Another machine takes the place of rank 1, and the last checkpoint was not put whole.
    shutil.rmtree(disks[1])
    disks[1].mkdir()
    shutil.rmtree(local_path(disks[0], out))
    top = f"{out}/train/checkpoints/{first.fingerprint[:12]}"
    objects.delete([f"{top}/step-00000012/SHA256SUMS"])
    objects.put(f"{out}/train/{MANIFEST}", unfinished_manifest("train"))
    said = train_on_nodes(root, node, disks, words(bucket, out, node))
    assert "resumed after step 8" in said
    assert sums(Manifest.read(f"{out}/train")) == sums(first)
    assert list(disks[1].rglob("step-00000008/model.safetensors"))


def prepared(folder, wordpiece):
    """A folder of `prepare` with several training shards."""
    folder.mkdir()
    for number in range(4):
        write_split(folder, wordpiece, "train", 60, number)
        name = f"train-{number:05d}-of-00004.arrow"
        (folder / "train-00000-of-00001.arrow").rename(folder / name)
    write_split(folder, wordpiece, "validation", 40, 9)
    shards = [shard for split in ("train", "validation") for shard in open_folder(folder, split)]
    counted = {s.path.name: {"rows": s.rows, "tokens": s.tokens, "words": s.tokens} for s in shards}
    figures = {"sequence_length": 32, "shards": counted}
    finished.manifest("prepare", fingerprint="c" * 64, files=file_checksums(folder, {}), figures=figures).write(folder)


def test_a_training_through_a_cache_is_that_of_local_shards(work, bucket, store, tmp_path, monkeypatch):
    prepared(tmp_path / "prepare", WordPiece.load(work / "vocab"))
    # As a stage puts them: the manifest is the newest.
    for path in sorted((tmp_path / "prepare").iterdir(), key=lambda path: path.name == MANIFEST):
        objects.put(f"{bucket}/prepare/{path.name}", path.read_bytes())
    common = [*SMALL, "steps=24", "save_every=6", f"data.vocab={work}/vocab", "data.window_rows=60"]
    cached = [*common, f"data.dir={bucket}/prepare", f"mirror={tmp_path}/mirror"]
    cached += [f"data.cache={tmp_path}/cache", f"out={tmp_path}/cached"]
    train_many([(1, [*common, f"data.dir={tmp_path}/prepare", f"out={tmp_path}/local"])])

    monkeypatch.setenv("BERT_STORE_TIMEOUT", "1")
    last = "train-00001-of-00004.arrow"  # needed last: it does not come
    store.fault = lambda method, path, number: 503 if method in ("HEAD", "GET") and last in path else None
    said = train_many([(1, cached)], code=Exit.RESTART)
    saved = list((tmp_path / "cached").glob("checkpoints/*/step-*"))
    assert saved, said
    assert not list((tmp_path / "mirror").rglob("train-*"))

    store.fault = lambda method, path, number: None
    monkeypatch.setenv("BERT_STORE_TIMEOUT", "60")
    small = ["data.cache_size=1kB"]
    assert "data.cache_size" in train_many([(2, [*cached, *small])], code=Exit.USER)
    said = train_many([(2, cached)])
    assert "resumed after step" in said
    assert losses(tmp_path / "cached") == pytest.approx(losses(tmp_path / "local"), abs=1e-5)
    assert not list((tmp_path / "cache").iterdir())
