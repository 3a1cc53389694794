"""`python -m pipeline.train`: one process or several, and quick answers before PyTorch is there."""

import shutil
import sys

import pytest

from benchmarks.small import make_work
from pipeline.records.manifest import Manifest
from tests.model.conftest import SMALL
from tests.support import forked


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with a vocabulary and prepared shards."""
    return make_work(tmp_path_factory.mktemp("work"))


def train(*words, python=()):
    return forked.fresh(*python, "-m", "pipeline.train", *words)


@pytest.mark.parametrize("words", [["--help"], ["model=tiny", "model.heads=3"]])
def test_help_and_mistakes_do_not_wait_for_pytorch(words):
    done = train(*words, python=("-X", "importtime"))
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "model.config" in imported
    assert not {"torch", "deepspeed", "transformers"} & imported


@pytest.mark.slow
def test_one_process_trains_without_a_launchers_words(work, tmp_path):
    done = train(f"workdir={work}", f"out={tmp_path / 'train'}", *SMALL, "steps=2", "processes=1")
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stdout + done.stderr
    manifest = Manifest.read(tmp_path / "train")
    assert manifest.figures["world_size"] == 1
    assert "train: 2 x 32, " in done.stdout
    assert "WARNING" not in done.stdout + done.stderr
    words = [sys.executable, "-m", "pipeline.train", f"workdir={work}"]
    words += [f"out={tmp_path / 'train'}", *SMALL, "processes=1"]
    again = forked.run([*words, "steps=2"])
    assert "train: up to date" in again.stdout
    other = forked.run([*words, "steps=1"])
    assert "other settings" in other.stdout
    assert "step-00000002" in other.stdout


@pytest.mark.slow
def test_several_processes_train_as_one(work, tmp_path):
    words = [f"workdir={work}", f"out={tmp_path / 'train'}", *SMALL, "steps=2", "processes=2"]
    done = train(*words)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stdout + done.stderr
    manifest = Manifest.read(tmp_path / "train")
    assert manifest.figures["world_size"] == 2


def test_a_number_of_processes_that_the_launcher_did_not_start_is_refused(work, tmp_path):
    done = forked.fresh("model/train.py", f"workdir={work}", f"out={tmp_path}", "processes=2")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: processes=2: ")


@pytest.mark.slow
def test_a_mistake_that_every_rank_finds_is_one_line(work, tmp_path):
    folder = tmp_path / "prepare"
    shutil.copytree(work / "prepare", folder)
    shard = next(folder.glob("train-*.arrow"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    done = train(f"workdir={work}", f"data.dir={folder}", f"out={tmp_path / 'train'}", *SMALL, "processes=2")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {shard}")
    assert done.stderr.count("\n") == 1
