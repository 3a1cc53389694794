"""Which checkpoints a training writes, and which of them stay."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.records.checkpoint_folder import LATEST, PINNED, best_of, milestone_words, name_of, remove, steps
from pipeline.storage.atomic import write_text


@dataclass(frozen=True)
class Retention:
    """The rule for the checkpoints of one training, by its settings."""

    keep: int  # the last ones
    save_every: int | None = None  # steps
    keep_every: int | None = None  # steps: these stay
    stable: int = 0  # the step before a decay, from which a longer training can continue; it stays
    keep_best: bool = False
    marks: int = 0  # of `save_at_words`; each checkpoint of one stays, and that before the first step

    def is_due(self, step: int) -> bool:
        """Return whether a checkpoint is written after a step."""
        return step == self.stable or any(every and step % every == 0 for every in (self.save_every, self.keep_every))

    def count_marked(self) -> int:
        """Return how many are kept for their words."""
        return self.marks + bool(self.marks)

    def count(self, last: int) -> int:
        """Return how many there are at most at once up to the step `last`, one of them being written."""
        kept = self.keep + 1 + bool(self.stable) + self.keep_best + self.count_marked()
        return kept if self.keep_every is None else kept + last // self.keep_every

    def prune(self, last: Path) -> None:
        """Name the newest; remove all that the rule does not keep.

        What `stable` and `best` keep beyond the last ones is named in `PINNED`. Those kept for their words do
        not count. `last` is the checkpoint that was just written. Any after it are damaged: it was not
        resumed from them.
        """
        paths = steps(last.parent)
        good = [step for step in paths if step <= int(last.name.removeprefix("step-"))]
        plain = [step for step in good if milestone_words(paths[step]) is None]
        old = plain[: -self.keep]
        spare = {step for step in old if self.keep_every is None or step % self.keep_every}
        apart = {max((step for step in plain if step <= self.stable), default=0)} & set(old)
        best = {path for step in good if step not in spare - apart for path in best_of(paths[step])}
        apart |= {step for step in old if paths[step] in best}
        for step, path in paths.items():
            if step not in good or step in spare - apart:
                remove(path)
        write_text(last.parent / LATEST, f"{last.name}\n")
        if apart:
            write_text(last.parent / PINNED, "".join(f"{name_of(step)}\n" for step in plain if step in apart))
