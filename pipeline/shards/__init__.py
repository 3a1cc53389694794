"""The shard format, the one contract of `prepare` and `train`, and how its rows are made."""

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
