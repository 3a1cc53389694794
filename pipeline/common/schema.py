"""Helpers for config schemas: field roles, checks, and `StageConfig`.

A field made by `input_path` names a file or folder that the stage reads: its content is part of the
stage's fingerprint, and it adds an edge to the graph. A field made by `runtime_option` cannot
change the stage's output, so it is not part of the fingerprint.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING, DictConfig

from pipeline.common.errors import ConfigError


def input_path(default: Any = MISSING) -> Any:
    """Return a field that names an input of the stage."""
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata={"role": "input"})
    return field(default=default, metadata={"role": "input"})


def runtime_option(default: Any = MISSING) -> Any:
    """Return a field that changes how a stage runs, never its output."""
    if isinstance(default, dict | list):
        return field(default_factory=lambda: default.copy(), metadata={"role": "runtime"})
    return field(default=default, metadata={"role": "runtime"})


def check(rule: bool, message: str) -> None:
    """Raise `ConfigError(message)` unless `rule` holds."""
    if not rule:
        raise ConfigError(message)


def check_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise `ConfigError` unless `value` is one of `choices`."""
    if value not in choices:
        raise ConfigError(f"{key}={value}: choose one of {', '.join(choices)}", key=key)


@dataclass(kw_only=True)
class StageConfig:
    """The options of every stage."""

    workdir: str = runtime_option("work")  # folder of the run, with one folder per stage
    out: str = runtime_option()  # output folder of the stage
    force: bool = runtime_option(False)  # rerun the stage even if it is up to date

    @staticmethod
    def complete(config: DictConfig) -> None:
        """Fill in values of a composed config that follow from others; by default none."""
