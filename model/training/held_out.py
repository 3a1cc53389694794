"""Evaluation of a training on held-out samples."""

from typing import Any

import torch

from model.config import TrainConfig
from model.loader.loader import Loader
from model.resilience.watchdog import Watchdog
from model.training.deepspeed_engine import World, averaged_weights
from model.training.history import OF_AVERAGE
from model.training.step_metrics import Meter, losses


@torch.no_grad()
def evaluate(engine: Any, loader: Loader, config: TrainConfig, world: World, guard: Watchdog) -> dict[str, float]:
    """Return losses and accuracies on held-out samples, of the average of the weights too.

    Samples and masks do not depend on the number of ranks; all ranks take part.
    """
    engine.eval()
    found = _figures(engine, loader, config, world, guard)
    if config.ema is not None:
        with averaged_weights(engine):
            averaged = _figures(engine, loader, config, world, guard)
        found |= {f"{OF_AVERAGE}{key}": value for key, value in averaged.items()}
    engine.train()
    return found


def _figures(engine: Any, loader: Loader, config: TrainConfig, world: World, guard: Watchdog) -> dict[str, float]:
    """Return losses and accuracies of the weights that the engine computes with now."""
    meter = Meter(world)
    count = min(config.evaluate_samples, loader.samples)
    for start in range(0, count, config.batch_size):
        size = min(config.batch_size, count - start)
        part = loader.batch(start, size, world.rank, world.size, config.micro_batch)
        for one in part.batches:
            micro = one.to(world.device)
            masked_logits, pair_logits = engine(micro)
            meter.add(losses(masked_logits, pair_logits, micro)[2], finite_only=False)
            guard.beat()
    figures = meter.read(config.objective.next_sentence)
    return {key: figures[key] for key in figures if key.endswith(("loss", "accuracy"))}
