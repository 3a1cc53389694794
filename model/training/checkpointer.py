"""The owner of a training's checkpoints: when one is due, what it holds, which stay."""

import dataclasses
import time
from pathlib import Path

import torch.distributed as dist

from model.resilience.watchdog import Watchdog
from model.tracking.tracker import Tracker
from model.training import checkpoint
from model.training.schedule import retention_of
from model.training.setup import Run
from model.training.step_metrics import SUMS, Meter
from pipeline.errors import Diverged
from pipeline.records import checkpoint_folder
from pipeline.storage.uploads import BackgroundUpload


class Checkpointer:
    """Checkpoints of one run; all ranks call it at the same steps."""

    def __init__(self, run: Run, meter: Meter, tracker: Tracker, guard: Watchdog, store: BackgroundUpload):
        self._run, self._meter, self._tracker, self._guard, self._store = run, meter, tracker, guard, store
        self._retention = retention_of(run.plan.config, run.plan.steps)
        self._saved = run.state.step if run.resumed else -1  # the step of the newest
        self._compared = False  # whether what is saved was compared with the model's weights

    def is_due(self, step: int) -> bool:
        """Return whether the settings ask for one after a step."""
        return self._retention.is_due(step)

    def save(self, milestone: float | None = None, prune: bool = True, wait: bool = False) -> Path:
        """Have a checkpoint of this step, and those that the rule keeps; return its path.

        `milestone` is one of `save_at_words`; `prune=False` keeps those before, which may be the good ones; `wait`
        until it is in the store.

        Raises:
            Diverged: A weight is not finite; nothing is written.
        """
        state = self._run.state
        path = self._run.plan.folder / checkpoint_folder.name_of(state.step)
        if self._saved != state.step:
            self._write(milestone)
        if self._run.world.rank == 0:
            if prune:
                self._retention.prune(path)
            self._store.upload(self._guard.beat, wait=wait)
        dist.barrier()
        self._guard.beat()
        return path

    def _write(self, milestone: float | None) -> None:
        """Write a checkpoint: all ranks gather, rank 0 writes."""
        run = self._run
        plan, state = run.plan, run.state
        try:
            weights, moments = run.engine.state_dict(compare=not self._compared)
        except FloatingPointError as error:
            raise self.diverged(f"{error} after step {state.step:,}") from error
        self._saved, self._compared = state.step, True
        sums = self._meter.totals()
        self._guard.beat()
        if run.world.rank == 0:
            self._store.wait(self._guard.beat)  # at most one checkpoint is not there yet
            noted = dataclasses.replace(
                state,
                tokens=state.tokens + int(sums[SUMS.index("tokens")]),
                sums=sums,
                seconds=state.seconds + time.monotonic() - plan.began,  # those of earlier starts too
                loss_scale=run.engine.scale_state(),
                mark=milestone,
                first_steps=plan.first_steps.hash_of(state.step),
            )
            self._tracker.before_save()
            checkpoint.write(plan.folder, noted, weights, moments)
            self._tracker.checkpoint_saved()

    def diverged(self, what: str) -> Diverged:
        """Return the error that ends a run without saving what is not finite."""
        self._tracker.alert("Training diverged", f"after step {self._run.state.step:,}; see its log")
        last = self._run.plan.folder / checkpoint_folder.name_of(self._saved)
        kept = "no checkpoint was saved" if self._saved < 0 else f"the last checkpoint is {last}"
        return Diverged(f"{what}; {kept}. Lower optimizer.learning_rate, or inspect the data")
