"""Schedules of the learning rate, the batch size and the share of masks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from model.config import ScheduleConfig, TrainConfig
from pipeline.records.retention import Retention


@dataclass(frozen=True)
class Schedule:
    """What each update (from 0) of a run of `steps` is done with."""

    config: ScheduleConfig
    steps: int
    full_batch: int = 1  # samples
    mask_shares: Sequence[float] = (1.0,)  # between which the share of masks moves

    @classmethod
    def of(cls, config: TrainConfig, steps: int) -> Self:
        """Return that of a training."""
        return cls(config.schedule, steps, config.batch_size, config.objective.mask_shares)

    @cached_property
    def total(self) -> int:
        """Return the updates of the whole schedule; a run makes `steps` of them from `first_step`."""
        return self.config.total_steps or self.config.first_step + self.steps

    def spread(self, steps: int) -> int:
        """Return the updates that shares of all of `steps` are spread over."""
        return min(steps, self.config.spread_steps or steps)

    @cached_property
    def warmup_steps(self) -> int:
        """Return the number of updates until the peak."""
        if self.config.warmup_steps is not None:
            return max(1, self.config.warmup_steps)
        return max(1, round(self.config.warmup_share * self.spread(self.total)))

    @cached_property
    def steps_before_decay(self) -> int:
        """Return the updates of the run before the decay of wsd; 0 for other schedules."""
        return max(0, self.decay_start - self.config.first_step) if self.config.name == "wsd" else 0

    @cached_property
    def decay_start(self) -> int:
        """Return the updates of the whole schedule before its decay, those of warm-up included."""
        if self.config.name != "wsd":
            return self.warmup_steps
        return max(self.warmup_steps, self.total - max(1, round(self.config.decay_share * self.total)))

    def lr_factor(self, step: int) -> float:
        """Return the share of the peak learning rate."""
        config, warmup, begin = self.config, self.warmup_steps, self.decay_start
        step += config.first_step
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, max(0, step - begin) / max(1, self.total - begin))
        left: float = {
            "constant": 1.0,
            "linear": 1 - progress,
            "polynomial": (1 - progress) ** config.power,
            "cosine": (1 + math.cos(math.pi * progress)) / 2,
            "wsd": 1 - progress**0.5 if config.decay == "sqrt" else (1 - progress) ** config.power,
        }[config.name]
        return config.final_share + (1 - config.final_share) * left

    def batch_size(self, step: int) -> int:
        """Return the samples of an update: a linear increase up to all of a batch."""
        first, full = self.config.first_batch, self.full_batch
        if first is None:
            return full
        rising = self.config.batch_share * self.spread(self.total)
        progress = min(1.0, (step + self.config.first_step) / rising) if rising else 1.0
        return round(first + (full - first) * progress)

    def mask_share(self, step: int) -> float:
        """Return the share of tokens to predict."""
        return share_at(self.mask_shares, step, self.spread(self.steps))

    def batches(self, step: int, first: int, most: float) -> Iterator[tuple[int, int, int]]:
        """Yield step, first sample and size of every batch from `step` on, up to the last or `most` samples."""
        for number in range(step, self.steps):
            size = self.batch_size(number)
            if first + size > most:
                return
            yield number, first, size
            first += size


def retention_of(config: TrainConfig, steps: int) -> Retention:
    """Return which checkpoints a training writes and keeps."""
    return Retention(
        keep=config.keep,
        save_every=config.save_every,
        keep_every=config.keep_every,
        stable=Schedule.of(config, steps).steps_before_decay,
        keep_best=config.keep_best,
        marks=len(config.save_at_words),
    )


def share_at(shares: Sequence[float], step: int, steps: int) -> float:
    """Return where a line through `shares`, from the first to the last of `steps`, is in step `step` (from 0)."""
    place = min(1.0, step / max(1, steps - 1)) * (len(shares) - 1)
    before = min(int(place), len(shares) - 1)
    after = min(before + 1, len(shares) - 1)
    return float(shares[before] + (place - before) * (shares[after] - shares[before]))
