r"""Trainings that tables, recipes and the law of `hours=` rest on: one line of JSON each, losers too.

    nice -n 19 python -m benchmarks.records.run FOLDER --corpora TEXTS --design first

Each row of a design (design.yaml) is trained as a user would: `vocab`, `prepare`, `train` with one
thread. TEXTS has a folder per corpus, with WORDS.jsonl to learn from and held_out.jsonl, other
documents (`benchmarks.records.corpora`). A row whose line is there is skipped, and an interrupted training resumes.
All is about tokens and parameters, so it may run at the same time as other work; seconds are those of the processor.
"""

import argparse
import json
import os
import platform
import resource
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from benchmarks.shared import read
from model.config import ModelConfig
from model.tracking.metrics_file import read_metrics
from model.training import cost, probe
from model.training.density import Sample
from pipeline.records.checkpoint_folder import read_field
from pipeline.records.manifest import require_manifest
from pipeline.records.metrics import BITS, CorpusCounts, TrainingSummary

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
Row = dict[str, Any]
OF_THE_MACHINE = ("out", "workdir", "mirror", "tracking", "force", "data", "heartbeat")
PRELOADED = ("deepspeed", "model.training.trainer", "deepspeed.runtime.zero.muon.original_muon", "pipeline.beam.steps")
COMMON = (
    "objective=mlm objective.mask_share=[0.3,0.15] optimizer=muon clip=null optimizer.adam_share=0.4 "
    "optimizer.betas=[0.9,0.98] schedule=wsd schedule.warmup_share=0.05 schedule.decay=sqrt schedule.decay_share=0.5 "
    "deepspeed=zero0 processes=1 threads=1 keep=1 log_every=50 save_every=200 tracking=none evaluate_samples=1000"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where vocabularies, shards and trainings go")
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--design", required=True, help="a name in design.yaml")
    options = parser.parse_args()
    options.corpora = options.corpora.absolute()
    options.folder.mkdir(parents=True, exist_ok=True)
    for module in PRELOADED:
        import_module(module)
    os.chdir(options.folder)
    lines = HERE / f"{options.design}.jsonl"
    for row in rows_of(options.design):
        if row["name"] not in {made["name"] for made in read(lines)}:
            record = trained(row, options.corpora)
            with lines.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            print(f"{row['name']}: {record[BITS]:.4f}, {record['processor_seconds']:.0f} s", flush=True)


def rows_of(design: str) -> list[Row]:
    """Return the rows of a design, each with all keys and its name."""
    columns, *rows = yaml.safe_load((HERE / "design.yaml").read_text(encoding="utf-8"))[design]
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    return [row | {"name": "-".join(map(str, row.values()))} for row in found]


def trained(row: Row, corpora: Path) -> Row:
    """Train one row and return its record."""
    corpus, words, entries, length = (row[key] for key in ("corpus", "words", "entries", "length"))
    texts, base = corpora / corpus, f"{corpus}-{words}-{entries}"
    shards, held_out, out = f"{base}/{length}", f"{base}/{length}-held-out", f"trainings/{row['name']}"
    learn = ("+corpus=jsonl", f"corpus.name={corpus}", f"corpus.path={texts}/{words}.jsonl")
    command("vocab", *learn, f"out={base}/vocab", f"size={entries}")
    common = (f"vocab={base}/vocab", "pairs=none", f"sequence_length={length}", "runner.workers=1")
    command("prepare", *learn, *common, f"out={shards}", "validation_share=0")
    path = f"corpus.path={texts}/held_out.jsonl"
    command("prepare", *learn[:2], path, *common, f"out={held_out}", "validation_share=1")
    counts = CorpusCounts.of(require_manifest(Path(shards), "prepare", "out"))
    batch = row["tokens_a_step"] // length
    steps = max(20, round(counts.train * row["readings"] / batch))
    layers, hidden = map(int, row["size"].split("x"))
    modern = row["architecture"] == "modern"
    shape = probe.shape(layers, hidden) | ({} if modern else {"feed_forward": 4 * hidden})
    spent = command(
        "train",
        f"out={out}",
        f"data.dir={shards}",
        f"data.validation=[{held_out}]",
        f"data.vocab={base}/vocab",
        f"model={'modern-tiny' if modern else 'tiny'}",
        *(f"model.{key}={value}" for key, value in shape.items()),
        f"model.dropout={row['dropout']}",
        f"model.attention_dropout={row['dropout']}",
        f"steps={steps}",
        f"batch_size={batch}",
        f"micro_batch={batch}",
        f"optimizer.learning_rate={row['rate']}",
        f"evaluate_every={max(1, steps // 4)}",
        f"seed={row['seed']}",
        *COMMON.split(),
    )
    row |= density_of(texts / f"{words}.jsonl", texts / "held_out.jsonl")
    return record_of(row, Path(out), counts, spent)


def density_of(*paths: Path) -> Row:
    """Return the density of a text, as plans measure it, whose last file is held out."""
    sample = Sample()
    for order, path in enumerate(reversed(paths)):
        for row in read(path):
            sample.add(row["text"], bytes([order]))
    found = sample.density()
    return {"density": round(found.bits, 4), "bytes_a_usual_token": round(found.token, 4)} if found else {}


def record_of(row: Row, out: Path, counts: CorpusCounts, spent: float) -> Row:
    """Return what is kept of a training."""
    manifest = require_manifest(out, "train", "out")
    summary = TrainingSummary.of(manifest)
    model = ModelConfig(**read_field(out / str(summary.checkpoint), "model"))
    held = [each for each in read_metrics(out) if each["kind"] == "validation" and BITS in each]
    tokens = summary.tokens / summary.steps
    return row | {
        "commit": git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "model") else ""),
        "machine": f"{processor()}, 1 thread",
        "parameters": cost.parameters(model),
        "work": cost.flops(model, [row["length"]], 0.2) / row["length"],
        "words_counted": round(counts.train_words),
        "tokens_once": sum(length * count for length, count in counts.lengths.items()),
        "tokens": summary.tokens,
        "steps": summary.steps,
        "seconds": round(summary.seconds, 1),
        "processor_seconds": round(spent, 1),
        "bytes_a_token": round(summary.validation["masked_lm_loss"] / summary.validation[BITS] / 0.6931472, 4),
        BITS: round(summary.validation[BITS], 5),
        "accuracy": round(summary.validation["masked_lm_accuracy"], 5),
        "curve": [[round(each["step"] * tokens), round(each[BITS], 4)] for each in held],
        "settings": {key: value for key, value in manifest.config.items() if key not in OF_THE_MACHINE},
    }


def command(stage: str, *words: str) -> float:
    """Run a stage in a child forked from this process, unless it is up to date; return its seconds of processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not (child := os.fork()):
        code = 1
        try:
            log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.argv = [f"pipeline.{stage}", *words]
            runpy.run_module(f"pipeline.{stage}", run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            print(end.code or "", file=sys.stderr)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise SystemExit(f"{stage} {' '.join(words)}: exit code {code}; see log.txt")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def processor() -> str:
    """Return the kind of processor."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


if __name__ == "__main__":
    main()
