"""Config keys that accept object-store addresses; elsewhere one would become a local folder."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from pipeline.common.errors import ConfigError
from pipeline.common.storage import is_address

READ = ("corpus.path",)  # keys read through `pipeline.common.storage`
LOCAL = ("workdir", "out", "glue", "pretrained", "input", "output", "heartbeat")


def check(config: Any) -> None:
    """Raise ConfigError if a key that requires a local path holds an object-store address."""
    for key, value in _paths(config):
        if key not in READ and is_address(value):
            raise ConfigError(
                f"{key}={value}: must be a local path, only {READ[0]} reads object stores; mount "
                "the bucket or copy it to this machine",
                key=key,
            )


def _paths(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of a config that hold paths, with their values."""
    for field in dataclasses.fields(config):
        value, key = getattr(config, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _paths(value, f"{key}.")
        elif field.metadata.get("role") == "input" or key in (*READ, *LOCAL):
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, str):
                    yield key, item
