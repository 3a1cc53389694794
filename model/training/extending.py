"""Extend a training: continue from another whose first steps are the same.

A checkpoint depends on the settings of the steps done, not on those of the steps to come: after a
run of 10,000 steps whose learning rate decays in the last 2,000 (`schedule=wsd`), one of 20,000
need not repeat the first 8,000. Each checkpoint has a hash of all that its steps depend on. One of
a training with other settings in the same folder that has the hash of this one's first steps
becomes a checkpoint of this one.
"""

import hashlib
import os
import shutil
import struct
from pathlib import Path

from model.config import TrainConfig
from model.tracking import metrics_file
from model.training import run_length
from model.training.schedule import Schedule
from pipeline.errors import InputError, StoreError
from pipeline.records import checkpoint_folder
from pipeline.storage.atomic import atomic_folder, remove_leftovers
from pipeline.storage.uploads import Fetch

# What a step depends on only through its learning rate, batch size and share of masks, or not at
# all; so does `schedule`.
PER_STEP = ("steps", "words", "epochs", "objective.mask_share", "schedule.")
HELD_OUT = ("evaluate_samples", "data.validation.")  # what `keep_best` depends on alone


def independent_keys(config: TrainConfig) -> tuple[str, ...]:
    """Return how the keys of settings and inputs begin that no step depends on directly."""
    return PER_STEP if config.keep_best else (*PER_STEP, *HELD_OUT)


class TrajectoryHash:
    """Hashes of all that the first n of `steps` updates depend on.

    `common` is a hash of the inputs and of the settings that all steps depend on.
    """

    def __init__(self, config: TrainConfig, steps: int, common: str):
        self._schedule, self._common = Schedule.of(config, steps), common
        self._begin()

    def _begin(self) -> None:
        self._hash, self._done = hashlib.sha256(self._common.encode()), 0

    def hash_of(self, step: int) -> str:
        """Return the hash for the first `step` steps; fast if it was asked for fewer before."""
        schedule = self._schedule
        if step < self._done:
            self._begin()
        for number in range(self._done, step):
            each = (schedule.lr_factor(number), schedule.batch_size(number), schedule.mask_share(number))
            self._hash.update(struct.pack("<dqd", *each))
        self._done = step
        return self._hash.hexdigest()

    def fits(self, step: int, noted: str | None) -> bool:
        """Return whether this training would reach a checkpoint, by the hash that it notes."""
        return noted is not None and step <= self._schedule.steps and noted == self.hash_of(step)


def find_newest(
    folder: Path, first_steps: TrajectoryHash, data: str, needs_words: bool, fetch: Fetch
) -> checkpoint_folder.Checkpoint | None:
    """Return the newest intact checkpoint of a run, or a later one that it has in common.

    The latter is linked into `folder`, with those before it that are kept for their words. An
    interrupted call is repeated at the next start. `data` is the checksum of the shards; `fetch`
    gets the files of a checkpoint that are only in a store, by its path in the stage's folder.

    Raises:
        Unreadable: It cannot be known whether one is intact, and resuming before it removes it.
    """
    remove_leftovers(folder)  # of a start that was killed, whose room the next checkpoint may need
    newest = checkpoint_folder.find_newest(folder)
    for path in _in_common(folder, first_steps, newest[1].step if newest else 0):
        if checkpoint_folder.read_field(path, "data") != data or (
            needs_words and checkpoint_folder.read_field(path, "words") is None
        ):
            continue  # a start of its own would be refused with it, however often it is forced
        try:
            fetch(path.relative_to(folder.parents[1]))
            state = checkpoint_folder.read_state(path)
            _take_up(path, state.step, folder, fetch)
            print(f"train: the first {state.step:,} steps are those of {path.parent}: not repeated", flush=True)
            return folder / path.name, state
        except (InputError, StoreError) as error:
            print(f"warning: {error}; trying the previous checkpoint", flush=True)
    return newest


def step_in_common(config: TrainConfig, common: str) -> int:
    """Return the step that a training would continue from, after which another in its folder has a checkpoint."""
    first_steps = TrajectoryHash(config, run_length.steps_of(config), common)
    shared = _in_common(Path(config.out, checkpoint_folder.RUNS, "new"), first_steps, 0)
    return int(shared[0].name.removeprefix("step-")) if shared else 0


def _in_common(folder: Path, first_steps: TrajectoryHash, done: int) -> list[Path]:
    """Return checkpoints of other trainings after `done` steps that this one has too, latest first.

    Their files have not been verified. Those whose best checkpoint is not there any more are left out.
    """
    others = [checkpoint_folder.steps(other) for other in folder.parent.glob("*") if other != folder]
    shared = [  # hashes take the steps in order
        path
        for step, path in sorted((step, path) for paths in others for step, path in paths.items() if step > done)
        if first_steps.fits(step, checkpoint_folder.read_field(path, "first_steps"))
        and all(best.exists() for best in checkpoint_folder.best_of(path))
    ]
    return shared[::-1]


def _take_up(path: Path, step: int, folder: Path, fetch: Fetch) -> None:
    """Link a checkpoint, its best, and those before it that are kept for their words; copy their curve."""
    metrics_file.copy_metrics(folder.parent.parent, path.parent, folder, step)
    earlier = checkpoint_folder.steps(path.parent).items()
    marked = (
        other for number, other in earlier if number < step and checkpoint_folder.milestone_words(other) is not None
    )
    for each in dict.fromkeys((*marked, *checkpoint_folder.best_of(path), path)):
        fetch(each.relative_to(folder.parents[1]))
        target = folder / each.name
        try:  # an interrupted start took it up, or it is this training's own
            checkpoint_folder.read_state(target)
        except checkpoint_folder.UnreadableCheckpoint:
            raise
        except InputError:
            with atomic_folder(target) as temporary:
                shutil.copytree(each, temporary, copy_function=_link)


def _link(source: str, target: str) -> None:
    """Link a file, or copy it where the file system has no links: checkpoints never change."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
