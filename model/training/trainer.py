"""The training loop, and training as one of the ranks."""

import contextlib
import dataclasses
import logging
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
import torch.distributed as dist

from model.config import Metrics, TrainConfig
from model.distributed import process_group
from model.encoders.batch import Batch
from model.loader.device_copy import CopiedBatch, Copier
from model.loader.loader import GlobalBatch
from model.loader.prefetch import prefetch
from model.loader.sources import ReadPlan
from model.resilience.nonfinite import Health
from model.resilience.watchdog import LEAVING, Watchdog
from model.tracking.metrics_file import swap_metrics_files
from model.tracking.tracker import Tracker
from model.training import cost, micro_batch, provenance, run_length, run_summary, setup
from model.training.checkpointer import Checkpointer
from model.training.evaluator import Evaluator
from model.training.schedule import Schedule
from model.training.setup import Run
from model.training.step_metrics import Meter, losses
from pipeline.common import counter_rng
from pipeline.errors import Restart
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Result
from pipeline.storage.uploads import BackgroundUpload

AHEAD = 4096  # approximate samples per rank to prefetch


class Trainer:
    """Training loop of one rank."""

    def __init__(self, run: Run, guard: Watchdog, store: BackgroundUpload):
        """Open the trackers of a run that is set up."""
        self.run_, self.guard = run, guard
        self.plan, self.world, self.engine, self.state = run.plan, run.world, run.engine, run.state
        self.config, self.loader, self.steps = self.plan.config, self.plan.loader, self.plan.steps
        config, world, state = self.config, self.world, self.state
        if world.rank == 0:
            swap_metrics_files(self.plan.out, self.plan.folder)
        settings = dataclasses.asdict(config) | {"world_size": world.size, "steps": self.steps}
        self.tracker = Tracker(config.tracking, self.plan.out, world.rank, state.step, self.steps, settings)
        self.meter = Meter(world.device, self._operations, run.peak)
        self.schedule = Schedule.of(config, self.steps)
        self.words = run_length.WordCounter(config, state)
        self.evaluator = Evaluator(config, self.engine, self.plan.held_out, guard.beat)
        self.checkpoints = Checkpointer(run, self.meter, self.tracker, guard, store)
        self.health = Health(config.bad_steps)
        self.stop = False  # whether any rank got a signal
        self.guard.stalled = lambda: self.tracker.alert(
            "Training stalled", f"no progress after step {state.step:,}; see the ranks' logs"
        )

    def run(self) -> Result:
        """Train to the last step; return the metrics for the report."""
        state = self.state
        for line in run_summary.announcement(self.run_, self.words):
            self.tracker.say(line)
        self.engine.train()
        self.meter.restart()
        if self.world.rank == 0 and state.sums:
            self.meter.carry(state.sums)
        self.guard.training()
        ahead = min(16, max(2, AHEAD * self.world.size // self.config.batch_size))
        if not state.step and self.config.save_at_words:
            with self.meter.paused():
                self.checkpoints.save(milestone=0.0)
        if self.config.data.cache:
            self._fetch_ahead()
        batches = prefetch(self._global_batches(), ahead)
        with contextlib.closing(batches), contextlib.closing(self.loader.source):
            self.meter.clock.lap(None)
            for batch, parts in batches:
                self.meter.clock.lap("data")
                self._update(batch, parts)
                state.step += 1
                state.samples += batch.sequences
                reached = self.words.add(batch)
                self.tracker.step_done(state.step)
                self._after_step(batch.last, reached)
                self._leave_if_due()
                self.meter.clock.lap(None)
        return self._finish()

    def _finish(self) -> Result:
        """Evaluate and save what the last step left; return the metrics for the report.

        Raises:
            InputError: A limit ended the run before its first step.
            Diverged: The held-out loss or a weight is not finite.
        """
        state = self.state
        run_length.require_steps(self.config, state.step)
        if missed := self.words.missed():
            marks = run_summary.format_marks(missed)
            self.tracker.say(f"warning: save_at_words: after {state.words:,.0f} words the run ended before {marks}")
        validation = self._evaluate()
        if validation is None:
            raise self.checkpoints.diverged("the held-out loss is not finite after the last step")
        self._save()
        self.loader.source.remove()
        if state.best_step not in (None, state.step):
            validation = state.best_figures
            self.tracker.say(f"train: the result is the checkpoint of step {state.best_step:,}, the best one held out")
        return run_summary.result_of(self.run_, validation, self.evaluator.guesses())

    def _fetch_ahead(self) -> None:
        """Begin to fetch what the remaining steps read through `data.cache`, on all ranks.

        Raises:
            ConfigError, InputError: `data.cache_size` is too small, or the folder is not writable.
        """
        sizes = [size for _, _, size in self._batches_left()]
        self.loader.source.begin(
            ReadPlan(
                run=self.plan.folder.name,
                rank=self.world.rank,
                spans=self.loader.spans,
                start=self.state.samples,
                stop=self.state.samples + sum(sizes),
                batch=max(sizes, default=1),
                gather=process_group.gather,
                beat=self.guard.beat,
            )
        )

    def _operations(self, batch: Batch) -> float:
        """Return the operations of learning from a batch on the host."""
        return cost.flops(self.plan.model, batch.cu_seqlens.diff().numpy(), self.schedule.mask_share(self.state.step))

    def _leave_if_due(self) -> None:
        """Save and leave if a rank got a signal or training diverged.

        Raises:
            Restart: A rank got a signal, or shards cannot be fetched.
            StoreError: The store refuses shards.
            Diverged: Too many updates in a row were not finite.
        """
        if self.health.limit_reached:
            self.tracker.alert("Training diverged", f"after step {self.state.step:,}; see its log")
            raise self.health.divergence_error(str(self._save()))
        if self.stop:
            self._save()
            if failure := self.loader.source.failure:
                raise failure
            signal = self.guard.signal or "another rank's signal"
            self.tracker.alert("Training stopped", f"{signal}, saved after step {self.state.step:,}")
            raise Restart(
                f"rank {self.world.rank}: {signal}, saved after step {self.state.step:,}",
                "rerun the same command to resume",
            )

    def _global_batches(self) -> Iterator[tuple[GlobalBatch, list[CopiedBatch]]]:
        """Yield this rank's part of every remaining batch, its copies to the device started."""
        copy, world, config = Copier(self.world.device), self.world, self.config
        drawn = (
            self.loader.batch(first, size, world.rank, world.size, config.micro_batch, self.schedule.mask_share(step))
            for step, first, size in self._batches_left()
        )
        for batch in self.words.until_limit(drawn):
            yield batch, [copy(part) for part in batch.batches]

    def _batches_left(self) -> Iterator[tuple[int, int, int]]:
        """Return step, first sample and size of every batch up to the last step or epoch."""
        epochs = self.config.epochs
        most = math.inf if epochs is None else epochs * self.loader.samples
        return self.schedule.batches(self.state.step, self.state.samples, most)

    def _update(self, batch: GlobalBatch, parts: list[CopiedBatch]) -> None:
        """Run forward, backward and one optimizer step over a global batch."""
        config, state = self.config, self.state
        # Dropout also depends on the position only: a resumed run draws the same masks.
        torch.manual_seed(int(counter_rng.key(config.seed, "dropout", state.step, self.world.rank) >> 1))
        rate = config.optimizer.learning_rate * self.schedule.lr_factor(state.step)
        self.engine.set_lr(rate)
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            self.meter.count(part.host)
            micro = part.ready()
            masked_logits, pair_logits = self.engine(micro)
            masked, pair, sums = losses(masked_logits, pair_logits, micro)
            loss = masked / max(batch.masked, 1)
            if config.objective.next_sentence:
                loss = loss + pair / batch.sequences
            self.meter.clock.lap("forward")
            self.engine.backward(loss, last)
            self.meter.clock.lap("backward")
            if last:
                leave = self.guard.signal is not None or self.loader.source.failure is not None
                self.stop = process_group.any_rank(leave)
            self.engine.step()
            self.meter.clock.lap("step")
            self.meter.add(sums)
            self.guard.beat()
        self.meter.rate = rate
        state.skipped += not self.engine.was_applied
        warning = self.health.record(self.engine.was_applied, state.step + 1, state.samples, batch.sequences)
        if warning is not None:
            self.tracker.say(f"warning: {warning}")

    def _after_step(self, last: bool, reached: list[float]) -> None:
        """Log, evaluate and save if due after an update."""
        config, step = self.config, self.state.step
        if step % config.log_every == 0 or last:
            self._log()
        if step % config.evaluate_every == 0 and not last:
            with self.meter.paused():
                self._evaluate()
        if len(reached) > 1:
            marks = run_summary.format_marks(reached)
            self.tracker.say(f"warning: save_at_words: one step reached {marks}; kept as the last")
        if reached or self.state.best_step == step or (self.checkpoints.is_due(step) and not last):
            with self.meter.paused():
                self._save(max(reached, default=None))
        if step % config.log_every == 0:
            self.meter.restart()

    def _log(self) -> None:
        """Pass the figures since the last row to the trackers."""
        state = self.state
        figures = self.meter.read(self.config.objective.next_sentence)
        state.tokens += int(figures.pop("tokens"))
        figures |= {"samples": state.samples, "tokens": state.tokens}
        if state.words is not None:
            figures["words"] = state.words
        figures["skipped_steps"] = state.skipped
        norm, scale = self.engine.grad_norm, self.engine.loss_scale
        if math.isfinite(norm):
            figures["gradient_norm"] = norm
        if scale is not None:
            figures["loss_scale"] = scale
        self.tracker.log_metrics("train", state.step, figures)

    def _evaluate(self) -> Metrics | None:
        """Evaluate on held-out samples, the average of the weights too; None: it is not finite."""
        state, metrics = self.state, self.evaluator.evaluate()
        finite = all(map(math.isfinite, metrics.values()))
        self.tracker.log_metrics("validation", state.step, metrics if finite else {})
        shown = ", ".join(f"{key.replace('_', ' ')} {value:.4f}" for key, value in metrics.items())
        self.tracker.say(f"step {state.step:,}: held-out {shown if finite else 'loss not finite'}")
        if self.config.keep_best and finite and provenance.is_better(metrics, state.best_figures):
            state.best = {"step": state.step, **metrics}
        return metrics if finite else None

    def _save(self, milestone: float | None = None) -> Path:
        """Have a checkpoint of this step; skipped updates keep those before, which may be the good ones."""
        prune = not self.health.consecutive_skips
        return self.checkpoints.save(milestone, prune, wait=self.stop or self.health.limit_reached)


def train(
    config: TrainConfig, out: Path, fingerprint: str, common: str, store: BackgroundUpload, addresses: Mapping[str, str]
) -> Result:
    """Train as one of the ranks, resuming from the newest checkpoint of `fingerprint`, if any.

    `common` is a hash of the inputs and of the settings that every step depends on, by which the
    first steps of another training in `out` are recognised as this one's. The ranks share checkpoints
    as `store` says. `addresses` are where the shards of local
    folders come from, for `data.cache`.

    Raises:
        ConfigError, InputError: Settings, shards, vocabulary or checkpoints do not match.
        Restart: A rank got a signal or lost its peers; the state is saved if possible.
        Diverged: Too many updates in a row were not finite.
    """
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    rank = int(os.environ.get("RANK", "0"))
    # Longer than the start timeout: waiting for peers raises an error of its own.
    guard = Watchdog(rank, config.start_timeout + LEAVING, config.watchdog, config.heartbeat)
    try:
        plan = setup.plan_training(config, out, fingerprint, common, addresses)
        run = setup.restore(*setup.join_ranks(plan, guard.starting), store, guard.beat)
        trainer = Trainer(run, guard, store)
        with contextlib.closing(trainer.tracker):
            result = trainer.run()
    except Exception as error:
        guard.leaving()  # it stays: a signal or a hang must not spoil the exit code
        failure = micro_batch.classify_failure(error, config, rank, checkpoint_folder.folder_of(out, fingerprint))
        if failure is not None:
            raise failure from error
        raise
    dist.destroy_process_group()
    guard.close()
    return result
