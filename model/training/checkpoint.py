"""Checkpoints independent of ZeRO stage and world size: one fp32 tensor per parameter and moment.

A checkpoint is a folder `step-NNNNNNNN` with `model.safetensors` (fp32 weights by name),
`optimizer.safetensors` (`exp_avg.NAME`, `exp_avg_sq.NAME`), `state.json` and `SHA256SUMS` of these
three (for `sha256sum --check`), written under a temporary name and renamed. The state is gathered
from ZeRO's partitions on saving and scattered into the new partitions on loading: any ZeRO stage on
any number of ranks reads the checkpoints of any other.

A crash at any moment, even of the machine, leaves only complete checkpoints: data is synced to disk
before the rename, and the file `latest` (for other tools) is updated last.
"""

import dataclasses
import json
import os
import shutil
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from pipeline.common.atomic import remove_leftovers, write_text
from pipeline.common.errors import InputError
from pipeline.common.manifest import Manifest, sha256

FORMAT = "checkpoint/2"
WEIGHTS, MOMENTS, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
FILES = (WEIGHTS, MOMENTS, STATE)
SUMS = "SHA256SUMS"  # of these files
LATEST = "latest"  # the name of the newest checkpoint
BRANCH = "stable"  # the name of the one that is kept for longer trainings alone


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """Position of a run; with weights and moments, everything that its next step depends on."""

    step: int  # updates done
    samples: int  # consumed, over all ranks and epochs
    tokens: int  # the same, without padding
    fingerprint: str  # of the train stage
    model: dict[str, Any]  # ModelConfig
    data: str  # checksum of the shards' checksums
    tokenizer: str  # sha256 of tokenizer.json
    skipped: int = 0  # updates skipped because the loss or gradient was not finite
    carried: int = 0  # updates in the optimizer's state from before this run
    words: float | None = None  # of the text, consumed as often as read; None: not known
    seconds: float = 0.0  # of all starts up to here; 0: not noted
    loss_scale: dict[str, float | None] = dataclasses.field(default_factory=dict)  # of fp16
    first_steps: str | None = None  # hash of what the steps done depend on; None: not noted
    mark: float | None = None  # of save_at_words: what it was saved for, 0 before the first step
    format: str = FORMAT

    @property
    def updates(self) -> int:
        """Return the number of updates applied to the optimizer's state."""
        return self.carried + self.step - self.skipped


def name_of(step: int) -> str:
    """Return the folder name of a checkpoint."""
    return f"step-{step:08d}"


def write(
    folder: Path, state: State, weights: dict[str, torch.Tensor], moments: dict[str, torch.Tensor]
) -> Path:
    """Write a checkpoint below `folder`, first under a temporary name; return its path.

    Raises:
        InputError: The disk is full or the folder is not writable.
    """
    path = folder / name_of(state.step)
    temporary = folder / f".{path.name}.tmp"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for name, tensors in ((WEIGHTS, weights), (MOMENTS, moments)):
            save_file(tensors, temporary / name)
            (temporary / name).chmod(0o644)
            _sync(temporary / name)
        write_text(temporary / STATE, json.dumps(dataclasses.asdict(state), indent=1) + "\n")
        sums = (f"{sha256(temporary / name)}  {name}\n" for name in FILES)
        write_text(temporary / SUMS, "".join(sums))
        _sync(temporary)
        _remove(path)  # damaged: this run was not resumed from it
        temporary.rename(path)
        _sync(folder)
        write_text(folder / LATEST, f"{path.name}\n")
        _sync(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise InputError(
            f"{path}: cannot be written ({error}); free disk space and rerun the command: earlier "
            "checkpoints are intact",
            path=path,
        ) from error
    return path


def _sync(path: Path) -> None:
    """Flush a file's data or a folder's entries to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    """Rename a checkpoint before deleting it: a crash leaves nothing that looks like one."""
    if path.exists():
        away = path.with_name(f".{path.name}.old.tmp")
        shutil.rmtree(away, ignore_errors=True)
        path.rename(away)
        shutil.rmtree(away, ignore_errors=True)


class Unreadable(InputError):
    """A checkpoint may be intact, but its file system or its permissions do not let it be read."""


def read_state(path: Path) -> State:
    """Read the state of a checkpoint and verify the checksums of its files.

    Raises:
        Unreadable: A file is there and cannot be read now.
        InputError: The checkpoint is incomplete, damaged or of another format.
    """
    try:
        fields = json.loads((path / STATE).read_text())
        if fields["format"] != FORMAT:
            raise InputError(
                f"{path}: format {fields['format']} is not supported; expected {FORMAT}", path=path
            )
        state = State(**fields)
        sums = dict(line.split()[::-1] for line in (path / SUMS).read_text().splitlines())
        for name in FILES:
            if sha256(path / name) != sums[name]:
                raise InputError(
                    f"{path / name}: damaged, does not match its checksum in {SUMS}",
                    path=path / name,
                )
    except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: not a complete checkpoint ({error})", path=path) from error
    except OSError as error:
        raise Unreadable(
            f"{path}: cannot be read ({error}); rerun the command where it can, or remove the "
            "folder to resume from the checkpoint before it",
            path=path,
        ) from error
    return state


def steps(folder: Path) -> dict[int, Path]:
    """Return the checkpoints of a run by step, in ascending order, including damaged ones."""
    found = {}
    for path in folder.glob("step-*"):
        number = path.name.removeprefix("step-")
        if number.isdecimal():
            found[int(number)] = path
    return dict(sorted(found.items()))


def newest(folder: Path) -> tuple[Path, State] | None:
    """Return the last intact checkpoint of a run; warn of damaged ones.

    Raises:
        Unreadable: It cannot be known whether one is intact, and resuming before it removes it.
    """
    for path in reversed(steps(folder).values()):
        try:
            return path, read_state(path)
        except Unreadable:
            raise
        except InputError as error:
            print(f"warning: {error}; trying the previous checkpoint", flush=True)
    return None


def prune(last: Path, keep: int, keep_every: int | None = None, stable: int = 0) -> None:
    """Remove what killed writers left, and all but the last `keep` and each `keep_every`-th.

    The last of the first `stable` steps stays too: a longer training can continue from it. Those
    kept for their words do not count. `last` is the checkpoint that was just written. Any after it
    are damaged: it was not resumed from them.
    """
    found = steps(last.parent)
    good = [step for step in found if step <= int(last.name.removeprefix("step-"))]
    plain = [step for step in good if mark_of(found[step]) is None]
    branch = max((step for step in plain if step <= stable), default=None)
    for step, path in found.items():
        spare = step in plain[:-keep] and (keep_every is None or step % keep_every)
        spare = spare and step != branch
        if step not in good or spare:
            _remove(path)
    if branch in plain[:-keep]:
        write_text(last.parent / BRANCH, f"{name_of(branch)}\n")
    remove_leftovers(last.parent)


def mark_of(path: Path) -> float | None:
    """Return the words for which a checkpoint is kept for good; None: it is not."""
    mark = noted(path, "mark")
    return mark if isinstance(mark, int | float) else None


def noted(path: Path, key: str) -> Any:
    """Return a field of a checkpoint's state, unverified; None if it is missing or damaged."""
    try:
        return json.loads((path / STATE).read_text()).get(key)
    except (OSError, ValueError, AttributeError):
        return None


def runs(folder: Path) -> Path:
    """Return the folder of a train stage's checkpoints, with one subfolder per fingerprint."""
    return folder / "checkpoints"


def adopt(out: Path, legacy: str | None, fingerprint: str) -> None:
    """Rename this run's checkpoints of release 0.1.0 to its present fingerprint."""
    if legacy is None:
        return
    old, new = (runs(out) / name[:12] for name in (legacy, fingerprint))
    if old.is_dir() and not new.exists():
        old.rename(new)
        print(f"train: resuming the run of an earlier release, now {new}", flush=True)


def other_settings(folder: Path) -> Path | None:
    """Return the newest checkpoint of a training with other settings, stored next to `folder`."""
    found = [path for path in folder.parent.glob("*/step-*") if path.parent != folder]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def locate(folder: Path) -> tuple[Path, State]:
    """Return the checkpoint at a path: the path itself, or the newest of a train stage.

    Raises:
        InputError: No checkpoint was found.
    """
    if (folder / STATE).exists():
        return folder, read_state(folder)
    manifest = Manifest.read(folder, of_input=True)
    if manifest is not None and manifest.stage == "train":
        candidates = [runs(folder) / manifest.fingerprint[:12]]
    else:
        candidates = sorted(runs(folder).glob("*"), key=lambda p: p.stat().st_mtime, reverse=True)
    for candidate in candidates:
        found = newest(candidate)
        if found is not None:
            return found
    raise InputError(
        f"{folder}: no checkpoint found; train first (python -m pipeline.train)", path=folder
    )


def average(path: Path, state: State, count: int) -> tuple[dict[str, torch.Tensor], list[int]]:
    """Return the mean fp32 weights of `count` checkpoints, and their steps.

    `path`, with its `state`, is the last of them, whatever its name; the others precede it in the
    same folder. Those kept for their words or for longer trainings do not count: they are far
    apart, and the first has the initial weights. Needs memory for the sum and one tensor.

    Raises:
        InputError: There are fewer than `count` checkpoints, or one is damaged.
    """
    earlier = [other for step, other in steps(path.parent).items() if step < state.step]
    branch = path.parent / BRANCH
    apart = branch.read_text().strip() if branch.exists() else None
    before = [other for other in earlier if mark_of(other) is None and other.name != apart]
    if len(before) + 1 < count:
        raise InputError(
            f"{path.parent}: average={count} needs {count} checkpoints up to {path.name}, found "
            f"{len(before) + 1} apart from those of save_at_words and the one before wsd's decay; "
            f"train again with keep={count} or more (a finished training: with force=true)",
            key="average",
            path=path.parent,
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
    """Reader of a checkpoint that loads one tensor at a time, to save memory."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self._files = [safe_open(path / name, framework="pt") for name in (WEIGHTS, MOMENTS)]
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path}: cannot be read ({error})", path=path) from error

    def weight(self, name: str) -> torch.Tensor:
        """Return the fp32 weight of a parameter."""
        tensor: torch.Tensor = self._files[0].get_tensor(name)  # type: ignore[no-untyped-call]
        return tensor

    @cached_property
    def moments(self) -> set[tuple[str, str]]:
        """Return the moments that parameters have, as (moment, parameter)."""
        names: list[str] = self._files[1].keys()  # type: ignore[no-untyped-call]
        return {(key, name) for key, _, name in (each.partition(".") for each in names)}

    def moment(self, key: str, name: str) -> torch.Tensor:
        """Return a moment of a parameter, in the parameter's shape."""
        file = self._files[1]
        tensor: torch.Tensor = file.get_tensor(f"{key}.{name}")  # type: ignore[no-untyped-call]
        return tensor
