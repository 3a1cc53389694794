"""The file RUN/run.json: the command of a run, and the resolved configuration of each stage.

The driver composes and plans once, and writes it before it starts anything; processes, pods and
Slurm steps are started with `--from RUN/run.json#STAGE`.
"""

import contextlib
import json
import os
from typing import Any, TypeVar

from pipeline.common.schema import built, set_key
from pipeline.errors import InputError, readable
from pipeline.storage import places

NAME = "run.json"
OPTION = "--from"
VERSION = 1  # of the file's form
SECRETS = "BERT_SECRET_SETTINGS"  # environment: settings that hold secrets, by key, in JSON; no file has them

Schema = TypeVar("Schema")


def place_of(workdir: str) -> str:
    """Return the place of the record of a run."""
    return f"{places.normal(workdir)}/{NAME}"


def load(path: str) -> dict[str, Any]:
    """Return the content of a record.

    Raises:
        InputError: it cannot be read, or has another form.
    """
    try:
        with readable(path), places.at(path).open("rb") as file:
            data = json.load(file)
        if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("stages"), dict):
            raise ValueError("no record of a run of this version")
    except ValueError as error:
        raise InputError(f"is not the record of a run ({error}); start the run again", path=path) from error
    return data


def config_of(place: str, schema: type[Schema], words: list[str]) -> Schema:
    """Return the configuration of the stage that `RUN/run.json#STAGE` names, changed by `KEY=JSON`.

    Raises:
        InputError: the stage is missing, has another schema, or as `load`.
        ConfigError: a check of the configuration fails.
    """
    path, _, name = place.partition("#")
    stages = load(path)["stages"]
    if name not in stages:
        raise InputError(f"no such stage; choose one of {', '.join(stages)}", path=place)
    config = stages[name].get("config")
    changes = json.loads(os.environ.get(SECRETS, "{}"))
    for key, _, value in (word.partition("=") for word in words):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
        changes[key] = value
    try:
        for key, value in changes.items():
            set_key(config, key, value)
        settings: Schema = built(schema, config)
        return settings
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"{error}; start the run again", path=place) from error
