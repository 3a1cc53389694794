"""Part C: a real pre-training by DeepSpeed's engine, killed in the middle and resumed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.engines import lacks
from benchmarks.gpu.rows import Rows
from benchmarks.shared import read

ROOT = Path(__file__).resolve().parents[2]
SHOWN = ("step", "loss", "mfu", "tokens_per_second", "data_wait_share", "memory_gib")


def run(rows: Rows, device: torch.device, small: bool, text: Path | None = None) -> None:
    """Train, kill, resume, on a run's prepared text or on random words; or say what is missing."""
    if lacks(rows, "training"):
        return
    work = rows.path.parent / "work"
    shutil.rmtree(work, ignore_errors=True)
    words = settings(work, small, text)
    rows.attempt("training, killed", until_killed, words, work, rows.left / 2)
    rows.attempt("training, resumed", to_the_end, words, work, rows.left)
    found = [row for row in read(work / "train" / "metrics.jsonl") if row["kind"] == "train"]
    for row in found[:: max(1, len(found) // 20)]:
        rows.add("curve", **{key: row[key] for key in SHOWN if key in row})


def settings(work: Path, small: bool, text: Path | None) -> list[str]:
    """Return the overrides of the run; without a text, write random words to train on."""
    from benchmarks import small as tiny

    if small:
        tiny.make_work(work)
        return [*tiny.settings(work, work / "train"), "steps=60", "save_every=10"]
    if text is None:  # a vocabulary of 30,522 entries, and random words, some far more frequent
        tiny.make_work(work, words=30_517, rows=200_000, length=128)
    steps = "steps=300 save_every=50 log_every=5" if text is None else "steps=1500 save_every=250 log_every=10"
    batches = "model=base precision=bf16 batch_size=512 micro_batch=auto evaluate_every=500 tracking=none"
    rate = "optimizer=muon optimizer.learning_rate=2e-3 optimizer.adam_share=0.4 optimizer.betas=[0.9,0.98] clip=null"
    schedule = "schedule=wsd schedule.warmup_share=0.04 schedule.decay=sqrt schedule.decay_share=0.4"
    return [f"workdir={text or work}", f"out={work / 'train'}", *f"{batches} {steps} {rate} {schedule}".split()]


@contextmanager
def training(words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Train in a group of processes of its own, which ends without a warning at the latest here."""
    process = subprocess.Popen([sys.executable, "-m", "model.train", *words], cwd=ROOT, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def saved(work: Path) -> list[str]:
    """Return the names of the checkpoints."""
    return sorted(path.parent.name for path in (work / "train").rglob("SHA256SUMS"))


def until_killed(words: list[str], work: Path, limit: float) -> dict[str, Any]:
    """Train until there are two checkpoints, then end it without a warning."""
    began = time.monotonic()
    with training(words) as process:
        while len(saved(work)) < 2 and process.poll() is None:
            if time.monotonic() - began > limit:
                raise TimeoutError(f"no two checkpoints within {limit:.0f} s")
            time.sleep(0.2)
    return {"ok": bool(saved(work)), "checkpoints": len(saved(work))}


def to_the_end(words: list[str], work: Path, limit: float) -> dict[str, Any]:
    """Start the same command again: it continues after the newest checkpoint."""
    with training(words) as process:
        code = process.wait(limit)
    found = [row for row in read(work / "train" / "metrics.jsonl") if row["kind"] == "train"]
    steps = [row["step"] for row in found]
    whole = steps == sorted(set(steps)) and bool(steps)
    falls = bool(found) and found[-1]["loss"] < found[0]["loss"]
    return {"ok": code == 0 and whole and falls, "code": code, "steps": len(steps)}
