"""Part A, training: every way of the engine learns the same, waits once in a step, and resumes."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.rows import Rows

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("deepspeed", "hydra", "omegaconf", "pyarrow", "tokenizers", "safetensors", "transformers")
STEPS = 8
NEAR = 0.1  # how far a loss may be from plain data parallelism's in fp32
OFFLOADED = "waits are for host memory"
OWN_CURVE = ("lamb",)
WAITS = {"zero3": 5}  # of a step: DeepSpeed's own, for its streams and the norm; one elsewhere


def run(rows: Rows, device: torch.device, small: bool) -> None:
    """Train in all ways; the first is what the others are compared with."""
    if lacks(rows, "engines"):
        return
    work = rows.path.parent / "engines"
    shutil.rmtree(work, ignore_errors=True)
    from benchmarks import small as tiny

    tiny.make_work(work)
    plan = {
        name: [*tiny.settings(work, work / folder_of(name)), "schedule=constant", *more]
        for name, more in ways(device, small).items()
    }
    expected: dict[str, float] = {}
    for part in [plan] if small else [{name: words} for name, words in plan.items()]:
        try:
            found = outcomes(part, rows.left)
        except (subprocess.SubprocessError, OSError) as error:
            rows.add(f"engine, {' '.join(part)}", ok=False, error=str(error)[-300:])
            continue
        for one in found:
            expected = expected or one["losses"]
            rows.add(f"engine, {one['run']}", **judged(one, expected))


def lacks(rows: Rows, name: str) -> bool:
    """Return whether packages that training needs are missing; the row `name` then says which."""
    missing = [package for package in NEEDED if not installed(package)]
    if missing:
        rows.skip(name, f"not installed: {', '.join(missing)}")
    return bool(missing)


def installed(name: str) -> bool:
    """Return whether a package is installed, and not only imitated."""
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # made by `benchmarks.gpu`, not found
        return False


def ways(device: torch.device, small: bool) -> dict[str, list[str]]:
    """Return the overrides of each run by its name; a CPU tries one of a kind."""
    half = [
        "precision=bf16",
        "+deepspeed.data_types.grad_accum_dtype=fp32",
        "+deepspeed.communication_data_type=fp32",  # what a GPU has by default
    ]
    found = {"zero0": ["deepspeed=zero0"]}
    stages = ("zero1", "zero3_offload") if small else ("zero1", "zero2", "zero2_offload", "zero3", "zero3_offload")
    found |= {stage: [f"deepspeed={stage}", *half] for stage in stages}
    if device.type == "cuda":
        found["fp16"] = ["deepspeed=zero2", "precision=fp16"]
    found["lamb"] = ["deepspeed=zero1", *half, "optimizer=lamb", "optimizer.learning_rate=2e-2"]
    found = {name: [*more, f"steps={STEPS}"] for name, more in found.items()}
    found["stopped"] = [*found["zero1"], f"steps={STEPS // 2}"]
    found["resumed"] = found["zero1"]
    return found


def folder_of(name: str) -> str:
    """Return the folder of a run; two runs share one."""
    return "stopped" if name == "resumed" else name


def outcomes(plan: dict[str, list[str]], limit: float) -> list[dict[str, Any]]:
    """Train, and return what each run prints."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.model.engine_runs", json.dumps(plan)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=max(1.0, limit),
    )
    if done.returncode:
        raise subprocess.SubprocessError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def judged(one: dict[str, Any], expected: dict[str, float]) -> dict[str, Any]:
    """Return the figures of a run, and whether they are right.

    A run that resumes begins after the stop, and its losses are those of a run without one.
    """
    name, losses = one["run"], one["losses"]
    farthest = max(abs(losses[step] - expected[step]) for step in losses)
    count = STEPS // 2 if name == "stopped" else STEPS
    began = STEPS // 2 if name == "resumed" else 0
    near = name in OWN_CURVE or farthest < NEAR
    waits = OFFLOADED if "offload" in name else one["waits"]
    whole = len(losses) == count and one["began"] == began
    right = waits in (WAITS.get(name, 1), OFFLOADED)
    fine = near and whole and right
    first, last = next(iter(losses.values())), list(losses.values())[-1]
    return {
        "ok": fine and last < first,
        "began": one["began"],
        "distance": farthest,
        "waits": waits,
        "first": first,
        "last": last,
        "places": [] if right else one["places"],
    }
