"""How many steps a run takes: as set, or as many as its limits of epochs and words allow; words seen.

PyTorch is not imported here: a dry run answers at once.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from model.config import TrainConfig
from pipeline.errors import BY_FORCE, ConfigError, InputError, named
from pipeline.records.manifest import require_manifest
from pipeline.records.metrics import CorpusCounts

if TYPE_CHECKING:
    from model.loader.loader import GlobalBatch

NEAR = 0.98  # the last step reaches a mark of which it has this share: limits end a run below it
TOKENS = 1.4  # of a word of English, with a vocabulary of 8,000 to 30,000 entries


def steps_of(config: TrainConfig) -> int:
    """Return the steps of a run, or as many as its limits allow; errors as of `allowed_steps`."""
    return allowed_steps(config) if config.steps is None else config.steps


def allowed_steps(config: TrainConfig) -> int:
    """Return the steps that limits of words and epochs allow.

    A limit of words allows as many as read them on average; the last one may be too much.

    Raises:
        ConfigError: the limits allow no step.
        InputError: they depend on shards, which are not there or do not know their words.
    """
    made = [CorpusCounts.of(require_manifest(Path(d), "prepare", config.data.key_of(d))) for d in config.data.folders]
    samples = [counts.train for counts in made]
    limits: dict[str, int] = {}
    if config.epochs is not None:
        limits["epochs"] = config.epochs * sum(samples) // config.batch_size
    if config.words is not None:
        shares = config.data.weights or samples
        means = [counts.train_words / max(counts.train, 1) for counts in made]
        if not any(means):
            raise InputError("the shards do not know their words", "words", config.words)
        mean = sum(s * words for s, words in zip(shares, means, strict=True)) / sum(shares)
        limits["words"] = int(config.words / mean / config.batch_size)
    key = min(limits, key=lambda name: limits[name])
    if not limits[key]:
        raise ConfigError(
            f"allows not one step of {named('batch_size')}={config.batch_size} samples; the shards have "
            f"{sum(samples):,}",
            key,
            getattr(config, key),
        )
    return limits[key]


def expected_steps(config: TrainConfig, length: float) -> int | None:
    """Return the steps, or about how many if the shards are not there yet; None if unknown.

    `length` is the number of tokens of a sample on average.
    """
    if config.words is None and config.epochs is None:
        return config.steps
    try:
        most = allowed_steps(config)
    except InputError:
        if config.words is None:
            return config.steps
        most = max(1, round(config.words * TOKENS / length / config.batch_size))
    return min(most, config.steps or most)


class WordCounter:
    """How many words of the text a run has seen, which may end it and asks for checkpoints.

    A sample has as many words as its tokens have on average in its shard, so that an epoch has exactly
    the words that `prepare` counted, and a run that resumes counts as if it had not stopped.
    """

    def __init__(self, config: TrainConfig, known: bool):
        """`known` says whether the shards know their words.

        Raises:
            InputError: they do not, and a setting needs it.
        """
        self._config = config
        self.count: float | None = 0.0 if known else None
        if not known:
            self._refuse(
                f"the shards do not know their words; make them again {BY_FORCE}, which writes the same bytes and "
                "counts the words",
                config.data.folders[0],
            )

    def resume(self, count: float | None, checkpoint: Path) -> None:
        """Continue from what a checkpoint has seen.

        Raises:
            InputError: it does not know, and a setting needs it.
        """
        self.count = None if self.count is None else count
        if count is None:
            self._refuse(f"the checkpoint was saved before words were counted; train again {BY_FORCE}", checkpoint)

    def _refuse(self, reason: str, path: object) -> None:
        """Raise if a setting needs the number of words."""
        for key in ("words", "save_at_words"):
            if getattr(self._config, key):
                raise InputError(reason, key, path=path)

    def add(self, batch: "GlobalBatch") -> list[float]:
        """Count a batch; returns the marks of `save_at_words` that it reaches.

        The last step also reaches a mark just above it, such as the limit of words itself.
        """
        if self.count is None or batch.words is None:
            self.count = None
            return []
        before, self.count = self.count, self.count + batch.words
        reached = self.count / NEAR if batch.last else self.count
        return [mark for mark in self._config.save_at_words if before < mark <= reached]

    def say_passed(self, kept: set[float], say: Callable[[str], None]) -> None:
        """Say which marks were passed before they were set: a resumed run does not go back for them."""
        marks = [0.0, *self._config.save_at_words] if self._config.save_at_words else []
        passed = [mark for mark in marks if mark <= (self.count or 0.0) and mark not in kept]
        if self.count and passed:
            shown = ", ".join(f"{mark:,.0f}" for mark in passed)
            say(f"warning: save_at_words: resumed after {self}so without checkpoints at {shown}")

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

    def until_limit(self, batches: "Iterable[GlobalBatch]") -> "Iterator[GlobalBatch]":
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
