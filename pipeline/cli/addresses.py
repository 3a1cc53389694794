"""Which keys take an address of an object store; a path made of one would be a local folder."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from pipeline.common.errors import ConfigError
from pipeline.common.storage import is_address

READ = ("corpus.path",)  # keys that are read through `pipeline.common.storage`
LOCAL = ("workdir", "out", "glue", "pretrained", "input", "output", "heartbeat")


def check(config: Any) -> None:
    """Check that only keys that can read an object store name one.

    Raises:
        ConfigError: another key does; the key is named.
    """
    for key, value in _paths(config):
        if key not in READ and is_address(value):
            raise ConfigError(
                f"{key}={value}: must be a local path; only {READ[0]} reads object stores (mount "
                "the bucket, or copy it here)",
                key=key,
            )


def _paths(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of a config that name files, and their values."""
    for field in dataclasses.fields(config):
        value, key = getattr(config, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _paths(value, f"{key}.")
        elif field.metadata.get("role") == "input" or key in (*READ, *LOCAL):
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, str):
                    yield key, item
