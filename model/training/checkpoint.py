"""Checkpoints independent of ZeRO stage and world size: one fp32 tensor per parameter and moment.

The state is gathered from ZeRO's partitions on saving and scattered into the new partitions on
loading: any ZeRO stage on any number of ranks reads the checkpoints of any other. The layout is
that of `pipeline.records.checkpoint_folder`.

A crash at any moment, even of the machine, leaves only complete checkpoints: data is synced to disk
before the rename.
"""

import dataclasses
import json
from functools import cached_property
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.config import Weights
from pipeline.errors import BY_FORCE, InputError, named
from pipeline.records import checkpoint_folder
from pipeline.storage.atomic import atomic_folder, flush, write_text
from pipeline.storage.checksums import sha256


def write(folder: Path, state: checkpoint_folder.State, weights: Weights, moments: Weights) -> Path:
    """Write a checkpoint below `folder`, first under a temporary name; return its path.

    Raises:
        InputError: The disk is full or the folder is not writable.
    """
    path = folder / checkpoint_folder.name_of(state.step)
    try:
        with atomic_folder(path) as temporary:
            temporary.mkdir(parents=True)
            for name, tensors in ((checkpoint_folder.WEIGHTS, weights), (checkpoint_folder.MOMENTS, moments)):
                save_file(tensors, temporary / name)
                (temporary / name).chmod(0o644)
                flush(temporary / name)
            write_text(temporary / checkpoint_folder.STATE, json.dumps(dataclasses.asdict(state), indent=1) + "\n")
            sums = (f"{sha256(temporary / name)}  {name}\n" for name in checkpoint_folder.FILES)
            write_text(temporary / checkpoint_folder.SUMS, "".join(sums))
            flush(temporary)
            checkpoint_folder.remove(path)  # damaged: this run was not resumed from it
        flush(folder)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"cannot be written ({error}); free disk space and rerun the command: earlier checkpoints are intact",
            path=path,
        ) from error
    return path


def average(path: Path, state: checkpoint_folder.State, count: int) -> tuple[Weights, list[int]]:
    """Return the mean fp32 weights of `count` checkpoints, and their steps.

    `path`, with its `state`, is the last of them, whatever its name; the others precede it in the
    same folder. Those kept for their words or for longer trainings do not count: they are far
    apart, and the first has the initial weights. Needs memory for the sum and one tensor.

    Raises:
        InputError: There are fewer than `count` checkpoints, or one is damaged.
    """
    branch = path.parent / checkpoint_folder.PINNED
    apart = branch.read_text().split() if branch.exists() else []
    before = [
        other
        for step, other in checkpoint_folder.steps(path.parent).items()
        if step < state.step and checkpoint_folder.milestone_words(other) is None and other.name not in apart
    ]
    if len(before) + 1 < count:
        raise InputError(
            f"{named('average')}={count} needs {count} checkpoints up to {path.name}, found {len(before) + 1} apart "
            "from those of save_at_words, the best and the one before wsd's decay; train again with "
            f"keep={count} or more, save_every={max(1, state.step // count)} or less (a finished training: {BY_FORCE})",
            "average",
            path=path.parent,
        )
    before = before[len(before) + 1 - count :]
    averaged = [*(checkpoint_folder.read_state(other).step for other in before), state.step]
    total = load_file(path / checkpoint_folder.WEIGHTS)
    for other in before:
        file = Tensors(other)
        for name, tensor in total.items():
            tensor += file.weight(name)
    if count > 1:
        for tensor in total.values():
            tensor /= count
    return total, averaged


class Tensors:
    """Reader of a checkpoint that loads one tensor at a time, to save memory."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self._files = [
                safe_open(path / name, framework="pt")
                for name in (checkpoint_folder.WEIGHTS, checkpoint_folder.MOMENTS)
            ]
        except (OSError, SafetensorError) as error:
            raise InputError(f"cannot be read ({error})", path=path) from error

    def weight(self, name: str) -> Tensor:
        """Return the fp32 weight of a parameter."""
        return self._files[0].get_tensor(name)  # type: ignore[no-any-return, no-untyped-call]

    @cached_property
    def moments(self) -> set[tuple[str, str]]:
        """Return the moments that parameters have, as (moment, parameter)."""
        names: list[str] = self._files[1].keys()  # type: ignore[no-untyped-call]
        return {(key, name) for key, _, name in (each.partition(".") for each in names)}

    def moment(self, key: str, name: str) -> Tensor:
        """Return a moment of a parameter, in the parameter's shape."""
        return self._files[1].get_tensor(f"{key}.{name}")  # type: ignore[no-any-return, no-untyped-call]
