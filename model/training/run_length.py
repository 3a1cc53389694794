"""How many steps a run takes: as set, or as many as its limits of epochs and words allow.

PyTorch is not imported here: a dry run answers at once.
"""

from pathlib import Path

from model.config import TrainConfig
from pipeline.common.errors import ConfigError, InputError
from pipeline.common.figures import CorpusCounts
from pipeline.common.manifest import require_manifest

TOKENS = 1.4  # of a word of English, with a vocabulary of 8,000 to 30,000 entries


def steps_of(config: TrainConfig) -> int:
    """Return the steps of a run.

    A limit of words allows as many as read them on average; the last one may be too much.

    Raises:
        ConfigError: the limits allow no step.
        InputError: they depend on shards, which are not there or do not know their words.
    """
    if config.steps is not None:
        return config.steps
    made = [CorpusCounts.of(require_manifest(Path(d), "prepare", "data.dir")) for d in config.data.folders]
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
            f"allows not one step of batch_size={config.batch_size} samples; the shards have {sum(samples):,}",
            key,
            getattr(config, key),
        )
    return limits[key]


def expected(config: TrainConfig, length: float) -> int | None:
    """Return the steps, or about how many if the shards are not there yet; None if unknown.

    `length` is the number of tokens of a sample on average.
    """
    try:
        return steps_of(config)
    except InputError:
        if config.words is None:
            return None
        return max(1, round(config.words * TOKENS / length / config.batch_size))
