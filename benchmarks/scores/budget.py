r"""What a small budget wants: settings of pre-training at equal tokens, one run each.

    python -m benchmarks.scores.budget --corpus wikiextractor --path FOLDER --data BLIMP \
      --out work/budget --model tiny --tokens 1e6

The first row has Muon, batches of 16, sequences of 64 tokens and 15 % masks. Each other row differs
in the settings that its name says, and reads the same text with the same vocabulary. A row is a line
of OUT/rows.jsonl as soon as it is there: the held-out masked-LM accuracy, the mean of BLiMP's
paradigms over `--pairs` pairs of each, and the processor time of training. A row that is there is
not run again, so the command resumes. Held-out accuracies of rows with other masks or lengths are of
other predictions: compare their BLiMP. `--rows NAME ...` runs some rows, `--jobs N` N rows at a time
with a core each, `--show` prints the table of those that are there.
"""

import argparse
import json
import re
import resource
import shlex
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.shared import heading, read
from pipeline.common.manifest import Manifest

MUON = ["optimizer=muon", "clip=null", "optimizer.learning_rate=5e-3", "optimizer.adam_share=0.4"]
BASE = [
    *shlex.split("objective=mlm batch_size=16 micro_batch=16"),
    *MUON,
    *shlex.split(
        "optimizer.betas=[0.9,0.98] schedule=wsd schedule.warmup_share=0.05 schedule.decay=sqrt "
        "schedule.decay_share=0.5 model.dropout=0 model.attention_dropout=0 deepspeed=zero0 processes=1 "
        "threads=1 keep=1 log_every=100 evaluate_every=1000000 save_every=1000000 tracking=none"
    ),
]
ADAMW = ["optimizer=adamw", "optimizer.learning_rate=1e-3", "optimizer.betas=[0.9,0.98]"]
LINEAR = ["schedule=linear", "schedule.warmup_share=0.05"]
# What differs from BASE, by name: settings of `train`, `prepare.` or `vocab.`; after `then.` those
# of the second half of the steps, which begins with the weights and moments of the first.
ROWS: dict[str, list[str]] = {
    "base": [],
    "seed 1": ["seed=1"],
    "AdamW, 1e-3": ADAMW,
    "AdamW, 3e-3": [*ADAMW, "optimizer.learning_rate=3e-3"],
    "AdamW, 1e-3, linear": [*ADAMW, *LINEAR],
    "rate 2.5e-3": ["optimizer.learning_rate=2.5e-3", "optimizer.adam_share=0.8"],
    "rate 1e-2": ["optimizer.learning_rate=1e-2", "optimizer.adam_share=0.2"],
    "rate of the others x 1/2": ["optimizer.adam_share=0.2"],
    "rate of the others x 2": ["optimizer.adam_share=0.8"],
    "second beta 0.95": ["optimizer.betas=[0.9,0.95]"],
    "second beta 0.999": ["optimizer.betas=[0.9,0.999]"],
    "weight decay 0.1": ["optimizer.weight_decay=0.1"],
    "linear": LINEAR,
    "decay over 20%": ["schedule.decay_share=0.2"],
    "decay over 80%": ["schedule.decay_share=0.8"],
    "warm-up over 1%": ["schedule.warmup_share=0.01"],
    "average of weights": ["ema=0.99"],
    "batch 8": ["batch_size=8", "micro_batch=8"],
    "batch 32": ["batch_size=32", "micro_batch=32"],
    "batch 64": ["batch_size=64", "micro_batch=32"],
    "masks 30%": ["objective.mask_share=0.3"],
    "masks 30 to 15%": ["objective.mask_share=[0.3,0.15]"],
    "dropout 0.1": ["model.dropout=0.1", "model.attention_dropout=0.1"],
    "length 128": ["prepare.sequence_length=128", "batch_size=8", "micro_batch=8"],
    "length 256": ["prepare.sequence_length=256", "batch_size=4", "micro_batch=4"],
    "length 64, then 128": ["then.prepare.sequence_length=128", "then.batch_size=8", "then.micro_batch=8"],
    "pairs": ["prepare.pairs=nsp", "objective=nsp"],
    "4,096 entries": ["vocab.size=4096"],
    "16,384 entries": ["vocab.size=16384"],
    "ModernBERT": ["model=modern-tiny"],
    "ModernBERT of 2 layers": ["model=modern-tiny", "model.layers=2"],
    "ModernBERT, masks 30 to 15%": ["model=modern-tiny", "objective.mask_share=[0.3,0.15]"],
    "4 layers of 96": ["model.layers=4", "model.hidden=96", "model.feed_forward=384"],
    "1 layer of 192": ["model.layers=1", "model.hidden=192", "model.feed_forward=768"],
}
THEN = "then."
ACCURACY = "masked_lm_accuracy"
PREPARE = {"pairs": "none", "sequence_length": "64", "validation_share": "0.05"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="wikiextractor", help="a name of conf/corpus")
    parser.add_argument("--path", help="corpus.path")
    parser.add_argument("--data", help="folder of BLiMP's files")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--tokens", type=float, default=1e6, help="that each row trains on")
    parser.add_argument("--vocabulary", type=int, default=8192, help="entries")
    parser.add_argument("--pairs", type=int, default=100, help="of each paradigm")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time, a core each")
    parser.add_argument("--show", action="store_true", help="print the table only")
    options = parser.parse_args()
    options.out = options.out.absolute()
    done = known(options.out)
    due = [
        name
        for name in ([] if options.show else options.rows)
        if done.get(name, {}).get("settings") != settings_of(options, name)
    ]
    for phase in (phase for name in due for phase in phases(name)):
        prepare(options, phase)
    with ProcessPoolExecutor(options.jobs) as pool:
        for future in as_completed([pool.submit(measured, options, name) for name in due]):
            row = future.result()
            with (options.out / "rows.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            done[row["name"]] = row
            print(table({row["name"]: row}), flush=True)
    print(table({name: done[name] for name in ROWS if name in done}))


def known(out: Path) -> dict[str, dict[str, Any]]:
    """Return the rows that are there by name; of several of one name the last."""
    return {row["name"]: row for row in read(out / "rows.jsonl")}


def settings_of(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return what determines a row."""
    keys = ("corpus", "path", "model", "tokens", "vocabulary", "pairs")
    return {**{key: getattr(options, key) for key in keys}, "overrides": [*BASE, *ROWS[name]]}


def phases(name: str) -> list[list[str]]:
    """Return the settings of each part of a row's training: one, or two halves."""
    words = [word for word in ROWS[name] if not word.startswith(THEN)]
    later = [word.removeprefix(THEN) for word in ROWS[name] if word.startswith(THEN)]
    return [words, [*words, *later]] if later else [words]


def prepare(options: argparse.Namespace, words: list[str]) -> None:
    """Make the vocabulary and the shards that a training reads, unless they are there."""
    vocab, prepared, shards = inputs_of(options, words)
    corpus = [f"+corpus={options.corpus}", f"corpus.path={options.path}"]
    command("vocab", *corpus, f"out={vocab}", f"size={vocab.name.split('-')[1]}")
    command(
        "prepare",
        *corpus,
        f"out={prepared}",
        f"vocab={vocab}",
        "runner.workers=1",
        *(f"{key}={value}" for key, value in shards.items()),
    )


def inputs_of(options: argparse.Namespace, words: list[str]) -> tuple[Path, Path, dict[str, str]]:
    """Return the folders of vocabulary and shards, and the settings of the shards."""
    entries = of_stage("vocab", words).get("size", str(options.vocabulary))
    shards = PREPARE | of_stage("prepare", words)
    name = f"prepare-{entries}-{shards['pairs']}-{shards['sequence_length']}"
    return options.out / f"vocab-{entries}", options.out / name, shards


def measured(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Train and score one row; return it."""
    slug, parts = re.sub("[^a-z0-9.]+", "-", name.lower()), phases(name)
    steps = [steps_of(options, words) // len(parts) for words in parts]
    folders = [options.out / f"train-{slug}{'-then' * number}" for number in range(len(parts))]
    seconds = 0.0
    for number, (words, folder) in enumerate(zip(parts, folders, strict=True)):
        vocab, prepared, _ = inputs_of(options, words)
        start = [f"start={folders[number - 1]}", "start_optimizer=true"] if number else []
        seconds += command(
            "train",
            f"out={folder}",
            f"data.dir={prepared}",
            f"data.vocab={vocab}",
            f"steps={steps[number]}",
            *training_of([f"model={options.model}", *words]),
            *start,
            f"schedule.first_step={sum(steps[:number])}",
            f"schedule.total_steps={sum(steps)}",
        )
    scored = options.out / f"evaluate-{slug}"
    command(
        "evaluate",
        "+task=blimp",
        f"data={options.data}",
        f"out={scored}",
        "baseline=false",
        f"maximum_rows={options.pairs}",
        "threads=1",
        *model_of(options, name, folders[-1], options.out / f"convert-{slug}"),
    )
    trained, pairs = [manifest(folder).figures for folder in folders], manifest(scored).figures
    return {
        "name": name,
        "settings": settings_of(options, name),
        "steps": sum(steps),
        "batch": batch_of(parts[-1]),
        "tokens": sum(figures["tokens"] for figures in trained),
        "validation": trained[-1]["validation"],
        "blimp": pairs["score"],
        "interval": pairs["interval"],
        "core_seconds": seconds,
    }


def model_of(options: argparse.Namespace, name: str, train: Path, converted: Path) -> list[str]:
    """Return the settings for the model to score; with a moving average, that is what is scored."""
    if not any(word.startswith("ema=") for word in ROWS[name]):
        return [f"pretrained={train}", "checkpoints=all"]
    vocab, _, _ = inputs_of(options, phases(name)[-1])
    command("convert", f"train={train}", f"vocab={vocab}", f"out={converted}", "ema=true")
    return [f"pretrained={converted}"]


def steps_of(options: argparse.Namespace, words: list[str]) -> int:
    """Return the steps in which a training with these settings reads the tokens."""
    totals = manifest(inputs_of(options, words)[1]).figures["totals"]
    samples = totals["train"] + totals["validation"]
    return int(options.tokens * samples / totals["tokens"] / batch_of(words))


def batch_of(words: list[str]) -> int:
    """Return the samples of a step."""
    return int(next(w for w in reversed(training_of(words)) if w[:11] == "batch_size=")[11:])


def of_stage(stage: str, words: list[str]) -> dict[str, str]:
    """Return the settings for `vocab` or `prepare`; the last of a key counts."""
    own = (word.partition(".") for word in words)
    return dict(setting.split("=") for first, _, setting in own if first == stage)


def training_of(words: list[str]) -> list[str]:
    """Return the settings for `train`, after those of all rows; the last model counts."""
    model = [word for word in words if word.startswith("model=")][-1:]
    others = ("model=", "prepare.", "vocab.")
    return [*BASE, *model, *(word for word in words if not word.startswith(others))]


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
    columns = "settings | steps | tokens | core seconds | held-out accuracy | BLiMP | 95% interval "
    lines = [heading(f"{columns}| BLiMP above chance per core-hour")]
    for name, row in rows.items():
        held_out = row["validation"]
        accuracy = held_out.get(f"average_{ACCURACY}", held_out[ACCURACY])
        low, high = row["interval"]
        gain = 100 * (row["blimp"] - 0.5) / (row["core_seconds"] / 3600)
        lines.append(
            f"| {name} | {row['steps']:,} of {row['batch']} | {row['tokens']:,} | "
            f"{row['core_seconds']:.0f} | {accuracy:.3f} | "
            f"{100 * row['blimp']:.1f} | {100 * low:.1f} to {100 * high:.1f} | {gain:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
