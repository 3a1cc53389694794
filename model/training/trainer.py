"""The training loop, and training as one of the ranks."""

import contextlib
import dataclasses
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from model.config import Metrics, TrainConfig
from model.distributed import process_group
from model.encoders.batch import Batch
from model.loader.device_copy import CopiedBatch, Copier
from model.loader.loader import GlobalBatch
from model.loader.prefetch import prefetch
from model.loader.shard_cache import ReadPlan
from model.resilience.nonfinite import Health
from model.resilience.watchdog import LEAVING, Watchdog
from model.tracking.metrics_file import read_metrics, swap_metrics_files
from model.tracking.tracker import Tracker
from model.training import checkpoint, cost, estimate, micro_batch, provenance, run_length, start
from model.training.deepspeed_engine import averaged_weights, gather_state, scale_of
from model.training.schedule import Schedule
from model.training.start import Session
from model.training.step_metrics import SUMS, Meter, losses
from pipeline.common import counter_rng
from pipeline.console.formatting import WARNING, pluralize
from pipeline.errors import Diverged, Restart
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Result
from pipeline.records.metrics import BITS, TrainingSummary
from pipeline.storage.uploads import BackgroundUpload

AHEAD = 4096  # approximate samples per rank to prefetch


class Trainer:
    """Training loop of one rank."""

    def __init__(self, session: Session, guard: Watchdog, store: BackgroundUpload):
        """Restore the state and open the trackers."""
        self.guard, self.store = guard, store
        plan, world, self.peak = session
        self.engine, self.word_counter, state, resumed = start.restore(session, store, guard.beat)
        self.plan, self.world, self.state = plan, world, state
        self.config, self.loader, self.steps = plan.config, plan.loader, plan.steps
        self.schedule = Schedule.of(plan.config, plan.steps)
        if world.rank == 0:
            swap_metrics_files(plan.out, plan.folder)
        settings = dataclasses.asdict(plan.config) | {"world_size": world.size, "steps": plan.steps}
        self.tracker = Tracker(plan.config.tracking, plan.out, world.rank, state.step, plan.steps, settings)
        self.meter = Meter(world.device, self._operations, self.peak)
        self.step, self.samples, self.tokens = state.step, state.samples, state.tokens
        self.health = Health(self.config.bad_steps, state.skipped)
        self.saved = state.step if resumed else -1  # the step of the newest checkpoint
        self.best = state.best  # with `keep_best`, its step and held-out figures
        self.compared = False  # whether what is saved was compared with the model's weights
        self.stop = False  # whether any rank got a signal
        self.guard.stalled = lambda: self.tracker.alert(
            "Training stalled", f"no progress after step {self.step:,}; see the ranks' logs"
        )

    def run(self) -> Result:
        """Train to the last step; return the metrics for the report."""
        self._announce()
        self.engine.train()
        self.meter.restart()
        if self.world.rank == 0 and self.state.sums:
            self.meter.carry(self.state.sums)
        self.guard.training()
        ahead = min(16, max(2, AHEAD * self.world.size // self.config.batch_size))
        if not self.step and self.config.save_at_words:
            with self.meter.paused():
                self._save(mark=0.0)
        if self.config.data.cache:
            self._fetch_ahead()
        batches = prefetch(self._global_batches(), ahead)
        with contextlib.closing(batches), contextlib.closing(self.loader.source):
            self.meter.clock.lap(None)
            for batch, parts in batches:
                self.meter.clock.lap("data")
                self._update(batch, parts)
                self.step += 1
                self.samples += batch.sequences
                reached = self.word_counter.add(batch)
                self.tracker.step_done(self.step)
                self._after_step(batch.last, reached)
                self._leave_if_due()
                self.meter.clock.lap(None)
        self.word_counter.check_end(self.step, self.tracker.say)
        validation = self._evaluate()
        if validation is None:
            raise self._diverged("the held-out loss is not finite after the last step")
        self._save()
        self.loader.source.remove()
        return self._result(validation)

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
                start=self.samples,
                stop=self.samples + sum(sizes),
                batch=max(sizes, default=1),
                gather=process_group.gather,
                beat=self.guard.beat,
            )
        )

    def _operations(self, batch: Batch) -> float:
        """Return the operations of learning from a batch on the host."""
        return cost.flops(self.plan.model, batch.cu_seqlens.diff().numpy(), self.schedule.mask_share(self.step))

    def _leave_if_due(self) -> None:
        """Save and leave if a rank got a signal or training diverged.

        Raises:
            Restart: A rank got a signal, or shards cannot be fetched.
            StoreError: The store refuses shards.
            Diverged: Too many updates in a row were not finite.
        """
        if self.health.limit_reached:
            self.tracker.alert("Training diverged", f"after step {self.step:,}; see its log")
            raise self.health.divergence_error(str(self._save()))
        if self.stop:
            self._save()
            if failure := self.loader.source.failure:
                raise failure
            signal = self.guard.signal or "another rank's signal"
            self.tracker.alert("Training stopped", f"{signal}, saved after step {self.step:,}")
            raise Restart(
                f"rank {self.world.rank}: {signal}, saved after step {self.step:,}", "rerun the same command to resume"
            )

    def _global_batches(self) -> Iterator[tuple[GlobalBatch, list[CopiedBatch]]]:
        """Yield this rank's part of every remaining batch, its copies to the device started."""
        copy, world, config = Copier(self.world.device), self.world, self.config
        drawn = (
            self.loader.batch(first, size, world.rank, world.size, config.micro_batch, self.schedule.mask_share(step))
            for step, first, size in self._batches_left()
        )
        for batch in self.word_counter.until_limit(drawn):
            yield batch, [copy(part) for part in batch.batches]

    def _batches_left(self) -> Iterator[tuple[int, int, int]]:
        """Return step, first sample and size of every batch up to the last step or epoch."""
        config = self.config
        most = math.inf if config.epochs is None else config.epochs * self.loader.samples
        return self.schedule.batches(self.step, self.samples, most)

    def _update(self, batch: GlobalBatch, parts: list[CopiedBatch]) -> None:
        """Run forward, backward and one optimizer step over a global batch."""
        config, world = self.config, self.world
        # Dropout also depends on the position only: a resumed run draws the same masks.
        torch.manual_seed(int(counter_rng.key(config.seed, "dropout", self.step, world.rank) >> 1))
        rate = config.optimizer.learning_rate * self.schedule.lr_factor(self.step)
        for group in self.engine.optimizer.param_groups:
            group["lr"] = rate
        # DeepSpeed averages over ranks and over the micro-batches of a full batch, but the loss is
        # a mean over this batch.
        scale = world.size * self.engine.gradient_accumulation_steps()
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            self.engine.set_gradient_accumulation_boundary(last)
            self.meter.count(part.host)
            micro = part.ready()
            masked_logits, pair_logits = self.engine(micro)
            masked, pair, sums = losses(masked_logits, pair_logits, micro)
            loss = masked / max(batch.masked, 1)
            if config.objective.next_sentence:
                loss = loss + pair / batch.sequences
            self.meter.clock.lap("forward")
            self.engine.backward(loss * scale)
            self.meter.clock.lap("backward")
            if last:
                leave = self.guard.signal is not None or self.loader.source.failure is not None
                self.stop = process_group.any_rank(leave)
            self.engine.step()
            self.meter.clock.lap("step")
            self.meter.add(sums)
            self.guard.beat()
        self.meter.rate = rate
        applied = self.engine.was_step_applied()
        warning = self.health.record(applied, self.step + 1, self.samples, batch.sequences)
        if warning is not None:
            self.tracker.say(f"warning: {warning}")

    def _after_step(self, last: bool, reached: list[float]) -> None:
        """Log, evaluate and save if due after `self.step` updates."""
        config = self.config
        if self.step % config.log_every == 0 or last:
            figures = self.meter.read(config.objective.next_sentence)
            self.tokens += int(figures.pop("tokens"))
            figures |= {"samples": self.samples, "tokens": self.tokens}
            if self.word_counter.count is not None:
                figures["words"] = self.word_counter.count
            figures["skipped_steps"] = self.health.skipped
            norm = float(self.engine.get_global_grad_norm())
            if math.isfinite(norm):
                figures["gradient_norm"] = norm
            if config.precision == "fp16":
                figures["loss_scale"] = float(self.engine.optimizer.loss_scale)
            self.tracker.log_metrics("train", self.step, figures)
        if self.step % config.evaluate_every == 0 and not last:
            with self.meter.paused():
                self._evaluate()
        if len(reached) > 1:
            marks = ", ".join(f"{mark:,.0f}" for mark in reached)
            self.tracker.say(f"warning: save_at_words: one step reached {marks}; kept as the last")
        is_best = self.best.get("step") == self.step
        # The checkpoint at the beginning of a decay is what a longer training continues from.
        due = any(every and self.step % every == 0 for every in (config.save_every, config.keep_every))
        due = due or self.step == self.schedule.steps_before_decay
        if reached or is_best or (due and not last):
            with self.meter.paused():
                self._save(max(reached, default=None))
        if self.step % config.log_every == 0:
            self.meter.restart()

    def _announce(self) -> None:
        """Print a summary of the run."""
        other = checkpoint_folder.other_settings(self.plan.folder) if not self.step else None
        if other is not None:
            self.tracker.say(
                f"train: keeping the checkpoints of other settings ({other}); this training starts "
                "at step 0, as its first steps differ. To resume the other one, restore its "
                "settings; to train it for longer, keep its steps of warm-up, its share of "
                "masks and, with keep_best, what is evaluated, too; keep_best=true itself compares all "
                "evaluations from the first on, so leave it out to keep what is trained"
            )
        data = self.config.data
        if data.validation and (unread := self.plan.shards[0].held_out_folders() - set(map(Path, data.validation))):
            self.tracker.say(
                f"warning: what prepare held out of {', '.join(sorted(map(str, unread)))} is not read; name the folder "
                "in data.validation too, or prepare with validation_share=0"
            )
        for text in self.plan.shards[0].warnings:
            self.tracker.say(f"warning: {text}")
        marks = map(checkpoint_folder.milestone_words, checkpoint_folder.steps(self.plan.folder).values())
        self.word_counter.say_passed({mark for mark in marks if mark is not None}, self.tracker.say)
        self.tracker.say(f"train: {self._summary()}")
        ends = run_length.expected_steps(self.config, self.plan.longest) or self.steps
        if ends < run_length.NEAR * self.steps:
            self.tracker.say(
                f"warning: ends after about {ends:,} of {self.steps:,} steps, as `words` or `epochs` allow no more: "
                "its schedule will not end"
            )
        expected = estimate.estimate_training(
            self.config, self.plan.model, self.peak * 1e12, self.world.size, self.step
        )
        if expected.worth_saying:
            self.tracker.say(f"train: {expected}")

    def _summary(self) -> str:
        """Say what is trained and how."""
        config, engine, world = self.config, self.engine, self.world
        done = f", resumed after step {self.step:,}" if self.step else ""
        count = sum(getattr(p, "ds_numel", p.numel()) for p in engine.module.parameters())
        kept = sum(weight.numel() for weight in engine.frozen.values())
        frozen = f" ({kept:,} of them frozen)" if kept else ""
        # On a shared CPU the measured peak is too low, which inflates MFU.
        passes = self.steps * config.batch_size / self.loader.samples
        best = "(measured under current load)" if world.device.type == "cpu" else "peak"
        batches = pluralize(engine.gradient_accumulation_steps(), "micro-batch", "es")
        return (
            f"{self.plan.model.name}, {count:,} parameters{frozen}, {world.size} x {world.device.type}, "
            f"{config.precision}, ZeRO stage {engine.zero_optimization_stage()}, {self.steps:,} "
            f"steps of {config.batch_size} samples ({batches} per rank), "
            f"{self.schedule.warmup_steps:,} of them warm-up, {passes:.1f} passes over the text, "
            f"{self.peak:.3g} TFLOP/s per device {best}{done}"
        )

    def _evaluate(self) -> Metrics | None:
        """Evaluate on held-out samples, the average of the weights too; None: it is not finite."""
        found = self._held_out_figures()
        finite = all(map(math.isfinite, found.values()))
        self.tracker.log_metrics("validation", self.step, found if finite else {})
        shown = ", ".join(f"{key.replace('_', ' ')} {value:.4f}" for key, value in found.items())
        self.tracker.say(f"step {self.step:,}: held-out {shown if finite else 'loss not finite'}")
        if self.config.keep_best and finite and provenance.is_better(found, self.best):
            self.best = {"step": self.step, **found}
        return found if finite else None

    @torch.no_grad()
    def _held_out_figures(self) -> Metrics:
        """Return losses and accuracies on held-out samples, of the average of the weights too.

        Samples and masks do not depend on the number of ranks; all ranks take part.
        """
        self.engine.eval()
        found = self._figures_of_weights()
        if self.config.ema is not None:
            with averaged_weights(self.engine):
                averaged = self._figures_of_weights()
            found |= {f"{provenance.OF_AVERAGE}{key}": value for key, value in averaged.items()}
        self.engine.train()
        return found

    def _figures_of_weights(self) -> Metrics:
        """Return losses and accuracies of the weights that the engine computes with now.

        Of several parts, those of each too: the whole is their mean, weighted by their samples.
        """
        whole, *parts = self.plan.held_out
        if not parts:
            return self._figures_of(whole)
        found = {name: self._figures_of(name) for name in parts}
        samples = [self.plan.held_out[name].samples for name in parts]
        mean = {
            key: float(np.average([found[name][key] for name in parts], weights=samples)) for key in found[parts[0]]
        }
        return mean | {f"{name}_{key}": value for name, each in found.items() for key, value in each.items()}

    def _figures_of(self, name: str) -> Metrics:
        config, world, loader = self.config, self.world, self.plan.held_out[name]
        meter = Meter(world.device)
        count = min(config.evaluate_samples, loader.samples)
        for first in range(0, count, config.batch_size):
            size = min(config.batch_size, count - first)
            part = loader.batch(first, size, world.rank, world.size, config.micro_batch)
            for one in part.batches:
                micro = one.to(world.device)
                masked_logits, pair_logits = self.engine(micro)
                meter.add(losses(masked_logits, pair_logits, micro)[2], finite_only=False)
                self.guard.beat()
        figures = meter.read(config.objective.next_sentence)
        found = {key: figures[key] for key in figures if key.endswith(("loss", "accuracy"))}
        mean = self.bytes_per_mask[name]
        if mean and "masked_lm_loss" in found:
            found[BITS] = found["masked_lm_loss"] / math.log(2) / mean
        return found

    @cached_property
    def bytes_per_mask(self) -> dict[str, float]:
        """Return by held-out part how many bytes of text its masked tokens are on average: the same in every step."""
        held_out, most = self.plan.held_out, self.config.evaluate_samples
        return {name: one.bytes_per_mask(min(most, one.samples)) for name, one in held_out.items()}

    def _diverged(self, what: str) -> Diverged:
        """Return the error that ends a run without saving what is not finite."""
        self.tracker.alert("Training diverged", f"after step {self.step:,}; see its log")
        last = self.plan.folder / checkpoint_folder.name_of(self.saved)
        kept = "no checkpoint was saved" if self.saved < 0 else f"the last checkpoint is {last}"
        return Diverged(f"{what}; {kept}. Lower optimizer.learning_rate, or inspect the data")

    def _save(self, mark: float | None = None) -> Path:
        """Have a checkpoint of this step, and those that a rule keeps; return its path."""
        path = self.plan.folder / checkpoint_folder.name_of(self.step)
        if self.saved != self.step:
            self._write(mark)
        if self.world.rank == 0:
            if not self.health.consecutive_skips:  # else those before may be the good ones
                stable = self.schedule.steps_before_decay
                checkpoint_folder.prune(path, self.config.keep, self.config.keep_every, stable)
            self.store.upload(self.guard.beat, wait=self.stop or self.health.limit_reached)
        dist.barrier()
        self.guard.beat()
        return path

    def _write(self, mark: float | None) -> None:
        """Write a checkpoint: all ranks gather, rank 0 writes; `mark` is that of `save_at_words`."""
        try:
            weights, moments = gather_state(self.engine, compare=not self.compared)
        except FloatingPointError as error:
            raise self._diverged(f"{error} after step {self.step:,}") from error
        self.saved, self.compared = self.step, True
        sums = self.meter.totals()
        self.guard.beat()
        if self.world.rank == 0:
            self.store.wait(self.guard.beat)  # at most one checkpoint is not there yet
            state = dataclasses.replace(
                self.state,
                step=self.step,
                samples=self.samples,
                tokens=self.tokens + int(sums[SUMS.index("tokens")]),
                sums=sums,
                skipped=self.health.skipped,
                words=self.word_counter.count,
                seconds=self.state.seconds + time.monotonic() - self.plan.began,
                loss_scale=scale_of(self.engine.optimizer, self.config.precision),
                best=self.best,
                mark=mark,
                first_steps=self.plan.first_steps.hash_of(self.step),
            )
            self.tracker.before_save()
            checkpoint.write(self.plan.folder, state, weights, moments)
            self.tracker.checkpoint_saved()

    def _result(self, validation: Metrics) -> Result:
        """Return the run's metrics for the manifest; each accuracy has its baseline."""
        rows = read_metrics(self.plan.out) if self.world.rank == 0 else []
        known = [*self.plan.shards[0].warnings, *provenance.overfitting(rows)]
        warnings = "".join(f"{WARNING}{text}" for text in known)
        if self.best and self.best["step"] != self.step:
            validation = {key: value for key, value in self.best.items() if key != "step"}
            self.tracker.say(
                f"train: the result is the checkpoint of step {self.best['step']:,}, the best one held out"
            )
        path = self.plan.folder / checkpoint_folder.name_of(int(self.best.get("step", self.step)))
        held_out, pairs = self.plan.held_out[""], "next_sentence_accuracy" in validation
        token_share, pair_share = held_out.most_frequent_shares(min(self.config.evaluate_samples, held_out.samples))
        summary = TrainingSummary(
            steps=self.step,
            planned_steps=self.steps,
            samples=self.samples,
            samples_per_epoch=self.loader.samples,
            tokens=self.tokens,
            words=self.word_counter.count,
            validation=validation,
            most_frequent_accuracy=token_share,
            most_frequent_pair_accuracy=pair_share if pairs else None,
            world_size=self.world.size,
            device=self.world.device.type,
            checkpoint=str(path.relative_to(self.plan.out)),
        )
        return Result(summary=f"{summary.line}{warnings}", figures=summary.to_json(), earlier=self.state.seconds)


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
        session = start.join_ranks(start.plan_training(config, out, fingerprint, common, addresses), guard.starting)
        trainer = Trainer(session, guard, store)
        with contextlib.closing(trainer.tracker):
            result = trainer.run()
    except Exception as error:
        guard.leaving()  # it stays: a signal or a hang must not spoil the exit code
        found = micro_batch.classify_failure(
            error, config, rank, checkpoint_folder.runs(out) / checkpoint_folder.run_name(fingerprint)
        )
        if found is not None:
            raise found from error
        raise
    dist.destroy_process_group()
    guard.close()
    return result
