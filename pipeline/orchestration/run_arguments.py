"""Conversion of the command line of `python -m pipeline.run` to Hydra's grammar."""

import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from pipeline.cli import entry_point
from pipeline.cli.overrides import SEARCH_PATH, check, quoted
from pipeline.common.errors import ConfigError, InputError
from pipeline.config import RunConfig
from pipeline.orchestration import compose_run, stage_keys
from pipeline.orchestration.compose_run import STAGE_KEY
from pipeline.stages.registry import STAGES, type_of

CONFIG_DIR = ("--config-dir", "-cd")
ALIKE = 0.85  # of a misspelt key of a run, which is not that of a stage; `steps` is no `stages`


def expand(argv: list[str]) -> list[str]:
    """Expand the words of a command line for Hydra.

    `--force STAGE` becomes `force=[STAGE]`, `@FILE` its lines.
    `--config-dir FOLDER` becomes an override, so that every stage finds the YAML files there.
    """
    kept: list[str] = []
    forced: list[str] = []
    words = iter(argv)
    for word in words:
        option, equals, value = word.partition("=")
        if option == "--force":
            forced.append(value if equals else next(words, ""))
        elif word.startswith("force=["):
            forced += re.findall(r"[^][, '\"]+", value)
        elif option in CONFIG_DIR:
            kept.append(own_folder(value if equals else next(words, "")))
        elif word.startswith("@"):
            kept += lines_of(word[1:])
        else:
            kept.append(word)
    kept = [word.removeprefix("++stages.") for word in kept]  # as jobs of an older version have it
    check(kept, RunConfig)
    for word in kept:
        check_name(word, kept)
    for name in forced:
        if not re.fullmatch(r"[\w-]+", name) or name.startswith("-"):
            raise ConfigError(f"--force {name}".rstrip() + ": a stage is required, as in --force train")
    return [*kept, f"force=[{','.join(forced)}]"] if forced else kept


def own_folder(path: str) -> str:
    """Return the override that makes Hydra search a folder of YAML files too."""
    folder = Path(path).expanduser()
    if not path or not folder.is_dir():
        raise ConfigError(f"--config-dir {path}".rstrip() + ": not a folder; name that of your YAML files")
    return f"{SEARCH_PATH}={quoted([f'file://{folder.absolute()}'])}"


def lines_of(path: str) -> list[str]:
    """Return the overrides in a file, one per line, without comments and empty lines."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot be read ({reason}); expected one override per line", path=f"@{path}") from error
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def start(words: list[str], task: Callable[[RunConfig], Any]) -> NoReturn:
    """Compose a run of the words of a command line, and call `task` with it; see `entry_point.run`."""
    entry_point.run("run", RunConfig, task, words, read=of_words)


def of_words(name: str, schema: type, words: list[str], asked: bool) -> Any:
    """Return the configuration of a command line, see `compose_run.of_words`."""
    return compose_run.of_words(name, schema, expand(words), asked)


def check_name(override: str, words: list[str]) -> None:
    """Raise ConfigError if a key is that of a stage, or begins with neither a stage nor a key of a run.

    `words` are the whole command line, which may name a recipe.
    """
    key, equals, value = override.lstrip("+~").partition("=")
    name, dot, rest = key.partition(".")
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w.-]+)?", key):
        return
    if name == "stages" and dot:
        raise ConfigError(f"{override}: no such key; did you mean {rest}={value}?")
    if key == "force" and not value.startswith("["):
        raise ConfigError(f"{override}: stages are required, as in --force train")
    if name in stage_keys.OWN or STAGE_KEY.match(override):
        return
    if difflib.get_close_matches(name, stage_keys.OWN, n=1, cutoff=ALIKE):
        near = difflib.get_close_matches(name, stage_keys.OWN, n=1)
        raise ConfigError(f"{override}: no such key; did you mean {near[0]}{dot}{rest}?")
    recipe = compose_run.recipe_stages(words) or STAGES
    if stages := [one for one in recipe if stage_keys.belongs_to_stage(type_of(one), key)]:
        others = f" (stages with this key: {', '.join(stages)})" if stages[1:] else ""
        meant = f"{stages[0]}.{key}={value}"
        raise ConfigError(f"{override}: is a key of a stage; did you mean {meant}?{others}")
    if dot:
        near = difflib.get_close_matches(name, [*STAGES, *stage_keys.OWN], n=1)
        meant = f"did you mean {near[0]}.{rest}? " if near else ""
        raise ConfigError(f"{override}: no such stage; {meant}choose one of {', '.join(STAGES)}")
