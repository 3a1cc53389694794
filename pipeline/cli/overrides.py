"""Conversion of command-line words to Hydra's override grammar."""

import argparse
import dataclasses
import functools
import os
import re
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf

from pipeline.cli.conf_files import CONF, choices
from pipeline.cli.hydra_patches import NUMBER
from pipeline.common.tables import read_table
from pipeline.errors import ConfigError, named

Words = list[str]  # of a command line
Folders = list[Path]  # of YAML files, next to ours
EXPONENT = re.compile(r"[+-]?\d+(\.\d+)?[eE]\+?\d{1,2}")  # 1e4, 1.5e3
CHOICE = re.compile(r"\+*(\w+)=(['\"]?)([\w./-]+)\2")  # of a group: corpus=wiki, +corpus='wiki'
ADDED = re.compile(r"\+([\w.]+)=")  # a key with one plus
BRACKET_FIRST = re.compile(r"\[[^\[\]]*\][^\]]+")  # a text, not a list: [ab]/x
LIST = re.compile(r"\[([^\[\]{}()'\"\\$]*)\]")  # without quotation marks, and in one level
QUOTES = "“”„‘’«»"  # of a text processor; a shell reads them as letters
RESERVED = ("null", "true", "false", "inf", "nan")  # words that do not parse as text
# What Hydra takes for a number in a value, a list or a dictionary; and texts in quotation marks.
DIGITS = re.compile(
    r"""'[^']*'|"[^"]*"|(^|[\[,]\s*|[{,]\s*\w+\s*:\s*)([+-]?\d[\d._]*(?:[eE][+-]?[\d_]+)?)(?=\s*(?:[\]},]|$))"""
)
SEARCH_PATH = "hydra.searchpath"  # more folders of YAML files
OPEN = re.compile(r"(corpus\.options|corpus\.parts|runner\.options)\b")  # groups that take any key
# Of a run: keys of all trainings, whose schema the stages check.
OF_TRAININGS = re.compile(r"^\+*(?=model\.\w)")
_hints: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)  # a run asks for 400 keys


def search_path(overrides: Words) -> Folders:
    """Return the user's own folders of YAML files, which an override names."""
    named = [word for word in overrides if word.startswith(f"{SEARCH_PATH}=")]
    override = parse_override(named[-1]) if named else None
    folders: Any = [] if override is None else override.value()
    return [Path(str(folder).removeprefix("file://")) for folder in folders]


def quote(value: Any) -> str:
    """Return a value quoted for Hydra's override grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(quote(item) for item in value) + "]"
    text = str(value)
    if re.fullmatch(r"[A-Za-z_./][\w./-]*", text, re.ASCII) and text.lower() not in RESERVED:
        return text
    # In Hydra's grammar a backslash is literal unless a quotation mark follows.
    return "'" + re.sub(r"(\\*)'", r"\1\1\\'", re.sub(r"(\\+)$", r"\1\1", text)) + "'"


@functools.lru_cache(maxsize=1024)
def parse_override(word: str) -> Override | None:
    """Return a word of a command line in Hydra's grammar; None if it does not parse."""
    try:
        return OverridesParser.create().parse_override(word)
    except HydraException:
        return None


def quote_unparsable(word: str) -> str:
    """Return an override `key=value` with its value quoted if that makes it parse, else unchanged.

    Paths may contain characters that the grammar lacks. A leading `~/` of a value that is quoted is
    expanded to the user's home.
    """
    key, equals, value = word.partition("=")
    if parse_override(word) or not equals or re.match(r"['\"\[{(]", value) or "${" in value:
        return word
    text = f"{key}={quote(os.path.expanduser(value) if value.startswith('~/') else value)}"
    return text if parse_override(text) else word


def render_argv(words: Words, command: str, schema: type | None = None) -> Words:
    """Return the words of a command line in the form of Hydra's parser: options, then overrides.

    A `+` that users type makes no difference, whether or not a group has a default. What the schema
    says is a text stays as typed, as does what no reader takes for a number.

    Raises:
        ConfigError: a word is not a valid override.
    """
    check_overrides(words, schema)
    options, overrides = separate_options(words)
    of_command = functools.partial(type_of, schema)
    for key in (word.partition("=")[0].lstrip("+") for word in overrides):  # the files of a group are there for all
        if schema and command != "run" and choices(key) and of_command(key) is None:
            raise ConfigError(f"no such key; {other_word(key, of_command, 'leave it out')}", key)
    # Hydra would add handlers to the root logger, one of them a log file in the working folder.
    quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none"]
    groups = default_groups(command)
    typed = [expand_section_name(quote_texts(quote_unparsable(word), schema), schema) for word in overrides]
    signed = [normalize_sign(expand_exponent(keep_underscores(word)), groups, schema) for word in typed]
    if command == "run":
        signed = [OF_TRAININGS.sub("++", word, count=1) for word in signed]
    return [*options, *quiet, *(f"++{word}" if OPEN.match(word) else word for word in signed)]


def quote_texts(word: str, schema: type | None) -> str:
    """Return an override of a text, or of a list of texts, with quotation marks where needed.

    Hydra's grammar takes 2024_01 and 1e3 for numbers, and true for a truth value.
    """
    key, equals, value = word.partition("=")
    kind = type_of(schema, key.lstrip("+"))
    if kind not in (str, list[str]) or not equals or not parse_override(word):
        return word
    if kind is str:
        return f"{key}={quote_ambiguous(value)}"
    items = LIST.fullmatch(value)
    if items is None or not items[1].strip():
        return word
    return f"{key}=[{','.join(quote_ambiguous(item.strip()) for item in items[1].split(','))}]"


def keep_underscores(word: str) -> str:
    """Return an override with quotation marks at what Hydra alone takes for a number, such as `1_0`."""
    key, equals, value = word.partition("=")

    def kept(match: re.Match[str]) -> str:
        stray = match[2] and "_" in match[2] and not NUMBER.fullmatch(match[2])
        return f"{match[1]}'{match[2]}'" if stray else match[0]

    return f"{key}{equals}{DIGITS.sub(kept, value)}"


def expand_section_name(word: str, schema: type | None) -> str:
    """Return `SECTION=NAME` as `SECTION.name=NAME`, of a section that differs by its name alone: it has no files."""
    key = word.partition("=")[0].lstrip("+")
    nameless = type_of(schema, f"{key}.name") in (None, Any) or choices(key)
    return word if nameless else word.lstrip("+").replace("=", ".name=", 1)


def quote_ambiguous(value: str) -> str:
    """Return a value as it is typed, with quotation marks if it would not be taken for a text."""
    override = parse_override(f"x={value}")
    return f"'{value}'" if override is not None and isinstance(override.value(), bool | int | float) else value


def type_of(schema: Any, key: str) -> Any:
    """Return the type of a dotted key without None: Any within what takes any key; None: no such key."""
    for name in key.split("."):
        if not dataclasses.is_dataclass(schema):
            return None if schema is None else Any
        schema = _hints(schema).get(name)
        parts = [part for part in typing.get_args(schema) if part is not type(None)]
        if isinstance(schema, types.UnionType) and len(parts) == 1:
            schema = parts[0]
    return schema


def other_word(key: str, has: Callable[[str], object], otherwise: str) -> str:
    """Return the cure for a key of other programs: the first of ours that the command `has`, and what to know."""
    entry = read_table(__file__, "other_words.yaml").get(key.rpartition(".")[2], "")
    candidates, _, note = re.sub(r"<([\w.]+)>", lambda marked: named(marked[1]), entry).partition("; ")
    meant = next((f"did you mean {named(each)}?" for each in candidates.split() if has(each)), None)
    return f"{meant} ({note})" if meant and note else meant or note or otherwise


def separate_options(words: Words) -> tuple[Words, Words]:
    """Split words into options with their values, and all others."""
    takes_value = {name for each in get_args_parser()._actions if each.nargs is None for name in each.option_strings}
    options, others = Words(), Words()
    rest = iter(words)
    for word in rest:
        (options if word.startswith("-") else others).append(word)
        if word in takes_value:
            options += [value for value in [next(rest, None)] if value is not None]
    return options, others


def check_options(words: Words, schema: type | None) -> None:
    """Raise ConfigError for the first word that looks like an option but is not one of Hydra's."""
    parser = get_args_parser()
    parser.exit_on_error = False
    try:
        options, unknown = parser.parse_known_args([word for word in words if word != "--version"])
    except argparse.ArgumentError as error:
        raise ConfigError(error.message, error.argument_name) from error
    if options.multirun:
        raise ConfigError("no such option; give the command once for each value", "--multirun")
    for word in (word for word in unknown if word.startswith("-")):
        key, _, value = word.lstrip("-").replace("-", "_").partition("=")
        kind = type_of(schema, key)
        after = "".join(words[words.index(word) + 1 :][:1])
        example = "VALUE" if "=" in after or after[:1] in ("", "-") else after
        value = value or ("true" if kind is bool else example)
        cure = other_word(key, functools.partial(type_of, schema), "use KEY=VALUE (--help lists the keys)")
        cure = f"did you mean {key}={value}?" if kind else cure
        raise ConfigError(f"no such option; {cure}", word)


def check_overrides(words: Words, schema: type | None) -> None:
    """Raise ConfigError for the first word that is neither an option nor one value's override."""
    check_options(words, schema)
    overrides = separate_options(words)[1]
    for index, word in enumerate(overrides):
        key, equals, value = word.partition("=")
        if set(key) & set(QUOTES) or value[:1] in {*QUOTES}:
            raise ConfigError("has curly quotation marks; type ' or \" instead", path=word)
        if word.startswith("~") and type_of(schema, key[1:]) not in (None, Any):
            raise ConfigError(f"cannot be removed; set {key[1:]}=VALUE", key[1:], path=word)
        if not equals and not word.startswith("~"):
            before, after = overrides[index - 1] if index else "", overrides[index + 1 :]
            cure = "--help lists the keys"
            if after and after[0].startswith("="):  # blanks around the sign
                cure = f"type {word}{''.join(after[: 2 if after[0] == '=' else 1])}, without spaces"
            elif before.endswith("="):
                cure = f"type {before}{word}, without spaces"
            elif "=" in before and not choices(before.partition("=")[0].lstrip("+")):  # a value of two words
                cure = f"if it belongs to the value before, type '{before} {word}'"
            raise ConfigError(f"is not KEY=VALUE; {cure}", path=word)
        override = parse_override(quote_unparsable(word))
        if override is None:
            complete = rejoin_list(overrides[index:])
            cure = f"""texts in it may need quotation marks, '{key}=["a b","c"]'"""
            if complete:
                cure = f"quote the whole override, '{complete}'"
                if comma := with_commas(complete):
                    cure = f"type {comma}, or {cure} if the blank belongs to a text"
            elif BRACKET_FIRST.fullmatch(value) and parse_override(f'{key}="{value}"'):
                cure = f"""quote the value, '{key}="{value}"'"""
            raise ConfigError(f"cannot be parsed; {cure}", key.lstrip("+~"), path=word)
        if override.is_sweep_override():
            cure = f"; write a list as '{key}=[{value}]', a text with a comma as '{key}=\"{value}\"'"
            alone = type_of(schema, key.lstrip("+~")) in (bool, int, float)
            raise ConfigError(f"must be one value{'' if alone else cure}", key.lstrip("+~"), path=word)


def rejoin_list(words: Words) -> str | None:
    """Return an override that a space in a list has split, joined again; None if it is not one."""
    for count in range(2, len(words) + 1):
        text = " ".join(words[:count])
        if parse_override(text):
            return text
        if "=" in words[count - 1]:
            break
    return None


def with_commas(word: str) -> str | None:
    """Return an override of a list whose items blanks alone separate with commas; None for any other."""
    return re.sub(r"\s+", ",", word) if re.fullmatch(r"[^=]+=\[[^\s,'\"]+(\s+[^\s,'\"]+)+\]", word) else None


def default_groups(command: str) -> set[str]:
    """Return the config groups with a default in `conf/COMMAND.yaml`."""
    content = OmegaConf.load(CONF / f"{command}.yaml")
    assert isinstance(content, DictConfig)
    entries = content.get("defaults", ListConfig([]))
    groups = {str(group).partition("@")[0] for entry in entries if isinstance(entry, DictConfig) for group in entry}
    return groups | {"model"} if command == "run" else groups  # a recipe names the model


def normalize_sign(word: str, groups: set[str], schema: type | None) -> str:
    """Return a choice of a group with `+` if the group has no default, else without.

    `+KEY` of a key becomes `++KEY`, which may be there or not.
    """
    choice = CHOICE.fullmatch(word)
    if choice is not None and choices(choice[1]):
        return f"{'' if choice[1] in groups else '+'}{choice[1]}={quote(choice[3])}"
    added = ADDED.match(word)
    is_key = added is not None and ("." in added[1] or type_of(schema, added[1]) is not None)
    return f"+{word}" if is_key else word


def expand_exponent(word: str) -> str:
    """Return `KEY=1e4` as `KEY=10000`: Hydra's grammar parses every exponent as a float."""
    key, _, value = word.partition("=")
    if EXPONENT.fullmatch(value) and float(value).is_integer():
        return f"{key}={int(float(value))}"
    return word
