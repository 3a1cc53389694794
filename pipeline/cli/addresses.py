"""Config keys that accept object-store addresses; elsewhere one would become a local folder."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from pipeline.common.errors import ConfigError
from pipeline.common.storage import is_address
from pipeline.common.stores.objects import SCHEMES

ANY = ("corpus.path",)  # keys that are read directly from any store
STORE = ("workdir", "out", "glue")  # keys of a stage or a run that may be in a store, like inputs
LOCAL = ("pretrained", "input", "output", "heartbeat", "mirror")


def check(config: Any) -> None:
    """Raise ConfigError if a key holds an object-store address that it cannot read or write."""
    stage = hasattr(config, "workdir")  # other commands make no local copies
    for key, value, role in _paths(config):
        if key in ANY or not is_address(value):
            continue
        if stage and (role == "input" or key in STORE):
            if value.lower().startswith(SCHEMES):
                continue
            raise ConfigError(
                f"must be in {', '.join(SCHEMES)} or a local folder; only {ANY[0]} reads other stores", key, value
            )
        raise ConfigError("must be a local path; mount the bucket or copy it to this machine", key, value)


def _paths(config: Any, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the keys of a config that hold paths, with their values and roles."""
    for field in dataclasses.fields(config):
        value, key = getattr(config, field.name), f"{prefix}{field.name}"
        role = field.metadata.get("role", "")
        if dataclasses.is_dataclass(value):
            yield from _paths(value, f"{key}.")
        elif role == "input" or key in (*ANY, *STORE, *LOCAL):
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, str):
                    yield key, item, role
