"""Number and size of the shards of a corpus, from the sizes of its files alone."""

import math

from pipeline.config import PrepareConfig, check
from pipeline.errors import ConfigError, named
from pipeline.preparation.estimate import TEXT_OF_TOKEN, text_bytes
from pipeline.preparation.read_cache import Splits

MOST_SHARDS = 20_000  # 1.2 TB of text by default: each costs a file, and a part of each split's
MOST_TOKENS = 2**31 - 1  # of a shard, and of what a writing task has: offsets have 32 bits


def buckets(splits: Splits, shard_bytes: int, share: float) -> dict[str, int]:
    """Return the number of shards per split of the data, a function of the input's size alone."""
    text = text_bytes(splits)
    train = max(1, math.ceil(text * (1 - share) / shard_bytes))
    validation = math.ceil(train * share)
    # The number is part of what determines a shard's bytes: another rule only where it is needed.
    if text * share > 2 * shard_bytes * validation:  # a share of more than a half
        validation = math.ceil(text * share / shard_bytes)
    return {"train": train, "validation": validation}


def check_sizes(config: PrepareConfig, splits: Splits, shards: dict[str, int]) -> None:
    """Raise before any work starts if shards would be too many, or too large.

    Raises:
        ConfigError: they would be; the message names the key to change.
    """
    count = sum(shards.values())
    many = f"gives {count:,} shards, more than {MOST_SHARDS:,}; increase shard_bytes"
    check(count <= MOST_SHARDS, many, "shard_bytes", config.shard_bytes)
    text = text_bytes(splits)
    weights = {name: float(part.get("weight", 1.0)) for name, part in config.corpus.parts.items()}
    weighted = sum(text_bytes([split]) * weights.get(split.part, 1.0) for split in splits)
    each_has = text_per_shard(config, text, shards)
    for split, size in each_has.items():  # what is held out counts once
        copies = weighted / max(1.0, text) if split == "train" else 1.0
        tokens = size * copies * config.duplicates / TEXT_OF_TOKEN
        if tokens > MOST_TOKENS:
            known = min(config.shard_bytes, text)
            fits = math.floor(known * MOST_TOKENS / tokens / 2)
            weighed = f"{named('duplicates')}={config.duplicates} and the weights of the corpus"
            cure = f"set {named('shard_bytes')}={max(1, fits)} or less"
            why = f"gives some {tokens:,.0f} tokens per {split} shard with {weighed}, more than {MOST_TOKENS:,}; {cure}"
            raise ConfigError(why, "shard_bytes", config.shard_bytes)
    each = math.ceil(count / max(1, int(text // config.runner.task_bytes)))
    tokens = min(text, each * max(each_has.values())) / TEXT_OF_TOKEN
    why = f"gives some {tokens:,.0f} tokens per task, more than {MOST_TOKENS:,}; reduce it"
    check(each <= 1 or tokens <= MOST_TOKENS, why, "runner.task_bytes", config.runner.task_bytes)


def text_per_shard(config: PrepareConfig, text: float, shards: dict[str, int]) -> dict[str, float]:
    """Return the bytes of `text` that the documents of a shard have, about, per split of the data."""
    share = config.validation_share
    parts = {"train": text * (1 - share), "validation": text * share}
    return {split: parts[split] / count for split, count in shards.items() if count}
