"""What training and fine-tuning will take, counted in operations and divided by a measured rate.

PyTorch is not imported here: a dry run answers at once.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

import numpy as np
import numpy.typing as npt

from model.config import ModelConfig, TrainConfig
from model.tracking.metrics_file import read_metrics
from model.training import cost, probe, run_length
from model.training.schedule import retention_of, share_at
from pipeline.common import cores
from pipeline.errors import InputError
from pipeline.records import estimate
from pipeline.records.checkpoint_folder import read_field
from pipeline.records.estimate import Estimate
from pipeline.records.manifest import Manifest
from pipeline.records.metrics import CorpusCounts, TrainingSummary

REACHED = 0.5  # share of the speed of plain matrix products that a step reaches, where not known
START = 6.0  # seconds until the first step: PyTorch, DeepSpeed, the shards, the first save
STEP = 0.015  # seconds of a step besides its operations: the optimizer, Python, many small kernels
FILLED = 0.9  # share of a sequence that is real tokens, where the shards are not there yet
VOCABULARY = 30522  # entries, where they are not known yet
STATE = 16  # bytes of memory per parameter: weights, gradient, two moments, in fp32
SAVED = 12  # bytes of a checkpoint per parameter
AVERAGE = 4  # bytes per parameter of a moving average, in memory and in a checkpoint
WEIGHTS = 4  # bytes of a converted model per parameter
PROCESS = 0.8e9  # bytes of memory of a rank besides


def processor(size: int = 1024, seconds: float = 0.15) -> float:
    """Return the operations per second of fp32 matrix products on all cores of this process.

    The best of many, as other programs may use the cores too. Counting cores would not do: two are
    often one with two threads.
    """
    from threadpoolctl import threadpool_limits  # only the trainer image has it

    matrix = np.ones((size, size), np.float32)
    best, until = float("inf"), time.perf_counter() + seconds
    with threadpool_limits(cores.available()):
        while best == float("inf") or time.perf_counter() < until:  # at least once
            began = time.perf_counter()
            matrix @ matrix
            best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


def memory_of(model: ModelConfig) -> float:
    """Return the bytes of memory that a process takes which fine-tunes a model, but for its batches."""
    return STATE * cost.parameters(model) + PROCESS


def memory_of_training(config: TrainConfig, model: ModelConfig, length: float, ranks: int) -> float:
    """Return the bytes of memory of a rank, with a checkpoint's tensors until they are written; ZeRO divides none."""
    setting = replace(cost.Setting.of(config, model, 1), offload=False)  # to where it is anyway
    tokens = cost.micro_batch(config, ranks, cost.tokens_on_a_cpu(model), length) * length
    saved = SAVED * cost.parameters(model)
    return PROCESS + cost.state_bytes(setting) + saved + tokens * cost.token_bytes(setting)


def mean_length(folder: str, sequence_length: int) -> tuple[float, int]:
    """Return the tokens of an instance on average and their number, by the shards' manifest.

    The number is 0 if they are not there yet.
    """
    try:
        manifest = Manifest.read(folder)
    except InputError:
        manifest = None
    counts = CorpusCounts.of(manifest) if manifest is not None else CorpusCounts()
    mean = counts.mean_length
    return (FILLED * sequence_length, 0) if mean is None else (mean, sum(counts.lengths.values()))


def sample_cost(config: TrainConfig, model: ModelConfig, sequence_lengths: Mapping[str, int]) -> tuple[float, float]:
    """Return the tokens of a sample and the operations to train on it, on average over a training."""
    data = config.data
    expected = [sequence_lengths.get(str(Path(folder)), 128) for folder in data.folders]
    lengths, counts = zip(*(mean_length(*each) for each in zip(data.folders, expected, strict=True)), strict=True)
    shares = data.weights or counts
    if not all(shares):  # not known yet
        shares = [1] * len(lengths)
    masked = fmean(share_at(config.objective.mask_shares, step, 100) for step in range(100))
    work = [cost.flops(model, [length], masked) for length in lengths]
    return float(np.average(lengths, weights=shares)), float(np.average(work, weights=shares))


def estimate_training(
    config: TrainConfig,
    model: ModelConfig,
    speed: float | None,
    ranks: int = 1,
    done: int = 0,
    sequence_lengths: Mapping[str, int] = {},
    core_count: int | None = 0,
    gpu: float | None = None,
) -> Estimate:
    """Return the estimate of the steps after `done`, of a model whose size is known.

    `speed` is the operations per second of matrix products on each of `ranks`, None: those of this CPU;
    `sequence_lengths` are those of folders whose shards are not there yet; `core_count` is that of
    this CPU for the run, None: the time cannot be known here; `gpu` is what a GPU reaches, if its hours are asked for.
    """
    length, work = sample_cost(config, model, sequence_lengths)
    steps = run_length.expected_steps(config, length)
    if steps is None:
        return Estimate(None, about=f"as many steps as epochs={config.epochs} allow")
    samples = (steps - done) * config.batch_size
    whole = sum(mean_length(folder, 1)[1] for folder in config.data.folders)
    limits = {"words": config.words, "epochs": config.epochs if whole else None}  # which allow what the shards have
    ends = [f"{key}={limit:,}" for key, limit in limits.items() if limit]
    why = f" ({' and '.join(ends)} allow no more)" if ends and steps < (config.steps or steps + 1) else ""
    why += f", fewer if epochs={config.epochs} end them before" if config.epochs and not whole else ""
    passes = f", {steps * config.batch_size / whole:,.1f} passes over the text" if whole else ""
    work, seconds, each = work * samples, None, work / length  # ranks on one machine share its cores
    if core_count is not None:
        reached = estimate.rate_of(config.workdir, "train") or probe.speed_of(core_count, ranks, each)
        seconds = work / (reached or REACHED * (speed or processor() / ranks)) / ranks
        seconds += START + (0 if reached else STEP * (steps - done))  # a rate that was measured includes those
    saved = (SAVED + AVERAGE * (config.ema is not None)) * retention_of(config, steps).count(steps)
    return Estimate(
        seconds=seconds,
        disk=saved * cost.parameters(model),
        memory=memory_of_training(config, model, length, ranks) * ranks,
        about=f"{steps - done:,} steps{why}, {samples * length / 1e6:,.1f} M tokens{passes}",
        gpu_hours=None if gpu is None else work / gpu / 3600,
    )


def remember(config: TrainConfig) -> None:
    """Keep the operations per second that each rank reached, for the estimates of later runs."""
    rows = [row for row in read_metrics(Path(config.out)) if "samples_per_second" in row]
    manifest = Manifest.read(config.out)
    if manifest is None or not rows:
        return
    summary = TrainingSummary.of(manifest)
    model = read_field(Path(config.out, summary.checkpoint or ""), "model")  # with all its sizes
    if model is None:
        return
    _, work = sample_cost(config, ModelConfig(**model), {})
    rate = median(row["samples_per_second"] for row in rows)
    estimate.remember_rate(config.workdir, "train", work * rate / summary.world_size)


def tuning_flops(model: ModelConfig, epochs: int, runs: int, train: npt.ArrayLike, dev: npt.ArrayLike) -> float:
    """Return the operations of fine-tuning `runs` times on sequences of these lengths."""
    once = [cost.flops(model, lengths, 0.0) for lengths in (train, dev)]
    return runs * epochs * (once[0] + once[1] / 3)  # the dev set is not learnt from
