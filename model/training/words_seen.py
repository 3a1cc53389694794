"""How many words of the text a run has seen, which may end it and asks for checkpoints.

A sample has as many words as its tokens have on average in its shard, so that an epoch has exactly
the words that `prepare` counted, and a run that resumes counts as if it had not stopped.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from model.config import TrainConfig
from model.loader.loader import GlobalBatch
from pipeline.common.errors import InputError

NEAR = 0.98  # the last step reaches a mark of which it has this share: limits end a run below it


class WordsSeen:
    """The words of a run; None where they are not known."""

    def __init__(self, config: TrainConfig, known: bool):
        """`known` says whether the shards know their words.

        Raises:
            InputError: they do not, and a setting needs it.
        """
        self._config = config
        self.count: float | None = 0.0 if known else None
        if not known:
            folders = ", ".join(config.data.folders)
            self._refuse(
                f"the shards in {folders} do not know their words; make them again with "
                "force=true, which writes the same bytes and counts the words"
            )

    def resume(self, count: float | None, checkpoint: Path) -> None:
        """Continue from what a checkpoint has seen.

        Raises:
            InputError: it does not know, and a setting needs it.
        """
        self.count = None if self.count is None else count
        if count is None:
            self._refuse(f"{checkpoint} was saved before words were counted; train again with force=true")

    def _refuse(self, reason: str) -> None:
        """Raise if a setting needs the number of words."""
        for key in ("words", "save_at_words"):
            if value := getattr(self._config, key):
                raise InputError(f"{reason}", key, value)

    def add(self, batch: GlobalBatch) -> list[float]:
        """Count a batch; returns the marks of `save_at_words` that it reaches.

        The last step also reaches a mark just above it, such as the limit of words itself.
        """
        if self.count is None or batch.words is None:
            self.count = None
            return []
        before, self.count = self.count, self.count + batch.words
        reached = self.count / NEAR if batch.last else self.count
        return [mark for mark in self._config.save_at_words if before < mark <= reached]

    def check_end(self, step: int, say: Callable[[str], None]) -> None:
        """Say which marks a run that ended after `step` did not reach.

        Raises:
            InputError: a limit ended it before its first step.
        """
        config = self._config
        if not step:
            key = "words" if config.epochs is None else "epochs"
            raise InputError(
                f"ends the run before its first step of {config.batch_size:,} samples; raise it, or lower batch_size",
                key,
                getattr(config, key),
            )
        if self.count is not None:
            missed = [mark for mark in config.save_at_words if mark > self.count / NEAR]
            if missed:
                marks = ", ".join(f"{mark:,.0f}" for mark in missed)
                say(f"warning: save_at_words: after {self}the run ended before {marks}")

    def until_limit(self, batches: Iterable[GlobalBatch]) -> Iterator[GlobalBatch]:
        """Yield batches that do not pass the limit of words, if there is one; the last says so."""
        ready, count, limit = None, self.count, self._config.words
        for batch in batches:
            if limit is not None and count is not None and batch.words is not None:
                count += batch.words
                if count > limit:
                    break
            if ready is not None:
                yield ready
            ready = batch
        if ready is not None:
            yield replace(ready, last=True)

    def __str__(self) -> str:
        """Say how many, for a line with other figures; nothing if unknown."""
        return "" if self.count is None else f"{self.count:,.0f} words, "
