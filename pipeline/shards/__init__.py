"""The shard format, the only contract between `prepare` and `train`, and the instances in it."""

from pipeline.shards.format import (
    FORMATS,
    SPLITS,
    Shard,
    ShardInfo,
    open_folder,
    open_shard,
    schema,
    words_per_token,
    write_shard,
)

__all__ = [
    "FORMATS",
    "SPLITS",
    "Shard",
    "ShardInfo",
    "open_folder",
    "open_shard",
    "schema",
    "words_per_token",
    "write_shard",
]
