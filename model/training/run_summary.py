"""The lines that a training prints when it starts, and the one when it ends."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from model.config import ModelConfig, TrainConfig
from model.training import estimate
from model.training.schedule import warmup_steps
from pipeline.common.formatting import pluralize

if TYPE_CHECKING:
    from model.training.deepspeed_engine import World


def lines(
    config: TrainConfig, model: ModelConfig, engine: Any, world: "World", peak: float, step: int, steps: int
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
