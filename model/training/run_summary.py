"""The lines that a training prints when it starts, and the one when it ends."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from model.config import ModelConfig, TrainConfig
from model.loader.loader import Loader
from model.training import estimate
from model.training.schedule import warmup_steps
from pipeline.common.formatting import pluralize

if TYPE_CHECKING:
    from model.training.deepspeed_engine import World


def lines(
    config: TrainConfig,
    model: ModelConfig,
    engine: Any,
    world: "World",
    peak: float,
    step: int,
    steps: int,
) -> Iterator[str]:
    """Yield what is trained and how, and an estimate if it is long.

    `peak` is the device's TFLOP/s, `step` the number of updates done before, of `steps`.
    """
    done = f", resumed after step {step:,}" if step else ""
    count = sum(getattr(p, "ds_numel", p.numel()) for p in engine.module.parameters())
    # On a shared CPU the measured peak is too low, which inflates MFU.
    measured = world.device.type == "cpu" and config.peak_tflops is None
    best = "(measured under current load)" if measured else "peak"
    batches = pluralize(engine.gradient_accumulation_steps(), "micro-batch", "es")
    yield (
        f"train: {model.name}, {count:,} parameters, {world.size} x {world.device.type}, "
        f"{config.precision}, ZeRO stage {engine.zero_optimization_stage()}, {steps:,} "
        f"steps of {config.batch_size} samples ({batches} per rank), "
        f"{warmup_steps(config.schedule, steps):,} of them warm-up, {peak:.3g} TFLOP/s per "
        f"device {best}{done}"
    )
    expected = estimate.training(replace(config, steps=steps), model, peak * 1e12, world.size, step)
    if expected.worth_saying:
        yield f"train: {expected}"


def baselines(loader: Loader, validation: Mapping[str, float]) -> dict[str, float]:
    """Return the accuracies on held-out samples of always giving the most frequent answer."""
    found = {"most_frequent_accuracy": loader.most_frequent_share()}
    if "next_sentence_accuracy" in validation:
        found["most_frequent_pair_accuracy"] = loader.most_frequent_pair_share()
    return found


def held_out(validation: Mapping[str, float], baselines: Mapping[str, float]) -> str:
    """Return the accuracies on held-out samples, each with that of the most frequent answer."""
    if "masked_lm_accuracy" not in validation:
        shown = "held-out loss not finite"
    else:
        shown = (
            f"held-out masked-LM accuracy {validation['masked_lm_accuracy']:.3f} "
            f"(most frequent token {baselines['most_frequent_accuracy']:.3f})"
        )
    if "next_sentence_accuracy" in validation:
        shown += (
            f", next sentence {validation['next_sentence_accuracy']:.3f} "
            f"(more frequent class {baselines['most_frequent_pair_accuracy']:.3f})"
        )
    return shown
