"""The training loop.

Shapes: M masked positions, V vocabulary, B sequences.
"""

import contextlib
import dataclasses
import itertools
import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from model import checkpoint, peers
from model.batch import Batch
from model.bert import BertForPreTraining
from model.config import ModelConfig, TrainConfig
from model.data import GlobalBatch, Loader, prefetch
from model.engine import World, build_engine, gather, scatter, start_world
from model.guard import Guard
from model.health import Health
from model.loss import cross_entropy
from model.optim import rate_share
from model.sources import start_weights
from model.tracking import Tracker
from pipeline import keyed, stage
from pipeline.errors import ConfigError, Restart
from pipeline.text.wordpiece import WordPiece

SUMS = ("masked_lm_loss", "masked_lm_correct", "next_sentence_loss", "next_sentence_correct",
        "masked", "sequences", "tokens")  # fmt: skip


def make(config: TrainConfig, out: Path) -> stage.Result:
    """Train from the newest checkpoint of the same settings, or from the start."""
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    rank = int(os.environ.get("RANK", "0"))
    guard = Guard(rank, config.start_timeout, config.watchdog, config.heartbeat)
    try:
        trainer = Trainer(config, out, guard)
        try:
            result = trainer.run()
        finally:
            trainer.tracker.close()
    except Exception as error:
        guard.leaving()  # it stays: a signal or a hang must not spoil the exit code
        if peers.lost(error):
            raise Restart(f"rank {rank}: lost the others ({peers.first_line(error)})") from error
        raise
    dist.destroy_process_group()
    guard.close()
    return result


class Trainer:
    """One rank's part of a run."""

    def __init__(self, config: TrainConfig, out: Path, guard: Guard):
        self.config, self.out, self.guard = config, out, guard
        self.fingerprint, _ = stage.fingerprint("train", config)
        manifest = stage.need(config.data.dir, "prepare", "data.dir")
        self.data = manifest.fingerprint
        wordpiece = WordPiece.load(config.data.vocab)
        self.model_config = fitted(config, wordpiece, manifest)
        self.loader = Loader(config.data, config.objective, wordpiece, config.seed, "train")
        self.held_out = Loader(config.data, config.objective, wordpiece, config.seed, "validation")
        self.tokenizer = wordpiece.sha256
        self.folder = checkpoint.runs(out) / self.fingerprint[:12]
        self.world = start_world(config.threads, config.start_timeout, config.timeout)
        self.health = Health(config.bad_steps)
        self.step = self.samples = self.tokens = 0
        self.saved = -1  # the step of the newest checkpoint
        self.stop = False  # whether any rank was told to stop
        self.engine = self._start()
        settings = dataclasses.asdict(config) | {"world_size": self.world.size}
        self.tracker = Tracker(
            config.tracking, out, self.world.rank, self.step, config.steps, settings
        )

    def _start(self) -> Any:
        """The engine, with the state of the newest checkpoint where there is one."""
        torch.manual_seed(int(keyed.key(self.config.seed, "initialise") >> 1))
        module = BertForPreTraining(self.model_config)
        if self.config.force and self.world.rank == 0:
            shutil.rmtree(self.folder, ignore_errors=True)
        peers.check_shared(self.folder, self.config.timeout)
        found = peers.from_first(checkpoint.newest(self.folder) if self.world.rank == 0 else None)
        if found is not None:
            path, state = found
            self.step, self.samples, self.tokens = state.step, state.samples, state.tokens
            self.saved, self.health.skipped = state.step, state.skipped
            tensors = checkpoint.Tensors(path)
            module.load_state_dict({n: tensors.weight(n) for n, _ in module.named_parameters()})
        elif self.config.start is not None:
            module.load_state_dict(start_weights(self.config.start, self.model_config))
        engine = build_engine(module, self.config, self.world)
        if found is not None:
            scatter(engine, tensors, self.step - self.health.skipped)
        return engine

    def run(self) -> stage.Result:
        """Train to the last step; the result's figures are for the report."""
        self._announce()
        self.engine.train()
        meter = Meter(self.world)
        self.guard.training()
        with prefetch(self._global_batches()) as batches:
            while self.step < self.config.steps:
                with meter.waiting():
                    batch = next(batches)
                self._update(batch, meter)
                self.step += 1
                self.samples += batch.sequences
                self.tracker.advance()
                self._after_step(meter)
                self._leave_if_due(meter)
        validation = self._evaluate()
        self._save(meter)
        return self._result(validation, meter)

    def _leave_if_due(self, meter: "Meter") -> None:
        """Save and leave, where a rank was told to or nothing is learnt any more.

        Raises:
            Restart: a rank got a signal.
            Diverged: too many updates in a row came to nothing.
        """
        if self.health.hopeless:
            raise self.health.diagnosis(str(self._save(meter)))
        if self.stop:
            self._save(meter)
            signal = self.guard.signal or "another rank's signal"
            raise Restart(
                f"rank {self.world.rank}: {signal}, saved after step {self.step:,}; the same "
                "command goes on"
            )

    def _global_batches(self) -> Iterator[GlobalBatch]:
        """This rank's part of every batch from here on."""
        world, config = self.world, self.config
        for start in itertools.count(self.samples, config.batch_size):
            yield self.loader.batch(
                start, config.batch_size, world.rank, world.size, config.micro_batch
            )

    def _update(self, batch: GlobalBatch, meter: "Meter") -> None:
        """Forward, backward and one optimizer step over a global batch."""
        config, world = self.config, self.world
        # Dropout too is a function of the position: a resumed run draws what it would have drawn.
        torch.manual_seed(int(keyed.key(config.seed, "dropout", self.step, world.rank) >> 1))
        rate = config.optimizer.learning_rate * rate_share(config.schedule, self.step, config.steps)
        for group in self.engine.optimizer.param_groups:
            group["lr"] = rate
        # DeepSpeed averages over ranks and micro-batches; the loss is a mean over the global batch.
        scale = world.size * len(batch.batches)
        for number, micro_batch in enumerate(batch.batches, start=1):
            micro = micro_batch.to(world.device)
            masked_logits, pair_logits = self.engine(micro)
            masked, pair, sums = losses(masked_logits, pair_logits, micro)
            loss = masked / max(batch.masked, 1)
            if config.objective.next_sentence:
                loss = loss + pair / batch.sequences
            self.engine.backward(loss * scale)
            if number == len(batch.batches):
                # Here the device is waited for anyway: the step begins with the gradient's norm.
                self.stop = peers.any_of(self.guard.signal is not None, world.device)
            self.engine.step()
            meter.add(sums)
            self.guard.beat()
        meter.rate = rate
        applied = self.engine.was_step_applied()
        trouble = self.health.note(applied, self.step + 1, self.samples, batch.sequences)
        if trouble is not None:
            self.tracker.say(f"warning: {trouble}")

    def _after_step(self, meter: "Meter") -> None:
        """What is due after `self.step` updates: a row, an evaluation, a checkpoint."""
        config, last = self.config, self.step == self.config.steps
        if self.step % config.log_every == 0 or last:
            norm = self.engine.get_global_grad_norm()
            figures = meter.read(config.objective.next_sentence)
            self.tokens += int(figures.pop("tokens"))
            figures |= {"samples": self.samples, "tokens": self.tokens}
            figures["skipped_steps"] = self.health.skipped
            if norm is not None:
                figures["gradient_norm"] = float(norm)
            self.tracker.log("train", self.step, figures)
        if self.step % config.evaluate_every == 0 and not last:
            self._evaluate()
        if self.step % config.save_every == 0 and not last:
            self._save(meter)
        if self.step % config.log_every == 0:
            meter.restart()  # what evaluation and saving took is not training time

    def _announce(self) -> None:
        """One line that says what will be done."""
        config, model = self.config, self.model_config
        done = f", resumed after step {self.step:,}" if self.step else ""
        count = sum(getattr(p, "ds_numel", p.numel()) for p in self.engine.module.parameters())
        self.tracker.say(
            f"train: {model.name}, {count:,} parameters, {self.world.size} x "
            f"{self.world.device.type}, {config.precision}, ZeRO stage "
            f"{self.engine.zero_optimization_stage()}, {config.steps:,} steps of "
            f"{config.batch_size} samples{done}"
        )

    @torch.no_grad()
    def _evaluate(self) -> dict[str, float]:
        """Held-out figures, on the same samples with the same masks whatever the world size."""
        config, world = self.config, self.world
        self.engine.eval()
        meter = Meter(world)
        count = min(config.evaluate_samples, self.held_out.samples)
        for start in range(0, count, config.batch_size):
            size = min(config.batch_size, count - start)
            part = self.held_out.batch(start, size, world.rank, world.size, config.micro_batch)
            for micro_batch in part.batches:
                micro = micro_batch.to(world.device)
                masked_logits, pair_logits = self.engine(micro)
                meter.add(losses(masked_logits, pair_logits, micro)[2])
                self.guard.beat()
        self.engine.train()
        figures = meter.read(config.objective.next_sentence)
        kept = {key: figures[key] for key in figures if key.endswith(("loss", "accuracy"))}
        self.tracker.log("validation", self.step, kept)
        shown = ", ".join(f"{key.replace('_', ' ')} {value:.4f}" for key, value in kept.items())
        self.tracker.say(f"step {self.step:,}: held-out {shown}")
        return kept

    def _save(self, meter: "Meter") -> Path:
        """A checkpoint; every rank takes part in the gathering, rank 0 writes."""
        if self.saved == self.step:
            return self.folder / checkpoint.name_of(self.step)
        self.saved = self.step
        weights, moments = gather(self.engine)
        tokens = self.tokens + meter.tokens()
        self.guard.beat()
        if self.world.rank == 0:
            state = checkpoint.State(
                step=self.step,
                samples=self.samples,
                tokens=tokens,
                skipped=self.health.skipped,
                fingerprint=self.fingerprint,
                model=dataclasses.asdict(self.model_config),
                data=self.data,
                tokenizer=self.tokenizer,
            )
            checkpoint.write(self.folder, state, weights, moments)
            checkpoint.prune(self.folder, self.config.keep, self.config.keep_every)
        dist.barrier()
        self.guard.beat()
        return self.folder / checkpoint.name_of(self.step)

    def _result(self, validation: dict[str, float], meter: "Meter") -> stage.Result:
        accuracy, unigram = validation["masked_lm_accuracy"], self.held_out.most_frequent_share()
        pairs = validation.get("next_sentence_accuracy")
        shown = f", next sentence {pairs:.3f}" if pairs is not None else ""
        return stage.Result(
            summary=f"{self.step:,} steps, {self.tokens:,} tokens, held-out masked-LM accuracy "
            f"{accuracy:.3f} (most frequent token {unigram:.3f}){shown}",
            figures={
                "steps": self.step,
                "samples": self.samples,
                "tokens": self.tokens,
                "validation": validation,
                "most_frequent_accuracy": unigram,
                "world_size": self.world.size,
                "device": self.world.device.type,
                "checkpoint": str(
                    (self.folder / checkpoint.name_of(self.step)).relative_to(self.out)
                ),
            },
        )


def fitted(config: TrainConfig, wordpiece: WordPiece, manifest: stage.Manifest) -> ModelConfig:
    """The model's size with the tokenizer's vocabulary, checked against the shards.

    Raises:
        ConfigError: sequences longer than the model's positions, or a vocabulary too small.
    """
    length = manifest.figures["sequence_length"]
    if length > config.model.positions:
        raise ConfigError(
            f"{config.data.dir}: sequences of {length} tokens, but model.positions="
            f"{config.model.positions}"
        )
    size = config.model.vocab_size or wordpiece.size
    if size != wordpiece.size:
        raise ConfigError(f"model.vocab_size={size}: the tokenizer has {wordpiece.size} entries")
    return dataclasses.replace(config.model, vocab_size=size)


def losses(
    masked_logits: torch.Tensor, pair_logits: torch.Tensor, batch: Batch
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """From logits `(M, V)` and `(B, 2)`: both losses, summed, and the figures named in `SUMS`.

    The masked-LM logits are overwritten.
    """
    masked, right = cross_entropy(masked_logits, batch.masked_labels)
    pair_logits = pair_logits.float()
    pair = functional.cross_entropy(pair_logits, batch.next_sentence_labels, reduction="sum")
    with torch.no_grad():
        sums = torch.stack(
            [
                masked.double(),
                right.double(),
                pair.double(),
                (pair_logits.argmax(-1) == batch.next_sentence_labels).sum().double(),
                *(
                    masked.new_tensor(size, dtype=torch.float64)
                    for size in (len(batch.masked_labels), len(pair_logits), len(batch.input_ids))
                ),
            ]
        )
    return masked, pair, sums


class Meter:
    """Sums over micro-batches and ranks, and where the time went, until they are read."""

    def __init__(self, world: World):
        self.world, self.rate = world, 0.0
        self._tokens = torch.tensor([name == "tokens" for name in SUMS], device=world.device)
        self.restart()

    def restart(self) -> None:
        """Begin anew."""
        self._sums = torch.zeros(len(SUMS), dtype=torch.float64, device=self.world.device)
        self._wait, self._began = 0.0, time.perf_counter()

    def add(self, sums: torch.Tensor) -> None:
        """One micro-batch's figures; no synchronisation with the device.

        Of one that is not finite, and so makes its update void, only the tokens count.
        """
        self._sums += torch.where(sums.isfinite().all() | self._tokens, sums, 0.0)

    def tokens(self) -> int:
        """Tokens over all ranks since the last `read`; every rank must call it."""
        total = self._sums[SUMS.index("tokens")].clone()
        dist.all_reduce(total)
        return int(total)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Time in the body is time spent waiting for data."""
        began = time.perf_counter()
        yield
        self._wait += time.perf_counter() - began

    def read(self, next_sentence: bool) -> dict[str, float]:
        """The figures over all ranks since they were last read; every rank must call it."""
        dist.all_reduce(self._sums)
        sums = dict(zip(SUMS, self._sums.tolist(), strict=True))
        self._sums.zero_()
        seconds = time.perf_counter() - self._began
        masked, sequences = max(sums["masked"], 1.0), max(sums["sequences"], 1.0)
        figures = {
            "loss": sums["masked_lm_loss"] / masked,
            "masked_lm_loss": sums["masked_lm_loss"] / masked,
            "masked_lm_accuracy": sums["masked_lm_correct"] / masked,
        }
        if next_sentence:
            figures["next_sentence_loss"] = sums["next_sentence_loss"] / sequences
            figures["next_sentence_accuracy"] = sums["next_sentence_correct"] / sequences
            figures["loss"] += figures["next_sentence_loss"]
        return figures | {
            "learning_rate": self.rate,
            "tokens": sums["tokens"],
            "tokens_per_second": sums["tokens"] / seconds,
            "samples_per_second": sums["sequences"] / seconds,
            "data_wait_share": self._wait / seconds,
        }
