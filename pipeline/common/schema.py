"""The words that every schema is written in: roles of fields, checks, and what a stage has.

A field made by `input_path` names a folder or file that the stage reads: its content is part of the
stage's fingerprint and it draws an edge of the DAG. A field made by `incidental` cannot change what
the stage makes, so it stays out of the fingerprint.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING, DictConfig

from pipeline.common.errors import ConfigError


def input_path(default: Any = MISSING) -> Any:
    """A field that names something the stage reads."""
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata={"role": "input"})
    return field(default=default, metadata={"role": "input"})


def runtime_option(default: Any = MISSING) -> Any:
    """A field that changes how a stage runs, never what it makes."""
    if isinstance(default, dict | list):
        return field(default_factory=lambda: default.copy(), metadata={"role": "runtime"})
    return field(default=default, metadata={"role": "runtime"})


def check(rule: bool, message: str) -> None:
    """Raise `ConfigError(message)` unless `rule` holds."""
    if not rule:
        raise ConfigError(message)


def check_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise `ConfigError` unless `value` is one of `choices`."""
    check(value in choices, f"{key}={value}: choose one of {', '.join(choices)}")


@dataclass(kw_only=True)
class StageConfig:
    """What every stage has."""

    workdir: str = runtime_option("work")  # folder of the run: every stage has its folder in it
    out: str = runtime_option()  # folder that the stage makes
    force: bool = runtime_option(False)  # make it again though it is there
    # folder of this machine for copies of what is in a store; null: in the user's cache folder
    mirror: str | None = runtime_option(None)

    @staticmethod
    def complete(config: DictConfig) -> None:
        """Fill in the values of a composed config that others make unnecessary; here none."""
