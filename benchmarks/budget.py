r"""What a small budget wants: settings of pre-training at equal tokens, one run each.

    python -m benchmarks.budget --corpus wikiextractor --path FOLDER --data BLIMP \
      --out work/budget --model tiny --tokens 1e6

Each row differs from the first in the settings that its name says, and reads the same text with the
same vocabulary. A row is a line of OUT/rows.jsonl as soon as it is there: the held-out masked-LM
accuracy, the mean of BLiMP's paradigms over `--pairs` pairs of each, and the processor time of
training. A row that is there is not run again, so the command resumes. Held-out accuracies of rows
with other masks or lengths are of other predictions: compare their BLiMP. `--rows NAME ...` runs
some rows, `--show` prints the table of those that are there.
"""

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipeline.common.manifest import Manifest

MUON = [
    "optimizer=muon", "clip=null", "optimizer.learning_rate=5e-3", "optimizer.adam_share=0.4",
]  # fmt: skip

# Settings of `train`, or with `prepare.` of `prepare`, by name; the first is what others change.
ROWS: dict[str, list[str]] = {
    "base": [],
    "rate 3e-4": ["optimizer.learning_rate=3e-4"],
    "rate 3e-3": ["optimizer.learning_rate=3e-3"],
    "batch 64": ["batch_size=64"],
    "batch 64, rate 3e-3": ["batch_size=64", "optimizer.learning_rate=3e-3"],
    "muon": MUON,
    "muon, rate 1e-2": [*MUON, "optimizer.learning_rate=1e-2", "optimizer.adam_share=0.2"],
    "muon, batch 64": [*MUON, "batch_size=64"],
    "muon, masks 30 to 15%": [*MUON, "objective.mask_share=[0.3,0.15]"],
    "muon, wsd": [*MUON, "schedule=wsd", "schedule.warmup_share=0.05", "schedule.decay_share=0.5"],
    "muon, average": [*MUON, "ema=0.99"],
    "wsd": ["schedule=wsd", "schedule.warmup_share=0.05", "schedule.decay_share=0.5"],
    "masks 30%": ["objective.mask_share=0.3"],
    "masks 30 to 15%": ["objective.mask_share=[0.3,0.15]"],
    "length 128": ["prepare.sequence_length=128", "batch_size=8"],
    "pairs": ["prepare.pairs=nsp", "objective=nsp"],
    "decay 0.1": ["optimizer.weight_decay=0.1"],
    "dropout 0.1": ["model.dropout=0.1", "model.attention_dropout=0.1"],
    "seed 1": ["seed=1"],
}
BASE = [
    "objective=mlm", "batch_size=16", "micro_batch=16", "optimizer.learning_rate=1e-3",
    "optimizer.betas=[0.9,0.98]", "schedule.warmup_share=0.05", "model.dropout=0",
    "model.attention_dropout=0", "deepspeed=zero0", "processes=1", "threads=1", "keep=1",
    "log_every=100", "evaluate_every=1000000", "save_every=1000000", "tracking=none",
]  # fmt: skip
PREPARE = {"pairs": "none", "sequence_length": "64", "validation_share": "0.05"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", default="wikiextractor", help="a name of conf/corpus")
    parser.add_argument("--path", help="corpus.path")
    parser.add_argument("--data", help="folder of BLiMP's files")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--tokens", type=float, default=1e6, help="that each row trains on")
    parser.add_argument("--vocabulary", type=int, default=8192, help="entries")
    parser.add_argument("--pairs", type=int, default=100, help="of each paradigm")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--show", action="store_true", help="print the table only")
    options = parser.parse_args()
    done = known(options.out)
    for name in [] if options.show else options.rows:
        settings = settings_of(options, name)
        if done.get(name, {}).get("settings") == settings:
            continue
        row = {"name": name, "settings": settings, **measured(options, name)}
        with (options.out / "rows.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        done[name] = row
        print(table({name: row}), flush=True)
    print(table(done))


def known(out: Path) -> dict[str, dict[str, Any]]:
    """Return the rows that are there by name; of several of one name the last."""
    file = out / "rows.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def settings_of(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return what determines a row."""
    return {
        "corpus": options.corpus, "path": options.path, "model": options.model,
        "tokens": options.tokens, "vocabulary": options.vocabulary, "pairs": options.pairs,
        "overrides": [*BASE, *ROWS[name]],
    }  # fmt: skip


def measured(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Run one row and return its figures."""
    out = options.out.absolute()
    own = [word.removeprefix("prepare.") for word in ROWS[name] if word.startswith("prepare.")]
    shards = PREPARE | dict(word.split("=") for word in own)
    prepared = out / f"prepare-{shards['pairs']}-{shards['sequence_length']}"
    corpus = [f"+corpus={options.corpus}", f"corpus.path={options.path}"]
    command("vocab", *corpus, f"out={out}/vocab", f"size={options.vocabulary}")
    command(
        "prepare", *corpus, f"out={prepared}", f"vocab={out}/vocab", "runner.workers=1",
        *(f"{key}={value}" for key, value in shards.items()),
    )  # fmt: skip
    overrides = [*BASE, *(word for word in ROWS[name] if not word.startswith("prepare."))]
    batch = int(next(w for w in reversed(overrides) if w.startswith("batch_size=")).split("=")[1])
    totals = manifest(prepared).figures["totals"]
    samples = totals["train"] + totals["validation"]
    steps = round(options.tokens * samples / totals["tokens"] / batch)
    folder = out / f"train-{name.replace(', ', '-').replace(' ', '-').replace('%', '')}"
    training = command(
        "train", f"out={folder}", f"data.dir={prepared}", f"data.vocab={out}/vocab",
        f"model={options.model}", f"steps={steps}", *overrides,
    )  # fmt: skip
    scored = folder.with_name(folder.name.replace("train", "evaluate", 1))
    command(
        "evaluate", "+task=blimp", f"data={options.data}", f"pretrained={folder}",
        "checkpoints=all", f"out={scored}", "baseline=false", f"maximum_rows={options.pairs}",
        "threads=1",
    )  # fmt: skip
    figures, pairs = manifest(folder).figures, manifest(scored).figures
    return {
        "steps": steps, "batch": batch, "tokens": figures["tokens"],
        "validation": figures["validation"], "blimp": pairs["score"],
        "interval": pairs["interval"], "core_seconds": training,
    }  # fmt: skip


def manifest(folder: Path) -> Manifest:
    """Return what a stage says of its folder."""
    found = Manifest.read(folder)
    assert found is not None
    return found


def command(stage: str, *overrides: str) -> float:
    """Run a stage unless it is up to date; return the seconds of processor time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", f"pipeline.{stage}", *overrides], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| settings | steps | tokens | core seconds | held-out accuracy | BLiMP | 95% interval "
        "| BLiMP above chance per core-hour |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        low, high = row["interval"]
        gain = 100 * (row["blimp"] - 0.5) / (row["core_seconds"] / 3600)
        lines.append(
            f"| {name} | {row['steps']:,} of {row['batch']} | {row['tokens']:,} | "
            f"{row['core_seconds']:.0f} | {row['validation']['masked_lm_accuracy']:.3f} | "
            f"{100 * row['blimp']:.1f} | {100 * low:.1f} to {100 * high:.1f} | {gain:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
