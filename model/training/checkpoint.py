"""Checkpoints that do not know how they were trained: one fp32 tensor a parameter and moment.

A checkpoint is a folder `step-NNNNNNNN` with `model.safetensors` (fp32 weights by name),
`optimizer.safetensors` (`exp_avg.NAME`, `exp_avg_sq.NAME`), `state.json` and `SHA256SUMS` of these
three (`sha256sum --check` reads it), written under another name and renamed. It is gathered from
whatever partition ZeRO made of the state, and scattered into whatever comes next, so any ZeRO stage
on any number of ranks reads what any other wrote.

A crash at any moment, of the machine too, leaves whole checkpoints only: bytes are on the disk
before their name is, and the file `latest` (for other tools) moves last.
"""

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from pipeline.common.atomic import write_text
from pipeline.common.errors import InputError
from pipeline.common.manifest import Manifest, sha256

FORMAT = "checkpoint/2"
WEIGHTS, MOMENTS, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
FILES = (WEIGHTS, MOMENTS, STATE)
SUMS = "SHA256SUMS"  # of these files
LATEST = "latest"  # the name of the newest checkpoint


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """Where a run stands; with the weights and moments, all that its next step depends on."""

    step: int  # updates done
    samples: int  # consumed, over all ranks and epochs
    tokens: int  # likewise, without padding
    fingerprint: str  # of the train stage
    model: dict[str, Any]  # ModelConfig
    data: str  # checksum of the shards' checksums
    tokenizer: str  # sha256 of tokenizer.json
    skipped: int = 0  # of the updates, those that a loss not finite made void
    carried: int = 0  # updates in the optimizer's state from before this run
    words: float | None = None  # of the text, consumed as often as read; None: not known
    mark: float | None = None  # of save_at_words: what it was saved for, 0 before the first step
    format: str = FORMAT

    @property
    def updates(self) -> int:
        """How many the optimizer's state has seen."""
        return self.carried + self.step - self.skipped


def name_of(step: int) -> str:
    """The folder name of a checkpoint."""
    return f"step-{step:08d}"


def write(
    folder: Path, state: State, weights: dict[str, torch.Tensor], moments: dict[str, torch.Tensor]
) -> Path:
    """Write a checkpoint below `folder`, beside its name first; returns its path.

    Raises:
        InputError: the disk is full, or the folder cannot be written.
    """
    path = folder / name_of(state.step)
    beside = folder / f".{path.name}.tmp"
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        for name, tensors in ((WEIGHTS, weights), (MOMENTS, moments)):
            save_file(tensors, beside / name)
            (beside / name).chmod(0o644)
            _sync(beside / name)
        write_text(beside / STATE, json.dumps(dataclasses.asdict(state), indent=1) + "\n")
        sums = (f"{sha256(beside / name)}  {name}\n" for name in FILES)
        write_text(beside / SUMS, "".join(sums))
        _sync(beside)
        _remove(path)  # a damaged one, which this run was not resumed from
        beside.rename(path)
        _sync(folder)
        write_text(folder / LATEST, f"{path.name}\n")
        _sync(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise InputError(
            f"{path}: cannot be written ({error}); the checkpoints before it are whole: make room "
            "and start the same command again"
        ) from error
    return path


def _sync(path: Path) -> None:
    """Have a file's bytes, or a folder's names, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    """Take a checkpoint's name first, so that a crash leaves nothing that looks like one."""
    if path.exists():
        away = path.with_name(f".{path.name}.old.tmp")
        shutil.rmtree(away, ignore_errors=True)
        path.rename(away)
        shutil.rmtree(away, ignore_errors=True)


def read_state(path: Path) -> State:
    """The state of one checkpoint, its files checked against their checksums.

    Raises:
        InputError: it is incomplete or damaged.
    """
    try:
        fields = json.loads((path / STATE).read_text())
        if fields["format"] != FORMAT:
            raise InputError(f"{path}: format {fields['format']}, this code reads {FORMAT}")
        state = State(**fields)
        sums = dict(line.split()[::-1] for line in (path / SUMS).read_text().splitlines())
        for name in FILES:
            if sha256(path / name) != sums[name]:
                raise InputError(f"{path / name}: damaged, its checksum is not that in {SUMS}")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: not a whole checkpoint ({error})") from error
    return state


def steps(folder: Path) -> dict[int, Path]:
    """The checkpoints of a run by step, in rising order; damaged ones among them."""
    found = {}
    for path in folder.glob("step-*"):
        number = path.name.removeprefix("step-")
        if number.isdecimal():
            found[int(number)] = path
    return dict(sorted(found.items()))


def newest(folder: Path) -> tuple[Path, State] | None:
    """The last good checkpoint of a run; damaged ones are passed over with a warning."""
    for path in reversed(steps(folder).values()):
        try:
            return path, read_state(path)
        except InputError as error:
            print(f"warning: {error}; trying the one before it", flush=True)
    return None


def prune(folder: Path, keep: int, keep_every: int | None = None) -> None:
    """Remove all but the last `keep` checkpoints and every `keep_every`-th step's, and debris."""
    for step, path in list(steps(folder).items())[:-keep]:
        if (keep_every is None or step % keep_every) and mark_of(path) is None:
            _remove(path)
    for path in folder.glob(".step-*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


def mark_of(path: Path) -> float | None:
    """Return the words for which a checkpoint is kept for good; None: it is not."""
    try:
        mark = json.loads((path / STATE).read_text()).get("mark")
    except (OSError, ValueError, AttributeError):
        return None  # it is damaged
    return mark if isinstance(mark, int | float) else None


def runs(folder: Path) -> Path:
    """Where the checkpoints of a train stage are: one folder a fingerprint."""
    return folder / "checkpoints"


def other_settings(folder: Path) -> Path | None:
    """Return the newest checkpoint that other settings than those of `folder` left next to it."""
    found = [path for path in folder.parent.glob("*/step-*") if path.parent != folder]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def locate(folder: Path) -> tuple[Path, State]:
    """The checkpoint that a path means: itself, or the newest of a train stage.

    Raises:
        InputError: there is none.
    """
    if (folder / STATE).exists():
        return folder, read_state(folder)
    manifest = Manifest.read(folder)
    if manifest is not None and manifest.stage == "train":
        places = [runs(folder) / manifest.fingerprint[:12]]
    else:
        places = sorted(runs(folder).glob("*"), key=lambda p: p.stat().st_mtime, reverse=True)
    for place in places:
        found = newest(place)
        if found is not None:
            return found
    raise InputError(f"{folder}: no checkpoint there; train first (python -m pipeline.train)")


def average(path: Path, state: State, count: int) -> tuple[dict[str, torch.Tensor], list[int]]:
    """The mean fp32 weights of `count` checkpoints, and their steps.

    `path`, with its `state`, is the last of them, whatever its name; the others are those before it
    beside it. Memory holds the sum and one tensor more.

    Raises:
        InputError: there are fewer, or one is damaged.
    """
    before = [other for step, other in steps(path.parent).items() if step < state.step]
    if len(before) + 1 < count:
        raise InputError(
            f"{path.parent}: checkpoints up to {path.name}: {len(before) + 1}, to be averaged: "
            f"{count}; train with keep={count} or more"
        )
    before = before[len(before) + 1 - count :]
    averaged = [*(read_state(other).step for other in before), state.step]
    total = load_file(path / WEIGHTS)
    for other in before:
        file = Tensors(other)
        for name, tensor in total.items():
            tensor += file.weight(name)
    if count > 1:
        for tensor in total.values():
            tensor /= count
    return total, averaged


class Tensors:
    """One tensor at a time from a checkpoint, so that memory holds no second copy of it."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self._files = [safe_open(path / name, framework="pt") for name in (WEIGHTS, MOMENTS)]
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path}: cannot be read ({error})") from error

    def weight(self, name: str) -> torch.Tensor:
        """The fp32 weight of a parameter."""
        tensor: torch.Tensor = self._files[0].get_tensor(name)  # type: ignore[no-untyped-call]
        return tensor

    def moment_keys(self) -> set[str]:
        """Return the names of the moments that each parameter has: any number of them."""
        return {key.partition(".")[0] for key in self._files[1].keys()}  # type: ignore[no-untyped-call]  # noqa: SIM118

    def moment(self, key: str, name: str) -> torch.Tensor:
        """A moment of a parameter, in its shape."""
        file = self._files[1]
        tensor: torch.Tensor = file.get_tensor(f"{key}.{name}")  # type: ignore[no-untyped-call]
        return tensor
