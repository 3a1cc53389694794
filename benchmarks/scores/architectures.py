r"""BERT next to ModernBERT: equal text, equal tokens or equal processor time, several seeds.

    python -m benchmarks.scores.architectures --corpus jsonl --path FOLDER --out work/architectures \
      --tokens 3e6 --tasks "qnli data=GLUE epochs=3"

Both train without sentence pairs on the same shards with the same optimizer; ModernBERT masks 30 %
of the tokens in the first step and 15 % in the last. Held-out accuracy is at 15 % masks. The third
row trains ModernBERT for as long as BERT: the tokens that its own rate allows. Then each is
fine-tuned on each task. A second table has the training loss and the score after each epoch, which
show who overfits. A finished training or evaluation is not repeated, so the command resumes.
"""

import argparse
import json
import shlex
import statistics
import sys
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.data.prepare import measure
from benchmarks.shared import heading, mean
from pipeline.records.manifest import require_manifest

SHARDS = ("pairs=none", "sequence_length=128", "validation_share=0.02", "runner.workers=1")
BATCH = 16
COMMON = shlex.split(
    f"batch_size={BATCH} micro_batch={BATCH} optimizer=muon clip=null optimizer.learning_rate=5e-3 "
    "optimizer.adam_share=0.4 optimizer.betas=[0.9,0.98] schedule=wsd schedule.warmup_share=0.05 "
    "schedule.decay=sqrt schedule.decay_share=0.4 model.dropout=0 model.attention_dropout=0 deepspeed=zero0 "
    "processes=1 threads=1 keep=1 log_every=50 evaluate_every=1000000 save_every=1000000 tracking=none"
)
OBJECTIVES = {"": ["objective=mlm"], "modern-": ["objective=modern", "objective.mask_share=[0.3,0.15]"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="wikiextractor", help="a name of conf/corpus")
    parser.add_argument("--path", help="corpus.path")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", default="mini", help="a name of conf/model without modern-")
    parser.add_argument("--tokens", type=float, default=3e6)
    parser.add_argument("--vocabulary", type=int, default=8192, help="entries")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="*", default=[], help="name and keys of evaluate")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time, a core each")
    options = parser.parse_args()
    options.out = options.out.absolute()
    corpus = [f"+corpus={options.corpus}", f"corpus.path={options.path}"]
    command("vocab", *corpus, f"out={options.out}/vocab", f"size={options.vocabulary}")
    command("prepare", *corpus, f"out={options.out}/prepare", f"vocab={options.out}/vocab", *SHARDS)
    names = ["model", "tokens", "core seconds", "held-out accuracy", *(task.split()[0] for task in options.tasks)]
    print(heading(" | ".join(names)), flush=True)
    with ProcessPoolExecutor(options.jobs) as pool:
        equal = {kind: submitted(pool, options, kind, options.tokens) for kind in OBJECTIVES}
        bert, modern = (show(f"{kind}{options.size}", rows) for kind, rows in equal.items())
        again = submitted(pool, options, "modern-", options.tokens * modern / bert)
        show(f"modern-{options.size}", again)
        found = {f"{kind}{options.size}": rows for kind, rows in equal.items()}
        found[f"modern-{options.size}, equal time"] = again
    for task in (each.split()[0] for each in options.tasks):
        print(f"\n{task}: training loss, score after each epoch")
        for name, futures in found.items():
            print(by_epoch(name, [future.result()["epochs"][task] for future in futures]))


def submitted(pool: Executor, options: argparse.Namespace, kind: str, tokens: float) -> list[Future[dict[str, Any]]]:
    """Train a model once per seed, in processes that count their processor time alone."""
    return [pool.submit(measured, options, kind, tokens, seed) for seed in options.seeds]


def show(name: str, futures: list[Future[dict[str, Any]]]) -> float:
    """Print the line of a model over all seeds; return its tokens per core second."""
    rows = [future.result() for future in futures]
    print(line(name, rows), flush=True)
    return float(statistics.mean(row["tokens"] / row["core_seconds"] for row in rows))


def measured(options: argparse.Namespace, kind: str, tokens: float, seed: int) -> dict[str, Any]:
    """Train one model, fine-tune it on all tasks, and return its figures."""
    vocab, prepared = options.out / "vocab", options.out / "prepare"
    totals = figures_of(prepared)["totals"]
    samples = totals["train"] + totals["validation"]
    steps = round(tokens * samples / totals["tokens"] / BATCH)
    folder = options.out / f"{kind}{options.size}-{steps}-seed{seed}"
    seconds = folder / "core_seconds.json"
    spent = command(
        "train",
        f"out={folder}/train",
        f"data.dir={prepared}",
        f"data.vocab={vocab}",
        f"model={kind}{options.size}",
        f"steps={steps}",
        f"seed={seed}",
        *COMMON,
        *OBJECTIVES[kind],
    )
    if not seconds.exists():
        seconds.write_text(json.dumps(spent))
    command("convert", f"train={folder}/train", f"vocab={vocab}", f"out={folder}/convert")
    figures = figures_of(folder / "train")
    scores = {"accuracy": figures["validation"]["masked_lm_accuracy"]}
    epochs = {}
    for task, *keys in map(str.split, options.tasks):
        out = folder / f"evaluate-{task}"
        command(
            "evaluate",
            f"+task={task}",
            f"pretrained={folder}/convert",
            f"out={out}",
            f"seeds=[{seed}]",
            "baseline=false",
            "threads=1",
            *keys,
        )
        tuned = figures_of(out)
        scores[task] = tuned["score"]
        epochs[task] = [(epoch["train_loss"], epoch["scores"][tuned["metric"]]) for epoch in tuned["runs"][0]["epochs"]]
    return {
        "tokens": figures["tokens"],
        "core_seconds": json.loads(seconds.read_text()),
        "scores": scores,
        "epochs": epochs,
    }


def command(stage: str, *overrides: str) -> float:
    """Run a stage unless it is up to date; return the seconds of processor time that it took."""
    return measure([sys.executable, "-m", f"pipeline.{stage}", *overrides]).cpu


def figures_of(folder: Path) -> dict[str, Any]:
    """Return the figures of a finished stage."""
    return require_manifest(folder, folder.name.split("-")[0], "out").figures


def line(name: str, rows: list[dict[str, Any]]) -> str:
    """Return one line: the mean and the standard deviation over seeds."""
    cells = [f"{rows[0]['tokens']:,}", f"{statistics.mean(r['core_seconds'] for r in rows):.0f}"]
    cells += [mean([row["scores"][key] for row in rows]) for key in rows[0]["scores"]]
    return f"| {' | '.join([name, *cells])} |"


def by_epoch(name: str, runs: list[list[tuple[float, float]]]) -> str:
    """Return one line: training loss and score of each epoch, means over seeds."""
    cells = []
    for epoch in zip(*runs, strict=True):
        loss, score = (statistics.mean(values) for values in zip(*epoch, strict=True))
        cells.append(f"{loss:.3f}, {score:.3f}")
    return f"| {' | '.join([name, *cells])} |"


if __name__ == "__main__":
    main()
