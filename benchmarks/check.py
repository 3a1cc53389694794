"""The ratios that take a minute or less each, next to those of the last commit: `make bench-check`.

A ratio is the other's time over ours, of peers that take turns in one run. It depends on the
processor: `benchmarks/results/ratios.json` has one set for each that was measured. One that is
below 0.9 of its last value is measured again; if it stays there the command ends with 1, and the
file is not written.
"""

import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.data.prepare import read
from benchmarks.shared import RATIOS
from benchmarks.small import SMALL_RUN

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "benchmarks" / "results" / "ratios.json"
WORK = ROOT / "work" / "bench-check"
LEAST = 0.9  # of the last value
CHECKS = (
    "model.train --size tiny --peers ours hf",
    "model.train --size mini --batches 1 --peers ours hf",
    "model.train --size modern-mini --dropout 0 --batches 1 --batch 16 --length 512 --lengths documents "
    "--peers ours hf",
    "data.loader --rows 50000",
    "data.prepare --megabytes 25 --peers ours tokenizers",
    f"data.tokenize_text {WORK}/text --megabytes 8",
    f"scores.finetune --pretrained {WORK}/convert --data {WORK}/tasks --task sample_next --rows 1000 --epochs 2",
    f"model.inference --pretrained {WORK}/convert --lines 500 --lengths 16",
    f"scores.minimal_pairs --pretrained {WORK}/convert --data {WORK}/pairs --rows 60",
)


def processor() -> str:
    """Return what ratios depend on most: clouds give several generations one name, which numbers tell apart."""
    parts = (line.partition(":") for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines())
    known = {key.strip(): value.strip() for key, _, value in parts}
    family, number = known.get("cpu family", "unknown"), known.get("model", "unknown")
    name = f"{known.get('model name', 'unknown')} (family {family}, model {number})"
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def make_inputs() -> None:
    """Run the sample's graph unless it is up to date, as what a model has learnt costs no time; write its text."""
    subprocess.run([sys.executable, "-m", "pipeline.run", *SMALL_RUN.split(), f"workdir={WORK}"], check=True)
    for name in ("text", "pairs"):
        (WORK / name).mkdir(exist_ok=True)
    rows = (WORK / "tasks" / "Sample-Next" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    sentences = [cell for row in rows for cell in row.split("\t")[:2]]
    (WORK / "text" / "text.txt").write_text("\n".join(read(None)), encoding="utf-8")
    with (WORK / "pairs" / "turned.jsonl").open("w", encoding="utf-8") as file:
        for sentence in sentences[:100]:
            turned = " ".join(reversed(sentence.split()))
            file.write(json.dumps({"UID": "turned", "sentence_good": sentence, "sentence_bad": turned}) + "\n")


def measure(check: str) -> dict[str, float]:
    """Run a benchmark, which prints its table; return its ratios by name."""
    module, *words = check.split()
    with tempfile.NamedTemporaryFile("r") as file:
        command = [sys.executable, "-m", f"benchmarks.{module}", *words]
        subprocess.run(command, env=os.environ | {RATIOS: file.name}, cwd=ROOT, check=True)
        return dict(map(json.loads, file))


def slower(found: dict[str, float], last: dict[str, float]) -> list[str]:
    """Return the ratios that are below the bound."""
    return [name for name, ratio in found.items() if ratio < LEAST * last.get(name, 0)]


def main() -> None:
    make_inputs()
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    last = kept.get(processor(), {}).get("ratios", {})
    found: dict[str, float] = {}
    for check in CHECKS:
        once = measure(check)
        if slower(once, last):
            once = {name: max(ratio, once[name]) for name, ratio in measure(check).items()}
        found |= once
    print(f"\n{processor()}\n{'ratio':34}{'now':>8}{'last':>8}")
    for name, ratio in found.items():
        print(f"{name:34}{ratio:8.2f}{last.get(name, float('nan')):8.2f}")
    if below := slower(found, last):
        sys.exit(f"below {LEAST} of the last value: {', '.join(below)}")
    kept[processor()] = {"day": str(datetime.date.today()), "pytorch": torch.__version__, "ratios": found}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
