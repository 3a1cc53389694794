"""Checkpoints on disk: whatever moment a process dies at, a good one is found again."""

import dataclasses
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from model.optim.build import ADAM
from model.training import checkpoint
from model.training.checkpoint import write
from model.training.engine import require_moments
from pipeline.errors import InputError
from pipeline.records import checkpoint_folder
from pipeline.records.checkpoint_folder import find_newest, name_of
from pipeline.records.retention import Retention
from pipeline.storage.atomic import remove_leftovers
from tests.support.finished import state
from tests.support.refusals import refused

SHAPES = {f"layer.{number}": (64, 512) for number in range(24)}


def tensors(step):
    """Weights and moments that say which step they are of."""
    weights = {name: torch.full(shape, float(step)) for name, shape in SHAPES.items()}
    moments = {f"{key}.{name}": torch.full(shape, -float(step)) for name, shape in SHAPES.items() for key in ADAM}
    return weights, moments


def save_without_end(folder):
    """What training does, save after save."""
    found = find_newest(folder)
    step = found[1].step if found else 0
    while True:
        step += 1
        Retention(2).prune(write(folder, state(step), *tensors(step)))


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(10))
def test_a_process_killed_while_it_saves_leaves_a_good_checkpoint(tmp_path, moment):
    write(tmp_path, state(1), *tensors(1))
    saver = multiprocessing.get_context("fork").Process(target=save_without_end, args=(tmp_path,))
    saver.start()
    time.sleep(np.random.default_rng(moment).uniform(0.02, 0.4))
    os.kill(saver.pid, signal.SIGKILL)
    saver.join()
    found = find_newest(tmp_path)
    path, whole = found
    held = checkpoint.Tensors(path)
    assert path.name == name_of(whole.step)
    for name, shape in SHAPES.items():
        assert torch.equal(held.weight(name), torch.full(shape, float(whole.step)))
        for key in ADAM:
            assert torch.equal(held.moment(key, name), torch.full(shape, -float(whole.step)))
    Retention(2).prune(write(tmp_path, state(whole.step + 1), *tensors(whole.step + 1)))
    assert (tmp_path / "latest").read_text().strip() == name_of(whole.step + 1)
    remove_leftovers(tmp_path)  # as the next start does
    assert not list(tmp_path.glob(".*")), "what the crash left is gone"


def test_the_checkpoint_that_was_written_outlives_damaged_ones_after_it(tmp_path):
    for step in (8, 9):
        write(tmp_path, state(step), *tensors(step))
        (tmp_path / name_of(step) / checkpoint_folder.WEIGHTS).write_bytes(b"damaged")
    write(tmp_path, state(3), *tensors(3))
    path = write(tmp_path, state(4), *tensors(4))
    Retention(1).prune(path)
    assert list(checkpoint_folder.steps(tmp_path).values()) == [path]


@pytest.mark.parametrize(
    "name", [checkpoint_folder.WEIGHTS, checkpoint_folder.MOMENTS, checkpoint_folder.STATE, checkpoint_folder.SUMS]
)
@pytest.mark.parametrize("harm", ["gone", "cut", "flipped"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, name, harm, capsys):
    for step in (3, 4):
        write(tmp_path, state(step), *tensors(step))
    path = tmp_path / name_of(4) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    if harm != "gone":
        path.write_bytes(data[:-9] if harm == "cut" else data)
    found = find_newest(tmp_path)
    assert found[1].step == 3
    assert name_of(4) in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", [checkpoint_folder.WEIGHTS, checkpoint_folder.MOMENTS, checkpoint_folder.STATE, checkpoint_folder.SUMS]
)
def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_damaged(tmp_path, name):
    for step in (3, 4):
        write(tmp_path, state(step), *tensors(step))
    path = tmp_path / name_of(4) / name
    path.unlink()
    path.symlink_to(path)  # too many links: neither absent nor of wrong content
    with pytest.raises(checkpoint_folder.UnreadableCheckpoint, match=name_of(4)):
        find_newest(tmp_path)


def test_the_checksums_are_those_of_sha256sum(tmp_path):
    path = write(tmp_path, state(1), *tensors(1))
    done = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=path, capture_output=True)
    assert done.returncode == 0
    assert done.stdout.count(b": OK") == 3


def test_the_last_ones_and_every_so_many_are_kept(tmp_path):
    for step in range(2, 14, 2):
        (tmp_path / name_of(step)).mkdir()
    Retention(2, keep_every=4).prune(tmp_path / name_of(12))
    assert list(checkpoint_folder.steps(tmp_path)) == [4, 8, 10, 12]


def test_those_kept_for_their_words_do_not_count_among_the_last_ones(tmp_path):
    for step in range(1, 8):
        mark = 1e6 if step in (2, 6, 7) else None
        write(tmp_path, dataclasses.replace(state(step), mark=mark), *tensors(step))
    Retention(3).prune(tmp_path / name_of(7))
    kept = [path.name for path in checkpoint_folder.steps(tmp_path).values()]
    assert kept == [name_of(step) for step in (2, 3, 4, 5, 6, 7)]
    path, last = checkpoint_folder.locate(tmp_path / name_of(7))
    assert checkpoint.average(path, last, 4)[1] == [3, 4, 5, 7]


def test_the_best_of_each_that_stays_does_too_and_is_not_averaged(tmp_path):
    for step in range(10, 100, 10):
        best = {"step": 50 if step >= 50 else 10, "loss": 1.0}
        path = write(tmp_path, dataclasses.replace(state(step), best=best), {"w": torch.full((2,), float(step))}, {})
        Retention(2, stable=25).prune(path)
    assert list(checkpoint_folder.steps(tmp_path)) == [10, 20, 50, 80, 90]
    last = checkpoint_folder.locate(tmp_path / name_of(90))
    assert checkpoint.average(*last, 2)[1] == [80, 90]


def test_the_last_one_before_the_decay_stays_and_is_not_averaged(tmp_path):
    kept = []
    for step in range(10, 100, 10):
        path = write(tmp_path, state(step), {"w": torch.full((2,), float(step))}, {})
        Retention(2, stable=45).prune(path)
        kept.append([int(other.name[-3:]) for other in checkpoint_folder.steps(tmp_path).values()])
    assert kept[2:7] == [[20, 30], [30, 40], [40, 50], [40, 50, 60], [40, 60, 70]]
    assert (tmp_path / checkpoint_folder.PINNED).read_text() == f"{name_of(40)}\n"
    last = checkpoint_folder.locate(tmp_path / name_of(90))
    assert checkpoint.average(*last, 2)[1] == [80, 90]
    with pytest.raises(InputError, match="keep=3 or more, save_every=30 or less"):
        checkpoint.average(*last, 3)


def test_a_checkpoint_under_another_name_is_averaged_by_its_step(tmp_path):
    for step in (2, 4, 8):
        write(tmp_path / "run", state(step), *tensors(step))
    for folder in (tmp_path, tmp_path / "run"):
        copy = shutil.copytree(tmp_path / "run" / name_of(4), folder / "best")
        weights, steps = checkpoint.average(*checkpoint_folder.locate(copy), 1)
        assert steps == [4]
        assert torch.equal(weights["layer.0"], torch.full((64, 512), 4.0))
    weights, steps = checkpoint.average(*checkpoint_folder.locate(tmp_path / "run" / "best"), 2)
    assert steps == [2, 4]
    assert torch.equal(weights["layer.0"], torch.full((64, 512), 3.0))
    with refused(InputError, "best", key="average", path=str(tmp_path)):
        checkpoint.average(*checkpoint_folder.locate(tmp_path / "best"), 2)


def test_a_run_and_the_folders_around_its_checkpoints_name_the_training(tmp_path):
    write(tmp_path / "train" / checkpoint_folder.RUNS / "0a1b", state(1), *tensors(1))
    for folder in ("", "train/checkpoints", "train/checkpoints/0a1b"):
        (tmp_path / folder).mkdir(exist_ok=True)
        with refused(InputError, f"use {tmp_path / 'train'}$"):
            checkpoint_folder.locate(tmp_path / folder)


def test_checkpoints_kept_for_their_words_are_averaged_only_as_the_last(tmp_path):
    for step, mark in ((0, 0.0), (10, 1e6), (80, None), (90, None), (100, 2e6)):
        write(tmp_path, replace(state(step), mark=mark), {"w": torch.full((2,), float(step))}, {})
    weights, steps = checkpoint.average(*checkpoint_folder.locate(tmp_path / name_of(100)), 3)
    assert steps == [80, 90, 100]
    assert torch.equal(weights["w"], torch.full((2,), 90.0))
    with refused(InputError, "save_at_words", key="average"):
        checkpoint.average(*checkpoint_folder.locate(tmp_path / name_of(100)), 4)


def test_the_moments_of_another_optimizer_are_refused(tmp_path):
    path = write(tmp_path, state(1), {"w": torch.zeros(2)}, {"velocity.w": torch.zeros(2)})
    with refused(InputError, key="optimizer", path=str(path)):
        require_moments({"w": ADAM}, checkpoint.Tensors(path))
