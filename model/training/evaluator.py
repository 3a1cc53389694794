"""Held-out losses and accuracies of a training, and how good guesses are."""

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch

from model.config import Metrics, TrainConfig
from model.loader.loader import Loader
from model.training import provenance
from model.training.engine import Engine
from model.training.step_metrics import Meter, losses
from pipeline.records.metrics import BITS


class Evaluator:
    """Evaluation on held-out samples; neither they nor their masks depend on the ranks, which all take part."""

    def __init__(self, config: TrainConfig, engine: Engine, held_out: dict[str, Loader], beat: Callable[[], None]):
        """`held_out` has all that is evaluated as "" and each part by its name; `beat` is called for each batch."""
        self._config, self._engine, self._held_out, self._beat = config, engine, held_out, beat

    @torch.no_grad()
    def evaluate(self) -> Metrics:
        """Return losses and accuracies, those of the average of the weights too."""
        self._engine.train(False)
        metrics = self._of_weights()
        if self._config.ema is not None:
            with self._engine.averaged_weights():
                averaged = self._of_weights()
            metrics |= {f"{provenance.OF_AVERAGE}{key}": value for key, value in averaged.items()}
        self._engine.train()
        return metrics

    def _of_weights(self) -> Metrics:
        """Return losses and accuracies of the weights that the engine computes with now.

        Of several parts, those of each too: the whole is their mean, weighted by their samples.
        """
        whole, *parts = self._held_out
        if not parts:
            return self._of_part(whole)
        metrics = {name: self._of_part(name) for name in parts}
        samples = [self._held_out[name].samples for name in parts]
        mean = {
            key: float(np.average([metrics[name][key] for name in parts], weights=samples)) for key in metrics[parts[0]]
        }
        return mean | {f"{name}_{key}": value for name, each in metrics.items() for key, value in each.items()}

    def _of_part(self, name: str) -> Metrics:
        config, world, loader = self._config, self._engine.world, self._held_out[name]
        meter, count = Meter(world.device), self._count(loader)
        for first in range(0, count, config.batch_size):
            size = min(config.batch_size, count - first)
            part = loader.batch(first, size, world.rank, world.size, config.micro_batch)
            for one in part.batches:
                micro = one.to(world.device)
                masked_logits, pair_logits = self._engine(micro)
                meter.add(losses(masked_logits, pair_logits, micro)[2], finite_only=False)
                self._beat()
        figures = meter.read(config.objective.next_sentence)
        metrics = {key: figures[key] for key in figures if key.endswith(("loss", "accuracy"))}
        mean = self._bytes_per_mask[name]
        if mean and "masked_lm_loss" in metrics:
            metrics[BITS] = metrics["masked_lm_loss"] / math.log(2) / mean
        return metrics

    def _count(self, loader: Loader) -> int:
        """Return the samples that are evaluated."""
        return min(self._config.evaluate_samples, loader.samples)

    @cached_property
    def _bytes_per_mask(self) -> dict[str, float]:
        """Return by part how many bytes of text its masked tokens are on average: the same in every step."""
        return {name: one.bytes_per_mask(self._count(one)) for name, one in self._held_out.items()}

    def guesses(self) -> tuple[float, float]:
        """Return the accuracy of the most frequent token, and of the more frequent kind of pair."""
        return self._held_out[""].most_frequent_shares(self._count(self._held_out[""]))
