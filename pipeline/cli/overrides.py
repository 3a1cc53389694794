"""Words of a command line as Hydra's override grammar reads them."""

import os
import re
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf

from pipeline.cli.conf_files import CONF, choices
from pipeline.common.errors import ConfigError

EXPONENT = re.compile(r"[+-]?\d+(\.\d+)?[eE]\+?\d{1,2}")  # 1e4, 1.5e3
CHOICE = re.compile(r"(\+*)(\w+)=([\w./-]+)")  # of a group: corpus=wiki, +corpus=wiki
OPEN = re.compile(r"(corpus\.options|corpus\.parts|runner\.options)\b")  # of any keys
RESERVED = ("null", "true", "false", "inf", "nan")  # words that are not read as text


def quoted(value: Any) -> str:
    """A value as Hydra's override grammar reads it back."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(quoted(item) for item in value) + "]"
    text = str(value)
    if re.fullmatch(r"[A-Za-z_./][\w./-]*", text, re.ASCII) and text.lower() not in RESERVED:
        return text
    # In Hydra's grammar a backslash is itself, unless a quotation mark follows.
    return "'" + re.sub(r"(\\*)'", r"\1\1\\'", re.sub(r"(\\+)$", r"\1\1", text)) + "'"


def parses(word: str) -> bool:
    """Whether Hydra's override grammar reads the word."""
    try:
        OverridesParser.create().parse_override(word)
    except HydraException:
        return False
    return True


def readable(word: str) -> str:
    """An override `key=value` in the grammar; as it is where it is already, or cannot be brought.

    Paths have characters that the grammar has not: a value that is nothing but text is quoted, and
    in it a leading `~/` is the user's home.
    """
    key, equals, value = word.partition("=")
    if parses(word) or not equals or re.match(r"['\"\[{(]", value) or "${" in value:
        return word
    mended = f"{key}={quoted(os.path.expanduser(value) if value.startswith('~/') else value)}"
    return mended if parses(mended) else word


def for_hydra(words: list[str], command: str) -> list[str]:
    """Return the words of a command line as Hydra's parser wants them: options, then overrides.

    A choice needs no `+` where none is made yet, and may have one where there is a default.

    Raises:
        ConfigError: a word is not an override, or cannot be read as one.
    """
    options, overrides = split(words)
    check(overrides)
    # Hydra would add handlers to the root logger, one of them a log file in the working folder.
    quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none"]
    return [*options, *quiet, *normalized(overrides, command)]


def normalized(overrides: list[str], command: str) -> list[str]:
    """Return overrides in Hydra's grammar, choices with a `+` where the command makes none."""
    made = default_groups(command)
    words = [with_sign(whole_number(readable(word)), made) for word in overrides]
    return [f"++{word}" if OPEN.match(word) else word for word in words]


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the options with their values, and the other words."""
    takes_value = {
        name
        for action in get_args_parser()._actions
        if action.nargs is None
        for name in action.option_strings
    }
    options: list[str] = []
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            others.append(word)
            continue
        options.append(word)
        if word in takes_value:
            options += [value for value in [next(rest, None)] if value is not None]
    return options, others


def check(overrides: list[str]) -> None:
    """Check that each word is an override of one value.

    Raises:
        ConfigError: the first that is not, and how to type it.
    """
    for place, word in enumerate(overrides):
        key, equals, value = word.partition("=")
        if not equals and not word.startswith("~"):
            before = overrides[place - 1] if place else ""
            cure = f"; type {before}{word}, without the space" if before.endswith("=") else ""
            raise ConfigError(f"{word}: not KEY=VALUE{cure or '; --help lists the keys'}")
        text = readable(word)
        if not parses(text):
            whole = joined(overrides[place:])
            quotes = f"""texts in it may need quotation marks, '{key}=["a b","c"]'"""
            cure = f"quote it whole, '{whole}'" if whole else quotes
            raise ConfigError(f"{word}: this value cannot be read; {cure}", key=key.lstrip("+~"))
        if OverridesParser.create().parse_override(text).is_sweep_override():
            raise ConfigError(
                f"{word}: one value is wanted; a list is written '{key}=[{value}]', a text with "
                f"a comma '{key}=\"{value}\"'",
                key=key.lstrip("+~"),
            )


def joined(words: list[str]) -> str | None:
    """Return the first words as one override, where a space in a list has cut it."""
    for count in range(2, len(words) + 1):
        text = " ".join(words[:count])
        if parses(text):
            return text
        if "=" in words[count - 1]:
            break
    return None


def default_groups(command: str) -> set[str]:
    """Return the config groups of which `conf/COMMAND.yaml` makes a choice."""
    content = OmegaConf.load(CONF / f"{command}.yaml")
    assert isinstance(content, DictConfig)
    entries = content.get("defaults", ListConfig([]))
    return {str(group) for entry in entries if isinstance(entry, DictConfig) for group in entry}


def with_sign(word: str, made: set[str]) -> str:
    """Return a choice of a group with `+` where the command makes none, else without."""
    found = CHOICE.fullmatch(word)
    if found is None or not choices(found[2]):
        return word
    return f"{'' if found[2] in made else '+'}{found[2]}={found[3]}"


def whole_number(word: str) -> str:
    """Return `KEY=1e4` as `KEY=10000`: Hydra's grammar takes every exponent for a fraction."""
    key, _, value = word.partition("=")
    if EXPONENT.fullmatch(value) and float(value).is_integer():
        return f"{key}={int(float(value))}"
    return word
