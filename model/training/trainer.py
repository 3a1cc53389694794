"""The training loop, and training as one of the ranks."""

import contextlib
import dataclasses
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from model.config import TrainConfig
from model.encoders.architectures import build_model
from model.encoders.batch import Batch
from model.encoders.encoder import PretrainingModel
from model.loader.device_copy import Copied, Copier, prefetch
from model.loader.loader import GlobalBatch, Loader, ShardFiles
from model.loader.shard_cache import Reading, ShardCache
from model.resilience import process_group, rank_card
from model.resilience.nonfinite import Health
from model.resilience.watchdog import LEAVING, Watchdog
from model.training import (
    checkpoint,
    cost,
    device_peak,
    estimate,
    extending,
    history,
    initial_weights,
    micro_batch,
    run_length,
)
from model.training.deepspeed_engine import (
    averaged_weights,
    build_engine,
    compiles,
    gather_state,
    load_state,
    restore_scale,
    scale_of,
    start_world,
)
from model.training.history import OF_AVERAGE
from model.training.run_length import WordsSeen
from model.training.schedule import batch_size, lr_factor, steps_before_decay, warmup_steps
from model.training.step_metrics import Meter, losses
from model.training.tracking import Tracker, read_metrics, take_back
from pipeline.common import checkpoints, counter_rng
from pipeline.common.errors import BY_FORCE, Diverged, InputError, Restart
from pipeline.common.figures import TrainingSummary
from pipeline.common.formatting import pluralize
from pipeline.common.manifest import Result
from pipeline.common.stores.background_upload import CheckpointStore
from pipeline.tokenization.wordpiece import WordPiece

AHEAD = 4096  # approximate samples per rank to prefetch


class Trainer:
    """Training loop of one rank."""

    def __init__(
        self,
        config: TrainConfig,
        out: Path,
        fingerprint: str,
        common: str,
        guard: Watchdog,
        store: CheckpointStore | None = None,
        addresses: Mapping[str, str] = {},
    ):
        self.config, self.out, self.guard = config, out, guard
        self.began, self.earlier = time.monotonic(), 0.0  # seconds of earlier starts
        self.store = store or CheckpointStore()
        self.fingerprint = fingerprint
        shards = ShardFiles(config.data)
        self.data = shards.checksum()
        wordpiece = self.wordpiece = WordPiece.load(config.data.vocab)
        held_out = ShardFiles(config.data.held_out)
        longest = max(shards.sequence_length, held_out.sequence_length)
        self.model_config = initial_weights.fitted(config, wordpiece, longest)
        self.cache = ShardCache(config.data, addresses) if config.data.cache else None
        self.loader = Loader(config.data, config.objective, wordpiece, config.seed, "train", self.cache)
        found = {"": config.data.held_out, **config.data.held_out_parts}
        self.held_out = {
            name: Loader(data, config.objective, wordpiece, config.seed, "validation") for name, data in found.items()
        }
        self.folder = checkpoints.runs(out) / checkpoints.run_name(fingerprint)
        card = rank_card.describe(config, fingerprint)
        self.world = start_world(card, config.threads, config.start_timeout, config.timeout)
        if config.data.verify and self.cache is None:  # it compares what it fetches
            rank, size = self.world.rank, self.world.size
            for files in (shards, held_out) if config.data.validation else (shards,):
                files.verify(rank, size, process_group.gather, guard.starting)
        self.config = config = micro_batch.resolved(config, self.model_config, self.world, longest)
        micro_batch.forget(self.folder)
        self.health = Health(config.bad_steps)
        self.step = self.samples = self.tokens = 0
        self.words = WordsSeen(config, self.loader.words_per_token is not None)
        self.steps = run_length.steps_of(config)
        self.first_steps = extending.FirstSteps(config, self.steps, common)
        self.scale: dict[str, float | None] = {}  # of the checkpoint that is resumed
        self.carried = 0  # updates of the optimizer before this run
        self.saved = -1  # the step of the newest checkpoint
        self.best: dict[str, float] = {}  # with `keep_best`, its step and held-out figures
        self.compared = False  # whether what is saved was compared with the model's weights
        self.stop = False  # whether any rank got a signal
        self.peak = device_peak.tflops(self.world.device, config.precision)
        self.engine = self._start()
        settings = dataclasses.asdict(config) | {"world_size": self.world.size, "steps": self.steps}
        if self.world.rank == 0:
            take_back(out, self.folder)
        self.tracker = Tracker(config.tracking, out, self.world.rank, self.step, self.steps, settings)
        self.guard.stalled = lambda: self.tracker.alert(
            "Training stalled", f"no progress after step {self.step:,}; see the ranks' logs"
        )

    def _start(self) -> Any:
        """Build the engine and load the newest checkpoint, if any."""
        torch.manual_seed(int(counter_rng.key(self.config.seed, "initialise") >> 1))
        module = build_model(self.model_config)
        before = self._fill(module)
        module.encoder.recompute = self.config.compute.recompute
        if compiles(self.config, self.world):
            precision = device_peak.TYPES[self.config.precision]
            module.encoder.compile_layers(self.world.device, precision)
        engine = build_engine(module, self.config, self.world)
        if before is not None:
            load_state(engine, *before)
            restore_scale(engine.optimizer, self.scale)
        return engine

    def _fill(self, module: PretrainingModel) -> tuple[checkpoint.Tensors, int] | None:
        """Load weights from the newest checkpoint or from `start`, if any.

        Returns the tensors with the optimizer's moments and the number of updates applied to them.
        """
        if self.store.get is None:
            process_group.check_shared_folder(self.folder, self.config.timeout)
        needs_words = bool(self.config.words or self.config.save_at_words)
        own = None
        if self.world.rank == 0:
            own = extending.newest(self.folder, self.first_steps, self.data, needs_words)
        self.store.upload(self.guard.beat)  # other nodes fetch what this one may have alone
        sent = process_group.broadcast_from_rank0(own and (str(own[0]), dataclasses.asdict(own[1])))
        if sent is not None:
            path, state = Path(sent[0]), checkpoints.State(**sent[1])
            self.store.fetch(path.relative_to(self.out))
            if state.data != self.data:
                raise InputError(
                    f"trained on other shards than those now in {', '.join(self.config.data.folders)}; restore them, "
                    f"or retrain {BY_FORCE}",
                    "data",
                    path=path,
                )
            self.step, self.samples, self.tokens = state.step, state.samples, state.tokens
            self.words.resume(state.words, path)
            self.earlier = state.seconds
            self.saved, self.health.skipped = state.step, state.skipped
            self.carried, self.scale, self.best = state.carried, state.loss_scale, state.best
            tensors = checkpoint.Tensors(path)
            module.load_state_dict({n: tensors.weight(n) for n, _ in module.named_parameters()})
            return tensors, state.updates
        if self.config.start is not None:
            source = initial_weights.start(self.config.start, self.model_config, self.wordpiece)
            module.load_state_dict(source.state)
            if self.config.start_optimizer:
                path, state = source.checkpoint()
                self.carried = state.updates
                return checkpoint.Tensors(path), state.updates
        return None

    def run(self) -> Result:
        """Train to the last step; return the metrics for the report."""
        self._announce()
        self.engine.train()
        meter = self._meter()
        self.guard.training()
        ahead = min(16, max(2, AHEAD * self.world.size // self.config.batch_size))
        if not self.step and self.config.save_at_words:
            with meter.paused():
                self._save(meter, mark=0.0)
        if self.cache is not None:
            self._fetch_ahead(self.cache)
        with prefetch(self._global_batches(), ahead) as batches, contextlib.closing(self.loader):
            meter.clock.skip()
            for batch, parts in batches:
                meter.clock.lap("data")
                self._update(batch, parts, meter)
                self.step += 1
                self.samples += batch.sequences
                reached = self.words.add(batch)
                self.tracker.advance()
                self._after_step(meter, batch.last, reached)
                self._leave_if_due(meter)
                meter.clock.skip()
        self.words.check_end(self.step, self.tracker.say)
        validation = self._evaluate()
        if validation is None:
            raise self._diverged("the held-out loss is not finite after the last step")
        self._save(meter)
        self.loader.remove_cache()
        return self._result(validation)

    def _fetch_ahead(self, cache: ShardCache) -> None:
        """Begin to fetch what the remaining steps read through `data.cache`, on all ranks.

        Raises:
            ConfigError, InputError: `data.cache_size` is too small, or the folder is not writable.
        """
        config = self.config
        sizes = [batch_size(config.schedule, config.batch_size, n, self.steps) for n in range(self.step, self.steps)]
        stop = self.samples + sum(sizes)
        if config.epochs is not None:
            stop = min(stop, config.epochs * self.loader.samples)
        cache.begin(
            Reading(
                run=self.folder.name,
                rank=self.world.rank,
                spans=self.loader.spans,
                start=self.samples,
                stop=stop,
                batch=max(sizes, default=1),
                gather=process_group.gather,
                beat=self.guard.beat,
            )
        )

    def _meter(self) -> Meter:
        """Return a meter that computes MFU."""
        objective = self.config.objective

        def work(batch: Batch) -> float:
            lengths = batch.cu_seqlens.diff().numpy()
            share = objective.share_at(self.step, self.steps)
            return cost.operations(self.model_config, lengths, share)

        return Meter(self.world, work, self.peak)

    def _leave_if_due(self, meter: Meter) -> None:
        """Save and leave if a rank got a signal or training diverged.

        Raises:
            Restart: A rank got a signal, or shards cannot be fetched.
            StoreError: The store refuses shards.
            Diverged: Too many updates in a row were not finite.
        """
        if self.health.limit_reached:
            self.tracker.alert("Training diverged", f"after step {self.step:,}; see its log")
            raise self.health.divergence_error(str(self._save(meter)))
        if self.stop:
            self._save(meter)
            if failure := self.loader.failure:
                raise failure
            signal = self.guard.signal or "another rank's signal"
            self.tracker.alert("Training stopped", f"{signal}, saved after step {self.step:,}")
            raise Restart(
                f"rank {self.world.rank}: {signal}, saved after step {self.step:,}", "rerun the same command to resume"
            )

    def _global_batches(self) -> Iterator[tuple[GlobalBatch, list[Copied]]]:
        """Yield this rank's part of every remaining batch, its copies to the device started."""
        copy = Copier(self.world.device)
        for batch in self.words.until_limit(self._drawn_batches()):
            yield batch, [copy(part) for part in batch.batches]

    def _drawn_batches(self) -> Iterator[GlobalBatch]:
        """Yield this rank's part of every batch up to the last step or epoch."""
        world, config, start = self.world, self.config, self.samples
        for step in range(self.step, self.steps):
            size = batch_size(config.schedule, config.batch_size, step, self.steps)
            if config.epochs is not None and start + size > config.epochs * self.loader.samples:
                return
            share = config.objective.share_at(step, self.steps)
            yield self.loader.batch(start, size, world.rank, world.size, config.micro_batch, share)
            start += size

    def _update(self, batch: GlobalBatch, parts: list[Copied], meter: Meter) -> None:
        """Run forward, backward and one optimizer step over a global batch."""
        config, world = self.config, self.world
        # Dropout also depends on the position only: a resumed run draws the same masks.
        torch.manual_seed(int(counter_rng.key(config.seed, "dropout", self.step, world.rank) >> 1))
        rate = config.optimizer.learning_rate * lr_factor(config.schedule, self.step, self.steps)
        for group in self.engine.optimizer.param_groups:
            group["lr"] = rate
        # DeepSpeed averages over ranks and over the micro-batches of a full batch, but the loss is
        # a mean over this batch.
        scale = world.size * self.engine.gradient_accumulation_steps()
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            self.engine.set_gradient_accumulation_boundary(last)
            meter.count(part.host)
            micro = part.ready()
            masked_logits, pair_logits = self.engine(micro)
            masked, pair, sums = losses(masked_logits, pair_logits, micro)
            loss = masked / max(batch.masked, 1)
            if config.objective.next_sentence:
                loss = loss + pair / batch.sequences
            meter.clock.lap("forward")
            self.engine.backward(loss * scale)
            meter.clock.lap("backward")
            if last:
                leave = self.guard.signal is not None or self.loader.failure is not None
                self.stop = process_group.any_rank(leave)
            self.engine.step()
            meter.clock.lap("step")
            meter.add(sums)
            self.guard.beat()
        meter.rate = rate
        applied = self.engine.was_step_applied()
        trouble = self.health.record(applied, self.step + 1, self.samples, batch.sequences)
        if trouble is not None:
            self.tracker.say(f"warning: {trouble}")

    def _after_step(self, meter: Meter, last: bool, reached: list[float]) -> None:
        """Log, evaluate and save if due after `self.step` updates."""
        config = self.config
        if self.step % config.log_every == 0 or last:
            figures = meter.read(config.objective.next_sentence)
            self.tokens += int(figures.pop("tokens"))
            figures |= {"samples": self.samples, "tokens": self.tokens}
            if self.words.count is not None:
                figures["words"] = self.words.count
            figures["skipped_steps"] = self.health.skipped
            norm = float(self.engine.get_global_grad_norm())
            if math.isfinite(norm):
                figures["gradient_norm"] = norm
            if config.precision == "fp16":
                figures["loss_scale"] = float(self.engine.optimizer.loss_scale)
            self.tracker.log("train", self.step, figures)
        if self.step % config.evaluate_every == 0 and not last:
            with meter.paused():
                self._evaluate()
        if len(reached) > 1:
            marks = ", ".join(f"{mark:,.0f}" for mark in reached)
            self.tracker.say(f"warning: save_at_words: one step reached {marks}; kept as the last")
        is_best = self.best.get("step") == self.step
        if reached or is_best or (self.step % config.save_every == 0 and not last):
            with meter.paused():
                self._save(meter, max(reached, default=None))
        if self.step % config.log_every == 0:
            meter.restart()

    def _announce(self) -> None:
        """Print a summary of the run."""
        other = checkpoints.other_settings(self.folder) if not self.step else None
        if other is not None:
            self.tracker.say(
                f"train: keeping the checkpoints of other settings ({other}); this training starts "
                "at step 0, as its first steps differ. To resume the other one, restore its "
                "settings; to train it for longer, keep its steps of warm-up and its share of "
                "masks, too"
            )
        marks = map(checkpoints.mark_of, checkpoints.steps(self.folder).values())
        self.words.say_passed({mark for mark in marks if mark is not None}, self.tracker.say)
        self.tracker.say(f"train: {self._summary()}")
        whole = dataclasses.replace(self.config, steps=self.steps)
        expected = estimate.training(whole, self.model_config, self.peak * 1e12, self.world.size, self.step)
        if expected.worth_saying:
            self.tracker.say(f"train: {expected}")

    def _summary(self) -> str:
        """Say what is trained and how."""
        config, engine, world = self.config, self.engine, self.world
        done = f", resumed after step {self.step:,}" if self.step else ""
        count = sum(getattr(p, "ds_numel", p.numel()) for p in engine.module.parameters())
        # On a shared CPU the measured peak is too low, which inflates MFU.
        passes = self.steps * config.batch_size / self.loader.samples
        best = "(measured under current load)" if world.device.type == "cpu" else "peak"
        batches = pluralize(engine.gradient_accumulation_steps(), "micro-batch", "es")
        return (
            f"{self.model_config.name}, {count:,} parameters, {world.size} x {world.device.type}, "
            f"{config.precision}, ZeRO stage {engine.zero_optimization_stage()}, {self.steps:,} "
            f"steps of {config.batch_size} samples ({batches} per rank), {passes:.1f} passes over the text, "
            f"{warmup_steps(config.schedule, self.steps):,} of them warm-up, {self.peak:.3g} TFLOP/s per "
            f"device {best}{done}"
        )

    def _evaluate(self) -> dict[str, float] | None:
        """Evaluate on held-out samples, the average of the weights too; None: it is not finite."""
        found = self._held_out_figures()
        finite = all(map(math.isfinite, found.values()))
        self.tracker.log("validation", self.step, found if finite else {})
        shown = ", ".join(f"{key.replace('_', ' ')} {value:.4f}" for key, value in found.items())
        self.tracker.say(f"step {self.step:,}: held-out {shown if finite else 'loss not finite'}")
        if self.config.keep_best and finite and found["loss"] < self.best.get("loss", math.inf):
            self.best = {"step": self.step, **found}
        return found if finite else None

    @torch.no_grad()
    def _held_out_figures(self) -> dict[str, float]:
        """Return losses and accuracies on held-out samples, of the average of the weights too.

        Samples and masks do not depend on the number of ranks; all ranks take part.
        """
        self.engine.eval()
        found = self._figures_of_weights()
        if self.config.ema is not None:
            with averaged_weights(self.engine):
                averaged = self._figures_of_weights()
            found |= {f"{OF_AVERAGE}{key}": value for key, value in averaged.items()}
        self.engine.train()
        return found

    def _figures_of_weights(self) -> dict[str, float]:
        """Return losses and accuracies of the weights that the engine computes with now, of each named part too."""
        parts = {name and f"{name}_": self._figures_of(loader) for name, loader in self.held_out.items()}
        return {f"{name}{key}": value for name, found in parts.items() for key, value in found.items()}

    def _figures_of(self, loader: Loader) -> dict[str, float]:
        config, world = self.config, self.world
        meter = Meter(world)
        count = min(config.evaluate_samples, loader.samples)
        for start in range(0, count, config.batch_size):
            size = min(config.batch_size, count - start)
            part = loader.batch(start, size, world.rank, world.size, config.micro_batch)
            for one in part.batches:
                micro = one.to(world.device)
                masked_logits, pair_logits = self.engine(micro)
                meter.add(losses(masked_logits, pair_logits, micro)[2], finite_only=False)
                self.guard.beat()
        figures = meter.read(config.objective.next_sentence)
        return {key: figures[key] for key in figures if key.endswith(("loss", "accuracy"))}

    def _diverged(self, what: str) -> Diverged:
        """Return the error that ends a run without saving what is not finite."""
        self.tracker.alert("Training diverged", f"after step {self.step:,}; see its log")
        last = self.folder / checkpoints.name_of(self.saved)
        kept = "no checkpoint was saved" if self.saved < 0 else f"the last checkpoint is {last}"
        return Diverged(f"{what}; {kept}. Lower optimizer.learning_rate, or inspect the data")

    def _save(self, meter: Meter, mark: float | None = None) -> Path:
        """Save a checkpoint: all ranks gather, rank 0 writes; return its path."""
        if self.saved == self.step:
            return self.folder / checkpoints.name_of(self.step)
        try:
            weights, moments = gather_state(self.engine, compare=not self.compared)
        except FloatingPointError as error:
            raise self._diverged(f"{error} after step {self.step:,}") from error
        self.saved, self.compared = self.step, True
        tokens = self.tokens + meter.tokens()
        self.guard.beat()
        if self.world.rank == 0:
            state = checkpoints.State(
                step=self.step,
                samples=self.samples,
                tokens=tokens,
                skipped=self.health.skipped,
                carried=self.carried,
                words=self.words.count,
                seconds=self.earlier + time.monotonic() - self.began,
                loss_scale=scale_of(self.engine.optimizer, self.config.precision),
                best=self.best,
                mark=mark,
                fingerprint=self.fingerprint,
                model=dataclasses.asdict(self.model_config),
                data=self.data,
                tokenizer=self.wordpiece.sha256,
                first_steps=self.first_steps.hash_of(self.step),
            )
            self.store.uploads.wait(self.guard.beat)  # at most one checkpoint is not there yet
            path = checkpoint.write(self.folder, state, weights, moments)
            if not self.health.row:  # else those before may be the good ones
                stable = steps_before_decay(self.config.schedule, self.steps)
                checkpoints.prune(path, self.config.keep, self.config.keep_every, stable, self.best.get("step"))
            self.tracker.saved()
            self.store.upload(self.guard.beat, wait=self.stop or self.health.limit_reached)
        dist.barrier()
        self.guard.beat()
        return self.folder / checkpoints.name_of(self.step)

    def _result(self, validation: dict[str, float]) -> Result:
        """Return the run's metrics for the manifest; each accuracy has its baseline."""
        if self.world.rank == 0:
            for warning in history.overfitting(read_metrics(self.out)):
                self.tracker.say(f"warning: {warning}")
        if self.best and self.best["step"] != self.step:
            validation = {key: value for key, value in self.best.items() if key != "step"}
            self.tracker.say(
                f"train: the result is the checkpoint of step {self.best['step']:,}, the best held-out loss"
            )
        path = self.folder / checkpoints.name_of(int(self.best.get("step", self.step)))
        pairs = "next_sentence_accuracy" in validation
        summary = TrainingSummary(
            steps=self.step,
            planned_steps=self.steps,
            samples=self.samples,
            samples_per_epoch=self.loader.samples,
            tokens=self.tokens,
            words=self.words.count,
            validation=validation,
            most_frequent_accuracy=self.held_out[""].most_frequent_share(),
            most_frequent_pair_accuracy=self.held_out[""].most_frequent_pair_share() if pairs else None,
            world_size=self.world.size,
            device=self.world.device.type,
            checkpoint=str(path.relative_to(self.out)),
        )
        return Result(summary=summary.line, figures=summary.to_json(), earlier=self.earlier)


def train(
    config: TrainConfig,
    out: Path,
    fingerprint: str,
    common: str,
    store: CheckpointStore | None = None,
    addresses: Mapping[str, str] | None = None,
) -> Result:
    """Train as one of the ranks, resuming from the newest checkpoint of `fingerprint`, if any.

    `common` is a hash of the inputs and of the settings that every step depends on, by which the
    first steps of another training in `out` are recognised as this one's. With a `store` the ranks
    share checkpoints through it, not through the folder. `addresses` are where the shards of local
    folders come from, for `data.cache`.

    Raises:
        ConfigError, InputError: Settings, shards, vocabulary or checkpoints do not match.
        Restart: A rank got a signal or lost its peers; the state is saved if possible.
        Diverged: Too many updates in a row were not finite.
    """
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    rank = int(os.environ.get("RANK", "0"))
    # Longer than the start timeout: waiting for peers raises an error of its own.
    patience = config.start_timeout + LEAVING
    guard = Watchdog(rank, patience, config.watchdog, config.heartbeat)
    try:
        trainer = Trainer(config, out, fingerprint, common, guard, store, addresses or {})
        try:
            result = trainer.run()
        finally:
            trainer.tracker.close()
    except Exception as error:
        guard.leaving()  # it stays: a signal or a hang must not spoil the exit code
        found = micro_batch.ending(error, config, rank, checkpoints.runs(out) / checkpoints.run_name(fingerprint))
        if found is not None:
            raise found from error
        raise
    dist.destroy_process_group()
    guard.close()
    return result
