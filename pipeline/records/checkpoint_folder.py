"""The folders of checkpoints: layout, state, and what is intact; without PyTorch.

A checkpoint is a folder `checkpoints/RUN/step-NNNNNNNN` of a train stage, RUN being the first
letters of its fingerprint. It holds `model.safetensors` (fp32 weights by name),
`optimizer.safetensors` (`exp_avg.NAME`, `exp_avg_sq.NAME`), `state.json`, and `SHA256SUMS` of these
three (for `sha256sum --check`). `model.training.checkpoint` writes and reads its tensors.
"""

import contextlib
import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

from pipeline.errors import InputError, hub_cure
from pipeline.records.manifest import Manifest
from pipeline.storage import strict_json
from pipeline.storage.checksums import sha256

FORMAT = "checkpoint/2"
WEIGHTS, MOMENTS, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
FILES = (WEIGHTS, MOMENTS, STATE)
SUMS = "SHA256SUMS"  # of these files
LATEST = "latest"  # the name of the newest checkpoint, for other tools
PINNED = "stable"  # the names of those that are kept for longer trainings, or as the best, alone
RUNS = "checkpoints"  # the folder of a stage that has them, with one subfolder per fingerprint
# A file of a checkpoint by its path in the stage's folder: the checkpoint, the run, the step.
FILE = re.compile(rf"({RUNS}/([^/]+)/step-(\d+))/[^/]+")


@dataclasses.dataclass(kw_only=True)
class State:
    """Position of a run; with weights and moments, everything that its next step depends on."""

    step: int  # updates done
    samples: int  # consumed, over all ranks and epochs
    tokens: int  # the same, without padding
    fingerprint: str  # of the train stage
    model: strict_json.Json  # ModelConfig
    data: str  # checksum of the shards' checksums
    tokenizer: str  # sha256 of tokenizer.json
    skipped: int = 0  # updates skipped because the loss or gradient was not finite
    carried: int = 0  # updates in the optimizer's state from before this run
    words: float | None = None  # of the text, consumed as often as read; None: not known
    seconds: float = 0.0  # of all starts up to here; 0: not noted
    loss_scale: dict[str, float | None] = dataclasses.field(default_factory=dict)  # of fp16
    first_steps: str | None = None  # hash of what the steps done depend on; None: not noted
    best: dict[str, float] = dataclasses.field(default_factory=dict)  # of keep_best: its step and held-out figures
    mark: float | None = None  # of save_at_words: what it was saved for, 0 before the first step
    sums: list[float] = dataclasses.field(default_factory=list)  # of the metrics since the last row
    learnt: int | None = None  # tokens of the longest sequences, here or before `start`; None: not noted
    format: str = FORMAT

    @property
    def updates(self) -> int:
        """Return the number of updates applied to the optimizer's state."""
        return self.carried + self.step - self.skipped

    @property
    def best_step(self) -> int | None:
        """Return the step of the best held-out figures."""
        return int(self.best["step"]) if self.best else None

    @property
    def best_figures(self) -> dict[str, float]:
        """Return the best held-out figures."""
        return {key: value for key, value in self.best.items() if key != "step"}


Checkpoint = tuple[Path, State]


def name_of(step: int) -> str:
    """Return the folder name of a checkpoint."""
    return f"step-{step:08d}"


def remove(path: Path) -> None:
    """Rename a checkpoint before deleting it: a crash leaves nothing that looks like one."""
    if path.exists():
        away = path.with_name(f".{path.name}.old.tmp")
        shutil.rmtree(away, ignore_errors=True)
        path.rename(away)
        shutil.rmtree(away, ignore_errors=True)


class UnreadableCheckpoint(InputError):
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
            raise InputError(f"format {fields['format']} is not supported; expected {FORMAT}", path=path)
        state = State(**fields)
        sums = _sums(path)
        for name in FILES:
            if sha256(path / name) != sums[name]:
                raise InputError(f"damaged, does not match its checksum in {SUMS}", path=path / name)
    except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"not a complete checkpoint ({error})", path=path) from error
    except OSError as error:
        raise UnreadableCheckpoint(
            f"cannot be read ({error}); rerun the command where it can, or remove the "
            "folder to resume from the checkpoint before it",
            path=path,
        ) from error
    return state


def steps(folder: Path) -> dict[int, Path]:
    """Return the checkpoints of a run by step, in ascending order, including damaged ones."""
    names = {path.name.removeprefix("step-"): path for path in folder.glob("step-*")}
    return dict(sorted((int(name), path) for name, path in names.items() if name.isdecimal()))


def find_newest(folder: Path) -> Checkpoint | None:
    """Return the last intact checkpoint of a run; warn of damaged ones.

    Raises:
        Unreadable: It cannot be known whether one is intact, and resuming before it removes it.
    """
    for path in reversed(steps(folder).values()):
        try:
            return path, read_state(path)
        except UnreadableCheckpoint:
            raise
        except InputError as error:
            print(f"warning: {error}; trying the previous checkpoint", flush=True)
    return None


def milestone_words(path: Path) -> float | None:
    """Return the words for which a checkpoint is kept for good; None: it is not."""
    mark = read_field(path, "mark")
    return mark if isinstance(mark, int | float) else None


def read_field(path: Path, key: str) -> Any:
    """Return a field of a checkpoint's state, unverified; None if it is missing or damaged."""
    return strict_json.own(path / STATE).get(key)


def best_of(path: Path) -> list[Path]:
    """Return the checkpoint of the best held-out figures up to one; none without `keep_best`."""
    best = read_field(path, "best")
    step = best.get("step") if isinstance(best, dict) else None
    return [path.with_name(name_of(int(step)))] if isinstance(step, int | float) else []


def run_name(fingerprint: str) -> str:
    """Return the name of the folder of a training's checkpoints."""
    return fingerprint[:12]


def folder_of(out: Path, fingerprint: str) -> Path:
    """Return the folder of a training's checkpoints in that of its stage."""
    return out / RUNS / run_name(fingerprint)


def belongs_to_other(run: str, name: str) -> bool:
    """Return whether a file of a stage's folder belongs to the checkpoints of another training."""
    match = FILE.fullmatch(name)
    return match is not None and match[2] != run


def sums_of(folder: Path) -> dict[str, str]:
    """Return the checksums of a checkpoint by name; none if they are missing or damaged."""
    with contextlib.suppress(OSError, ValueError):
        return _sums(folder)
    return {}


def _sums(folder: Path) -> dict[str, str]:
    return {name: checksum for checksum, name in map(str.split, (folder / SUMS).read_text().splitlines())}


def other_settings(folder: Path) -> Path | None:
    """Return the newest checkpoint of a training with other settings, stored next to `folder`."""
    paths = [path for path in folder.parent.glob("*/step-*") if path.parent != folder]
    return max(paths, key=lambda path: path.stat().st_mtime, default=None)


def locate(folder: Path) -> Checkpoint:
    """Return the checkpoint at a path: the path itself, or the result of a train stage.

    Of an unfinished training, which has no result yet, it is the newest checkpoint.

    Raises:
        InputError: No checkpoint was found, or that of the result is damaged.
    """
    if (folder / STATE).exists():
        return folder, read_state(folder)
    manifest = Manifest.read(folder, of_input=True)
    candidates = sorted((folder / RUNS).glob("*"), key=lambda p: p.stat().st_mtime, reverse=True)
    if manifest is not None and manifest.stage == "train":
        if result := manifest.figures.get("checkpoint"):
            return folder / result, read_state(folder / result)
        candidates = [folder_of(folder, manifest.fingerprint)]
    for candidate in candidates:
        newest = find_newest(candidate)
        if newest is not None:
            if manifest is None:
                print(f"{folder}: is not finished; taking {newest[0]}", flush=True)
            return newest
    near = [*sorted(folder.glob(f"*/{RUNS}")), *(above / RUNS for above in folder.parents[:2])]
    stage = next((path.parent for path in near if any(map(steps, path.glob("*")))), None)
    cure = f"use {stage}" if stage else f"train first (python -m pipeline.train){hub_cure(folder)}"
    raise InputError(f"no checkpoint found; {cure}", path=folder)
