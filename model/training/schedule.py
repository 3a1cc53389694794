"""What changes over the steps: the learning rate and the batch size."""

import math

from model.config import ScheduleConfig


def length(config: ScheduleConfig, steps: int) -> int:
    """Updates of the whole schedule, of which a run makes `steps` from `first_step` on."""
    return config.total_steps or config.first_step + steps


def warmup_steps(config: ScheduleConfig, steps: int) -> int:
    """Updates until the peak."""
    return max(1, round(config.warmup_share * length(config, steps)))


def lr_factor(config: ScheduleConfig, step: int, steps: int) -> float:
    """The share of the peak learning rate that update `step` (from 0) of `steps` uses."""
    total, warmup = length(config, steps), warmup_steps(config, steps)
    step += config.first_step
    if step < warmup:
        return (step + 1) / warmup
    begin = warmup
    if config.name == "wsd":
        begin = max(begin, total - max(1, round(config.decay_share * total)))
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
    """Samples of update `step` (from 0) of `steps`: rising in a line to `full`, then `full`."""
    if config.first_batch is None:
        return full
    rising = config.batch_share * length(config, steps)
    progress = min(1.0, (step + config.first_step) / rising) if rising else 1.0
    return round(config.first_batch + (full - config.first_batch) * progress)
