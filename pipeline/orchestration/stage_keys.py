"""The keys that stages have and a run has not: `steps` of a stage is `train.steps` in a run."""

import dataclasses
import typing
from typing import Any

from pipeline.config import RunConfig
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
    return not is_passed_on(key) and has(STAGES[kind].schema, key)


def is_passed_on(key: str) -> bool:
    """Return whether stages get a key from the run."""
    return key in FROM_RUN or key.partition(".")[0] in GROUPS_FROM_RUN
