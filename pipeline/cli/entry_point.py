"""The one way into every command: Hydra composes, a schema validates, users see one-line errors."""

import contextlib
import difflib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    OmegaConfBaseException,
    ValidationError,
)

from pipeline import __version__
from pipeline.cli import addresses, help_text, resolved
from pipeline.cli.conf_files import CONF, choices, no_such
from pipeline.cli.overrides import for_hydra, normalized
from pipeline.common import output, redact, screen
from pipeline.common.errors import ConfigError, Exit, Restart, UserError
from pipeline.common.schema import StageConfig

# What may come of a command line or of a YAML file; anything else is a bug.
MISTAKES = (UserError, HydraException, OmegaConfBaseException)

# Of Hydra's and OmegaConf's messages.
NO_CHOICE = re.compile(r"Could not find '([^']+)/([^'/]+)'")
WRONG_TYPE = re.compile(
    r"Value '(.*)' (?:of type .*could not be converted to (Integer|Float)|"
    r"is not a valid (bool) )", re.S,
)  # fmt: skip
NOT_NULL = re.compile(r"field '(.*)' is not Optional")
NO_LIST = re.compile(r"is not a ListConfig, list or tuple")
TYPES = {"Integer": "a whole number", "Float": "a number", "bool": "true or false"}

Config = TypeVar("Config")


def register(name: str, schema: type) -> None:
    """Make `schema` (a dataclass) available to YAML defaults lists as `NAME_schema`."""
    ConfigStore.instance().store(name=f"{name}_schema", node=schema)


def validate(config: DictConfig, schema: type[Config]) -> Config:
    """The typed object of a composed config.

    Raises:
        ConfigError: a value is missing, or a rule of the dataclass (`__post_init__`) is broken.
    """
    if issubclass(schema, StageConfig):
        schema.complete(config)
    for group in map(str, config):
        if choices(group) and OmegaConf.is_missing(config, group):
            listed = ", ".join(choices(group))
            raise ConfigError(f"no {group} chosen: add +{group}=NAME, NAME one of: {listed}")
    missing = sorted(OmegaConf.missing_keys(config))
    if missing:
        raise ConfigError(f"no value for {', '.join(missing)}: add {missing[0]}=VALUE")
    check_keys(config)
    built = OmegaConf.to_object(config)
    assert isinstance(built, schema)
    addresses.check(built)
    return built


@contextlib.contextmanager
def hydra_errors_as_config_errors() -> Iterator[None]:
    """Hydra's and YAML's errors of all kinds as the user's, while the body composes a config.

    Raises:
        ConfigError: a command line or a YAML file that cannot be read.
    """
    try:
        yield
    except MISTAKES:
        raise
    except Exception as error:  # of malformed input they raise assertions, type errors and more
        told = " ".join(str(error).split()) or "no reason is given"
        raise ConfigError(
            f"the command line, or a YAML file that it names, cannot be read: "
            f"{type(error).__name__}: {told}"
        ) from error


def explain(error: Exception) -> str:
    """A Hydra or OmegaConf error as one line that names the key."""
    while isinstance(error, HydraException) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ConfigKeyError | ConfigAttributeError) and error.full_key:
        return unknown_key(str(error.full_key), error.object_type)
    if isinstance(error, ValidationError) and (wrong := WRONG_TYPE.search(str(error))):
        wanted = TYPES[wrong[2] or wrong[3]]
        return f"{error.full_key or error.key}={wrong[1]}: {wanted} is wanted"
    if isinstance(error, ValidationError) and NOT_NULL.search(str(error)):
        return f"{error.full_key or error.key}=null: a value is wanted, not null"
    if isinstance(error, ValidationError) and NO_LIST.search(str(error)):
        key = error.full_key or error.key
        return f"{key}: a list is wanted; write {key}=[VALUE]"
    if isinstance(error, MissingConfigException) and (lost := NO_CHOICE.search(str(error))):
        return unknown_choice(lost[1], lost[2], str(error))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    noise = ("full_key:", "object_type=", "reference_type=", "See https", "Set the environment")
    text = " ".join(line for line in lines if not line.startswith(noise))
    text = text.partition(" Config search path:")[0].replace("\t", " ")
    key = getattr(error, "full_key", None)
    return f"{text} (at {key})" if key and str(key) not in text else text


def unknown_choice(group: str, name: str, message: str) -> str:
    """Say that a config group has no such choice; Hydra's message lists those that it has."""
    there = re.findall(r"^\s+(\S+)$", message, re.M) or choices(group)
    return no_such(group, name, there)


def check_keys(config: DictConfig, prefix: str = "") -> None:
    """Raise where a node has a key that its schema has not: `+key=value` adds any.

    Raises:
        ConfigError: it has; the first one is named.
    """
    schema = OmegaConf.get_type(config)
    for key in map(str, config):
        if is_dataclass(schema) and key not in names(schema):
            raise ConfigError(unknown_key(f"{prefix}{key}", schema))
        node = config._get_node(key)
        if isinstance(node, DictConfig) and not node._is_none():
            check_keys(node, f"{prefix}{key}.")


def names(schema: Any) -> list[str]:
    """The keys of a schema; of anything else, none that are known."""
    return [each.name for each in fields(schema)] if is_dataclass(schema) else []


def unknown_key(full: str, schema: Any) -> str:
    """That `schema` has no such key, and which one it has whose name is much alike."""
    group, dot, key = full.rpartition(".")
    near = difflib.get_close_matches(key, names(schema), n=1)
    meant = f"did you mean {group}{dot}{near[0]}?" if near else "--help lists them all"
    return f"{full}: no such key; {meant}"


def check_options(words: list[str]) -> None:
    """Refuse what looks like an option and is none of Hydra's.

    Raises:
        ConfigError: there is such a word; the first one is named.
    """
    _, unknown = get_args_parser().parse_known_args(words)
    for word in unknown:
        if word.startswith("-"):
            raise ConfigError(f"{word}: no such option; --help lists the keys, all KEY=VALUE")


def print_help(name: str, schema: type, config: DictConfig) -> None:
    """The keys of a command, with the values that its command line gives them."""
    values = OmegaConf.to_container(config)
    assert isinstance(values, dict)
    settings = {str(key): value for key, value in values.items()}
    width = min(100, shutil.get_terminal_size().columns)
    bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(help_text.format_help(name, schema, settings, width, bold), flush=True)


def run(
    name: str, schema: type[Config], task: Callable[[Config], Any], argv: list[str] | None = None
) -> NoReturn:
    """Compose `conf/NAME.yaml` with the command line, validate it, run `task`, and exit.

    With `--from FILE` the configuration is that of the file, changed by the command line. The exit
    codes are those of `pipeline.common.errors.Exit`. A mistake and a restart are one line on
    stderr; a bug shows its trace.
    """
    output.outlive_readers()
    words = sys.argv[1:] if argv is None else argv
    if "--version" in words:
        print(f"bert-pipeline {__version__}")
        sys.exit(Exit.DONE)
    asked = {"--help", "-h"} & set(words)
    words = [word for word in words if word not in asked]
    try:
        if resolved.OPTION in words:
            config: DictConfig | None = _from_file(name, schema, words)
        else:
            config = compose(name, schema, words)
        if config is not None and asked:
            print_help(name, schema, config)
        elif config is not None:
            task(validate(config, schema))
    except MISTAKES as error:
        screen.say(f"error: {redact.redact(explain(error))}", sys.stderr)
        sys.exit(error.code if isinstance(error, UserError) else Exit.USER)
    except Restart as error:
        screen.say(f"stopped: {redact.redact(str(error))}", sys.stderr)
        sys.exit(Exit.RESTART)
    except KeyboardInterrupt:
        print("interrupted; the same command starts again", file=sys.stderr)
        sys.exit(Exit.INTERRUPTED)
    sys.exit(Exit.DONE)


def compose(name: str, schema: type, words: list[str]) -> DictConfig | None:
    """Compose `conf/NAME.yaml` with the words of a command line; None after `--cfg` and the like.

    Raises:
        ConfigError, HydraException, OmegaConfBaseException: a mistake on the command line.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"
    register(name, schema)
    composed: list[DictConfig] = []

    def keep(config: DictConfig) -> None:  # a function: of a method Hydra would search the stack
        composed.append(config)

    before = sys.argv
    sys.argv = [before[0], *for_hydra(words, name)]
    try:
        check_options(sys.argv[1:])
        with hydra_errors_as_config_errors():
            main = hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)
            main(keep)()
    finally:
        sys.argv = before
    return composed[0] if composed else None


def _from_file(name: str, schema: type, words: list[str]) -> DictConfig:
    place = words.index(resolved.OPTION)
    if place + 1 == len(words):
        raise ConfigError(f"{resolved.OPTION}: name a file, as in {resolved.OPTION} FILE")
    overrides = normalized(words[:place] + words[place + 2 :], name)
    return resolved.read(Path(words[place + 1]), schema, overrides)
