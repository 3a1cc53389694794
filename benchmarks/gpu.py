"""Measure training on a GPU in one run of about ten minutes.

    python -m benchmarks.gpu --out results            # on a machine with a GPU
    python -m benchmarks.gpu --out results --small    # the same steps at tiny size, also on a CPU

First correctness (every attention backend against float64, the model against Hugging Face's, no
host synchronisation inside a step), then step times for base and large at 128 and 512 tokens, then
a short pre-training on the sample corpus with its loss curve. Needs a checkout with its
dependencies. Writes results, logs, the curve and a summary against the targets below to `results`.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.training.tracking import read_metrics
from pipeline.reporting import plots

ROOT = Path(__file__).resolve().parent.parent
MARKS = {"base": 0.45, "large": 0.55}  # MFU on one GPU in bf16, the engine in the loop
WAIT = 0.01  # highest acceptable share of time spent waiting for data
TOKENS = 65_536  # per step


@dataclass(frozen=True)
class Part:
    """One command of the run."""

    name: str
    command: list[str]
    seconds: int  # time limit


def parts(out: Path, small: bool) -> Iterator[Part]:
    """Yield the commands in order; together at most ten minutes."""
    python = [sys.executable, "-m"]
    checked = ["tests/model/test_attention.py", "tests/model/test_gpu.py"]
    yield Part("correctness", [*python, "pytest", *checked, "-k", "gpu"], 120)
    for size in ("tiny",) if small else ("base", "large"):
        for length in (128, 512):
            tokens = 1024 if small else TOKENS // (2 if size == "large" else 1)
            peers = ["ours", "engine"] if small else ["ours", "ours-compiled", "engine", "hf"]
            yield Part(
                f"step-{size}-{length}",
                [*python, "benchmarks.train", "--size", size, "--precision", "bf16",
                 "--length", str(length), "--batch", str(tokens // length), "--dropout", "0.1",
                 "--peers", *peers, "--out", str(out / "rows.jsonl")],
                100,
            )  # fmt: skip
    work = out / "work"
    for stage in ("vocab", "prepare"):
        words = ["+corpus=sample", f"workdir={work}", f"out={work / stage}"]
        yield Part(stage, [*python, f"pipeline.{stage}", *words], 120)
    yield Part("train", [str(Path(sys.executable).with_name("deepspeed")), *training(work, small)],
               180)  # fmt: skip


def training(work: Path, small: bool) -> list[str]:
    """Return the arguments of `deepspeed` for a short pre-training."""
    size, steps, batch = ("tiny", 10, 16) if small else ("base", 400, 256)
    return [
        "--num_accelerators", "1", str(ROOT / "model" / "train.py"), f"workdir={work}",
        f"out={work / 'train'}", f"model={size}", f"steps={steps}", f"batch_size={batch}",
        f"micro_batch={batch}", "precision=bf16", "deepspeed=zero1", "tracking=none",
        f"evaluate_every={steps // 2}", "save_every=100000", f"log_every={max(1, steps // 40)}",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    (out / "rows.jsonl").unlink(missing_ok=True)
    failed = [part.name for part in parts(out, options.small) if not done(part, out)]
    summary = "\n".join(verdicts(out, failed)) + "\n"
    (out / "summary.md").write_text(summary, encoding="utf-8")
    print(f"\n{summary}")
    sys.exit(bool(failed))


def done(part: Part, out: Path) -> bool:
    """Run one command with its output in a log; return whether it succeeded."""
    log, began = out / f"{part.name}.log", time.monotonic()
    with log.open("wb") as file:
        try:
            code = subprocess.run(
                part.command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT,
                timeout=part.seconds, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            code = -1
    fine = code == 0
    ending = "" if fine else f"  exit code {code}, log: {log}"
    print(f"{part.name:<16} {time.monotonic() - began:6.1f} s{ending}", flush=True)
    return fine


def verdicts(out: Path, failed: list[str]) -> Iterator[str]:
    """Yield the lines of the summary."""
    if failed:
        yield f"failed: {', '.join(failed)}"
    yield "| size | length | | tokens/s | MFU | target | recompiled |"
    yield "|---|---:|---|---:|---:|---:|---:|"
    for row in read(out / "rows.jsonl"):
        share, rate = row["flops"] / row["seconds"] / row["product"], row["tokens"] / row["seconds"]
        mark = f"{MARKS[row['size']]:.0%}" if row["size"] in MARKS else ""
        yield (
            f"| {row['size']} | {row['length']} | {row['peer']} | {rate:,.0f} | {share:.0%} "
            f"| {mark} | {row['recompiled']} |"
        )
    steps = [row for row in read_metrics(out / "work" / "train") if row["kind"] == "train"]
    if steps:
        curve = ("base", [row["step"] for row in steps], [row["loss"] for row in steps])
        (out / "curve.svg").write_text(plots.lines([curve], "step", "loss"), encoding="utf-8")
        waited = max(row["data_wait_share"] for row in steps[1:] or steps)
        yield (
            f"\nShort pre-training: loss {steps[0]['loss']:.3f} to {steps[-1]['loss']:.3f} in "
            f"{steps[-1]['step']} steps, {steps[-1]['tokens_per_second']:,.0f} tokens/s; at most "
            f"{waited:.2%} of the time waiting for data (target {WAIT:.0%})."
        )


def read(path: Path) -> list[dict[str, Any]]:
    """Read the records of a JSON-lines file; return an empty list if it is missing."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
