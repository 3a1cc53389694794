"""What a step takes on this machine: real trainings of made-up text for some seconds, remembered by machine."""

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from model.config import ModelConfig
from model.config.training import SHARE
from model.tracking.metrics_file import read_metrics
from model.training import cost, law
from pipeline.console import terminal
from pipeline.errors import Restart
from pipeline.records.manifest import Manifest, file_checksums
from pipeline.shards import ShardInfo, write_shard
from pipeline.storage import places, strict_json
from pipeline.storage.atomic import write_text
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build

ENTRIES, LENGTH, ROWS, BATCH = 4096, 64, 2048, 16  # of the text, and the samples of a step
TOKENS = round(LENGTH * law.table()["fill"])  # of a sample: the cost of a step is not that of its tokens alone
# Of plans: records of ModernBERT are far better at equal tokens.
ARCHITECTURE, MODEL = "modernbert", "modern-tiny"
SHAPES = {(1, 64): 60, (2, 128): 40, (4, 256): 10}  # layers and hidden size, and steps: seconds of two cores
SETTINGS = [f"model={MODEL}", "objective=mlm", "optimizer=muon", "clip=null", "deepspeed=zero0", "log_every=2"]
SETTINGS += [f"batch_size={BATCH}", f"micro_batch={BATCH}"]
QUIET = ["tracking=none", "evaluate_every=1000000", "save_every=1000000", "evaluate_samples=16"]
LARGER = 2  # times the operations of the largest shape up to which a rate says something
QUIET_LOAD = 0.5  # of what has begun; and half of the cores
Rates = list[tuple[float, float]]  # operations of a token, and tokens per second, by operations


def shape(layers: int, hidden: int) -> dict[str, int]:
    """Return the sizes of a ModernBERT; the published one is not as regular."""
    return {"layers": layers, "hidden": hidden, "heads": max(1, hidden // 64), "feed_forward": 3 * hidden // 2}


def model_of(layers: int, hidden: int, entries: int) -> ModelConfig:
    """Return the model of a size."""
    sizes: dict[str, Any] = {**shape(layers, hidden)}
    return ModelConfig(name=f"{layers}x{hidden}", architecture=ARCHITECTURE, vocab_size=entries, **sizes)


def operations(model: ModelConfig, length: int) -> float:
    """Return the operations of training on one token."""
    return cost.flops(model, [length], 0.225) / length


def cache_file(core_count: int) -> Path:
    """Return where the rates of this machine are kept, with a number of its cores."""
    machine = f"{platform.machine()} {platform.processor()} {platform.python_version()} {os.cpu_count()}"
    kind = f"{machine} {core_count} {MODEL} {SHAPES} {TOKENS}"
    return places.user_cache() / f"steps-{hashlib.sha256(kind.encode()).hexdigest()[:12]}.json"


def measured_rates(core_count: int, shapes: dict[tuple[int, int], int] = SHAPES) -> Rates:
    """Return the rates of this machine with a number of cores: those of an earlier call, if there was one.

    Those of a busy machine are said to be so, and measured again by the next call.

    Raises:
        Restart: a training that measures them failed; its output is on the terminal.
    """
    path = cache_file(core_count)
    if cached := strict_json.own(path).get("rates"):
        return [(work, rate) for work, rate in cached]
    load = os.getloadavg()[0]
    rates = measure(core_count, shapes)
    if busy := load > QUIET_LOAD + core_count / 2:
        terminal.say(f"warning: measured next to other programs (load {load:.1f}); alone, the machine does more")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"busy" if busy else "rates": rates}) + "\n")
    return rates


def speed_of(core_count: int, ranks: int, work: float) -> float | None:
    """Return the operations per second of each of `ranks` that train a model whose tokens take `work`.

    None where the machine was not measured with that number of cores, or with far smaller models alone.
    """
    cached = strict_json.own(cache_file(core_count))
    rates = cached.get("rates") or cached.get("busy")
    return work * rate_at(rates, work) / ranks if rates and work < LARGER * rates[-1][0] else None


def measure(core_count: int, shapes: dict[tuple[int, int], int]) -> Rates:
    """Train each shape for its steps, as a run with this number of cores does."""
    ranks = max(1, min(core_count, BATCH // SHARE))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_text_of_words(work)
        rates = []
        for (layers, hidden), steps in shapes.items():
            out = work / f"{layers}x{hidden}"
            sizes = [f"model.{key}={value}" for key, value in shape(layers, hidden).items()]
            words = [f"workdir={work}", f"out={out}", f"processes={ranks}", f"steps={steps}", *sizes]
            command = [sys.executable, "-m", "pipeline.train", *words, *SETTINGS, *QUIET]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                sys.stderr.write(done.stderr)
                raise Restart("the training that measures this machine failed", "see its output above")
            rows = [row["tokens_per_second"] for row in read_metrics(out) if row["kind"] == "train"]
            rates.append((operations(model_of(layers, hidden, ENTRIES), LENGTH), median(rows[1:])))
    return rates


def write_text_of_words(work: Path) -> None:
    """Write a vocabulary and shards of random words, as long as sentences fill samples."""
    (work / "vocab").mkdir()
    words = [f"w{number}" for number in range(ENTRIES - len(SPECIAL))]
    (work / "vocab" / "tokenizer.json").write_text(build([*SPECIAL, *words], lowercase=True))
    wordpiece, prepared = WordPiece.load(work / "vocab"), work / "prepare"
    prepared.mkdir()
    draws, tokens = np.random.default_rng(0), TOKENS - 2
    for split in ("train", "validation"):
        info = ShardInfo(
            split=split,
            pairs="none",
            tokenizer=wordpiece.sha256,
            vocab_size=wordpiece.size,
            sequence_length=LENGTH,
            seed=0,
        )
        ids = draws.integers(len(SPECIAL), ENTRIES, ROWS * tokens).astype(np.uint16)
        path, ends = prepared / f"{split}-00000-of-00001.arrow", np.arange(ROWS + 1) * tokens
        write_shard(path, info, ids, ends, np.full(ROWS, tokens), np.zeros(ROWS, bool))
    Manifest(
        stage="prepare",
        fingerprint="0" * 64,
        version=1,
        config={},
        inputs={},
        files=file_checksums(prepared, {}),
        figures={},
        summary="",
        seconds=0.0,
        finished="",
    ).write(prepared)


def rate_at(rates: Rates, work: float) -> float:
    """Return the tokens per second of a model whose tokens take `work` operations: between the measured ones.

    A smaller model is at least as fast: one that was measured slower was disturbed.
    """
    log_works, log_rates = np.log(np.array(rates)).T
    log_rates = np.maximum.accumulate(log_rates[::-1])[::-1]
    if work > rates[-1][0]:  # as many operations a second as the largest
        return float(np.exp(log_rates[-1]) * rates[-1][0] / work)
    return float(np.exp(np.interp(np.log(work), log_works, log_rates)))
