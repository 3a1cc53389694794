"""Paths of a configuration for workers that run in another working directory."""

import dataclasses
import glob
import os
from collections.abc import Mapping
from typing import TypeVar

from pipeline.common import storage
from pipeline.config import PrepareConfig, RunnerConfig

Place = TypeVar("Place", str, str | None)


def for_workers(config: PrepareConfig) -> PrepareConfig:
    """Return a configuration whose paths mean the same to workers as here.

    Workers that this process starts have its directory: paths stay as typed, as in ids of
    documents.
    """
    if starts_workers(config.runner):
        return config
    parts = {
        name: {**part, "path": absolute(part["path"])} if isinstance(part, Mapping) and part.get("path") else part
        for name, part in config.corpus.parts.items()
    }
    return dataclasses.replace(
        config,
        corpus=dataclasses.replace(config.corpus, path=absolute(config.corpus.path), parts=parts),
        filters=dataclasses.replace(
            config.filters,
            banned_file=absolute(config.filters.banned_file),
            decontaminate=[absolute(place) for place in config.filters.decontaminate],
        ),
        source=absolute(config.source),
        vocab=absolute(config.vocab),
    )


def starts_workers(runner: RunnerConfig) -> bool:
    """Return whether this process, or one that it starts, starts the workers."""
    loopback = runner.options.get("environment_type") == "LOOPBACK"
    return runner.name in ("local", "prism") or loopback


def absolute(place: Place) -> Place:
    """Return a local path from the root of the file system, an address as it is."""
    here = os.getcwd()
    if not place or storage.is_address(place) or glob.has_magic(here):  # no part of a pattern
        return place
    return os.path.join(here, place)
