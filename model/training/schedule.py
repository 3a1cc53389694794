"""Schedules of the learning rate and the batch size."""

import math
from collections.abc import Iterator

from model.config import ObjectiveConfig, ScheduleConfig


def length(config: ScheduleConfig, steps: int) -> int:
    """Return the updates of the whole schedule; a run makes `steps` of them from `first_step`."""
    return config.total_steps or config.first_step + steps


def spread(config: ScheduleConfig, steps: int) -> int:
    """Return the updates that shares of all of `steps` are spread over."""
    return min(steps, config.spread_steps or steps)


def warmup_steps(config: ScheduleConfig, steps: int) -> int:
    """Return the number of updates until the peak."""
    if config.warmup_steps is not None:
        return max(1, config.warmup_steps)
    return max(1, round(config.warmup_share * spread(config, length(config, steps))))


def steps_before_decay(config: ScheduleConfig, steps: int) -> int:
    """Return the updates of a run of `steps` before the decay of wsd; 0 for other schedules."""
    return max(0, decay_start(config, steps) - config.first_step) if config.name == "wsd" else 0


def decay_start(config: ScheduleConfig, steps: int) -> int:
    """Return the updates of the whole schedule before its decay, those of warm-up included."""
    total, warmup = length(config, steps), warmup_steps(config, steps)
    if config.name != "wsd":
        return warmup
    return max(warmup, total - max(1, round(config.decay_share * total)))


def lr_factor(config: ScheduleConfig, step: int, steps: int) -> float:
    """Return the share of the peak learning rate for update `step` (from 0) of `steps`."""
    total, warmup = length(config, steps), warmup_steps(config, steps)
    step += config.first_step
    if step < warmup:
        return (step + 1) / warmup
    begin = decay_start(config, steps)
    progress = min(1.0, max(0, step - begin) / max(1, total - begin))
    left: float = {
        "constant": 1.0,
        "linear": 1 - progress,
        "polynomial": (1 - progress) ** config.power,
        "cosine": (1 + math.cos(math.pi * progress)) / 2,
        "wsd": 1 - progress**0.5 if config.decay == "sqrt" else (1 - progress) ** config.power,
    }[config.name]
    return config.final_share + (1 - config.final_share) * left


def batch_size(config: ScheduleConfig, full: int, step: int, steps: int) -> int:
    """Return the samples of update `step` (from 0) of `steps`: a linear increase up to `full`."""
    if config.first_batch is None:
        return full
    rising = config.batch_share * spread(config, length(config, steps))
    progress = min(1.0, (step + config.first_step) / rising) if rising else 1.0
    return round(config.first_batch + (full - config.first_batch) * progress)


def batches(
    config: ScheduleConfig, full: int, step: int, steps: int, first: int, most: float
) -> Iterator[tuple[int, int, int]]:
    """Yield step, first sample and size of every batch from `step` on, up to `steps` or `most` samples."""
    for number in range(step, steps):
        size = batch_size(config, full, number, steps)
        if first + size > most:
            return
        yield number, first, size
        first += size


def mask_share(objective: ObjectiveConfig, config: ScheduleConfig, step: int, steps: int) -> float:
    """Return the share of tokens to predict in update `step` (from 0) of `steps`."""
    return objective.share_at(step, spread(config, steps))
