"""The keys that stages have and a run has not: `steps` of a stage is `train.steps` in a run."""

import dataclasses
import typing
from collections.abc import Iterable
from typing import Any

from pipeline.cli import composing
from pipeline.cli.overrides import SEARCH_PATH
from pipeline.config import RunConfig
from pipeline.orchestration.recipe import type_of
from pipeline.stages.registry import STAGES

OWN = frozenset(field.name for field in dataclasses.fields(RunConfig)) | {"hydra"}
# Keys and groups of stages that a run passes on, or derives from keys of its own.
FROM_RUN = frozenset({"workdir", "mirror", "out", "task", "data", "seed", "force"})
GROUPS_FROM_RUN = frozenset({"corpus", "model"})


def has(schema: Any, key: str) -> bool:
    """Return whether a schema has a dotted key; a dictionary has any."""
    for part in key.split("."):
        if not dataclasses.is_dataclass(schema):
            return True
        types = typing.get_type_hints(schema)
        if part not in types:
            return False
        schema = types[part]
    return True


def belongs_to_stage(kind: str, key: str) -> bool:
    """Return whether a run takes a key with the prefix of a stage of this type."""
    first = key.partition(".")[0]
    passed_on = key in FROM_RUN or first in GROUPS_FROM_RUN
    return not passed_on and has(STAGES[kind].schema, key)


def stages_with(key: str, words: list[str]) -> list[str]:
    """Return the recipe's stages that have a key; `words` are the command line of the run."""
    return [name for name in recipe_stages(words) if type_of(name) in STAGES and belongs_to_stage(type_of(name), key)]


def recipe_stages(words: Iterable[str]) -> list[str]:
    """Return the names of the recipe's stages, or all types if the recipe cannot be read."""
    ours = ("recipe", SEARCH_PATH)
    chosen = [word for word in words if word.lstrip("+").partition("=")[0] in ours]
    try:
        config = composing.compose("run", RunConfig, chosen)
        return list(STAGES) if config is None else [str(name) for name in config.recipe.stages]
    except composing.MISTAKES:  # which is explained where the whole command line is read
        return list(STAGES)
