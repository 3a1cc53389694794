"""How many steps a run takes: as set, or as many as its limits of epochs and words allow; words seen.

PyTorch is not imported here: a dry run answers at once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from model.config import TrainConfig
from pipeline.errors import BY_FORCE, ConfigError, InputError, named
from pipeline.records.checkpoint_folder import State
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


def require_words(config: TrainConfig, shards_know: bool, state: State, checkpoint: Path | None) -> None:
    """Have the state count words from what a checkpoint has seen, or from 0.

    Raises:
        InputError: The shards or the checkpoint do not know them, and a setting needs it.
    """
    reason, path = "", checkpoint or Path()
    if not shards_know:
        path = Path(config.data.folders[0])
        reason = f"the shards do not know their words; make them again {BY_FORCE}, which writes the same bytes and "
        reason += "counts the words"
    elif checkpoint is not None and state.words is None:
        reason = f"the checkpoint was saved before words were counted; train again {BY_FORCE}"
    if reason and (key := next((key for key in ("words", "save_at_words") if getattr(config, key)), None)):
        raise InputError(reason, key, path=path)
    if not shards_know or checkpoint is None:
        state.words = 0.0 if shards_know else None


class WordCounter:
    """How many words of the text a run has seen, which may end it and asks for checkpoints.

    A sample has as many words as its tokens have on average in its shard, so that an epoch has exactly
    the words that `prepare` counted, and a run that resumes counts as if it had not stopped.
    """

    def __init__(self, config: TrainConfig, state: State):
        """`state` has the number: None, if it is not known."""
        self._limit, self._marks, self._state = config.words, config.save_at_words, state

    def add(self, batch: "GlobalBatch") -> list[float]:
        """Count a batch; returns the marks of `save_at_words` that it reaches.

        The last step also reaches a mark just above it, such as the limit of words itself.
        """
        before = self._state.words
        if before is None or batch.words is None:
            self._state.words = None
            return []
        self._state.words = now = before + batch.words
        reached = now / NEAR if batch.last else now
        return [mark for mark in self._marks if before < mark <= reached]

    def passed(self, kept: set[float]) -> list[float]:
        """Return the marks that were passed before they were set: a resumed run does not go back for them."""
        marks = [0.0, *self._marks] if self._marks and self._state.words else []
        return [mark for mark in marks if mark <= (self._state.words or 0.0) and mark not in kept]

    def missed(self) -> list[float]:
        """Return the marks that a run which has ended did not reach."""
        return [mark for mark in self._marks if self._state.words is not None and mark > self._state.words / NEAR]

    def until_limit(self, batches: "Iterable[GlobalBatch]") -> "Iterator[GlobalBatch]":
        """Yield batches that do not pass the limit of words, if there is one; the last says so."""
        ready, count, limit = None, self._state.words, self._limit
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


def require_steps(config: TrainConfig, step: int) -> None:
    """Raise InputError if a limit ended a run before its first step."""
    if not step:
        key = "words" if config.epochs is None else "epochs"
        raise InputError(
            f"ends the run before its first step of {config.batch_size:,} samples; raise it, or lower batch_size",
            key,
            getattr(config, key),
        )
