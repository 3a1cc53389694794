"""Composition of configurations by Hydra: schemas, validation, errors that name the key."""

import contextlib
import copy
import difflib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException, ValidationError

from pipeline.cli import help_text
from pipeline.cli.conf_files import CONF, choices, unknown_choice
from pipeline.cli.overrides import Words, other_word, quote, render_argv, search_path, separate_options, type_of
from pipeline.common.schema import StageConfig, check, walk_fields, without_effect
from pipeline.config import TaskConfig
from pipeline.console import terminal
from pipeline.errors import UNSET, ConfigError, UserError, named
from pipeline.storage.places import is_address, scheme_of
from pipeline.storage.stores.objects import SCHEMES

# Errors caused by a command line or a YAML file; any other exception is a bug.
MISTAKES = (UserError, HydraException, OmegaConfBaseException)

# Patterns of Hydra's and OmegaConf's messages.
NO_CHOICE = re.compile(r"Could not find '([^']+)/([^'/]*)'")
WRONG_TYPE = re.compile(
    r"Value '(.*)' (?:of type .*could not be converted to (Integer|Float)|"
    r"is not a valid (bool) )",
    re.S,
)
TWICE = re.compile(r"(?:Multiple values for )?([\w@.]+)(?:\. .*'override \S+: (\S+)'| appears more than once)")
NO_GROUP = re.compile(r"Invalid type assigned: .* is not a subclass of .*value: (.*)")
NOT_ONE = re.compile(r"Cannot convert '(?:list|dict)' to string: '(.*)'")
NOT_THERE = re.compile(r"Could not delete (?:from config\. )?'([^']+)'")
NOT_CHOSEN = re.compile(r"Missing mandatory value: (\w+)$", re.M)
OF_FILE = re.compile(r"full_key: (\S+)")  # of an error in a file, that Hydra gives as a text alone
MERGED = re.compile(r"merging override \+*([^=]+)=")
ALL_KEYS = f"{named('--help')} lists all keys"
NULL_ITEM = 'must not be null; leave it out, or type "null" for the text'
KEYED = "keys with values, each named after a dot; or leave it out"
TYPES = {"Integer": "a whole number", "Float": "a number", "bool": "true or false"}

Config = TypeVar("Config")


def language_of_mix(default: str, *, _parent_: DictConfig, _root_: DictConfig) -> str:
    """Return the language of the mix that a corpus is a part of, else `default`.

    In YAML `${language_of_mix:en}`, for files of corpora with `${.language}` in other values.
    """
    corpus = _root_.get("corpus")
    return default if corpus is None or corpus is _parent_ else str(corpus.language)


def cores_of_run(default: int, *, _root_: DictConfig) -> int:
    """Return the cores of the run, or `default` for a command of its own."""
    return int(_root_.get("cores") or default)


for resolver in (language_of_mix, cores_of_run):
    OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)


def register(name: str, schema: type) -> None:
    """Register the dataclass `schema` for YAML defaults lists as `NAME_schema`."""
    ConfigStore.instance().store(name=f"{name}_schema", node=schema)


def validate(config: DictConfig, schema: type[Config]) -> Config:
    """Return a composed config as its typed dataclass.

    Raises:
        ConfigError: a value is missing, or a check of the dataclass fails.
    """
    if issubclass(schema, StageConfig):
        schema.complete(config)
    for group in map(str, config):
        if OmegaConf.is_missing(config, group) and choices(group):
            raise ConfigError(to_choose(group), group)
    missing = sorted(OmegaConf.missing_keys(config))
    if missing:
        also = f", as {', '.join(missing[1:])}" if missing[1:] else ""
        raise ConfigError(f"is required{also}; add {named(missing[0])}=VALUE", missing[0])
    check_keys(config)
    built = OmegaConf.to_object(config)
    assert isinstance(built, schema)
    check_addresses(built)
    return built


def to_choose(group: str) -> str:
    """Return what is wrong where nothing is chosen of a group, and what to type."""
    return f"is required; add +{group}=NAME, NAME one of: {', '.join(choices(group))}"


def typed_keys(words: Words, stage: str = "") -> set[str]:
    """Return the keys that words set; those of a `stage` of a run without its name."""
    return {word.partition("=")[0].lstrip("+").removeprefix(f"{stage}.") for word in words if "=" in word}


def settle(config: DictConfig, schema: Any, typed: set[str], run: str = "", prefix: str = "") -> Iterator[str]:
    """Take back each value that excludes one of the keys `typed` and is none of them; yield a line for each.

    In a `run` a key has the name of its stage before it.

    Raises:
        ConfigError: both are typed.
    """
    for name in names(schema):
        if is_dataclass(kind := type_of(schema, name)) and (inner := OmegaConf.select(config, name)) is not None:
            yield from settle(inner, kind, typed, run, f"{prefix}{name}.")
    for key, others in getattr(schema, "_yields", {}).items():
        values = {each: OmegaConf.select(config, each) for each in others if f"{prefix}{each}" in typed}
        other = next((each for each, value in values.items() if value not in (None, [])), None)
        group, _, name = key.rpartition(".")
        node: Any = OmegaConf.select(config, group) if group else config
        if other is None or node is None:
            continue
        off = None if node._get_node(name)._is_optional() else schema.__dataclass_fields__[name].default
        if node[name] == off:
            continue
        if f"{prefix}{key}" not in typed:
            yield f"{run}{prefix}{key}={node[name]} gives way to {run}{prefix}{other}={values[other]}"
            node = copy.deepcopy(node) if group else node  # the corpus of a run is that of other stages too
            node[name] = off
            config.update({group: node} if group else {})
        elif key not in schema._together:
            problem = f"cannot be combined with {named(f'{prefix}{other}')}={values[other]}; leave one of them out"
            raise ConfigError(problem, f"{prefix}{key}", node[name])


def warn(lines: Iterable[str]) -> None:
    """Print warnings, each once, by one rank of a training; all ranks do what the lines are of."""
    for line in [*dict.fromkeys(lines)] * (os.environ.get("RANK", "0") == "0"):
        terminal.say(f"warning: {line}", sys.stderr)


@contextlib.contextmanager
def convert_hydra_errors() -> Iterator[None]:
    """Convert any other error raised in the body, which composes a config, to a ConfigError."""
    try:
        yield
    except MISTAKES:
        raise
    except Exception as error:  # malformed input also raises AssertionError, TypeError and more
        reason = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no reason given'}"
        raise ConfigError(f"the command line or a YAML file that it names cannot be parsed: {reason}") from error


def cause_of(error: Exception) -> tuple[Exception, str]:
    """Return the error that Hydra has wrapped, and the key that it is of; "" if that is not known."""
    typed = MERGED.search(str(error))
    while isinstance(error, HydraException) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    full = str(getattr(error, "full_key", None) or getattr(error, "key", None) or "")
    if typed and typed[1].endswith(f".{full}"):  # OmegaConf knows the last part of a new key alone
        full = typed[1]
    return error, full or "".join(OF_FILE.findall(str(error))[:1])


def explain(error: Exception) -> UserError:
    """Return a Hydra or OmegaConf error as one that names the key."""
    error, full = cause_of(error)
    text = str(error)
    if isinstance(error, UserError):
        return error
    if isinstance(error, ConfigKeyError | ConfigAttributeError) and error.full_key:
        return unknown_key(full, error.object_type)
    if (wrong := WRONG_TYPE.search(text)) and full:
        more = ", or null" if (node := getattr(error, "child_node", None)) is not None and node._is_optional() else ""
        more += "; an underscore parts thousands alone, as in 1_000" * ("_" in wrong[1])
        more += "; items of a list have commas between them" * (full.endswith("]") and " " in wrong[1])
        return ConfigError(f"must be {TYPES[wrong[2] or wrong[3]]}{more}", full, wrong[1])
    if isinstance(error, ValidationError):
        one = NO_GROUP.search(text)
        if "is not Optional" in text or (one is not None and one[1] == "None"):
            return ConfigError(NULL_ITEM if full.endswith("]") else "must not be null", full, None)
        if "is not a ListConfig, list or tuple" in text:
            return no_list(full, getattr(error.value, "_value", lambda: error.value)())  # which may be a node
        if one is not None:
            return has_keys(error, full, one[1])
        if many := NOT_ONE.search(text):
            return ConfigError("must be one text", full, many[1])
    if "Cannot merge DictConfig with ListConfig" in text or re.search("Cannot assign .* to Dict", text):
        return ConfigError(f"must be {'a list' if 'reference_type=List' in text else KEYED}", full)
    if missing := NOT_THERE.search(text):
        return ConfigError(f"no such key; {ALL_KEYS}", missing[1])
    if open_group := NOT_CHOSEN.match(text):
        return ConfigError(to_choose(open_group[1]), open_group[1])
    if twice := TWICE.search(text):
        return ConfigError(f"another {twice[1]} is chosen too; leave one of them out", twice[1], twice[2] or UNSET)
    if isinstance(error, MissingConfigException) and (lost := NO_CHOICE.search(text)):
        return unknown_choice(
            lost[1], lost[2], re.findall(r"^\s+(\S+)$", text, re.M) or choices(lost[1])
        )  # which it lists
    lines = [line.strip() for line in text.partition("Config search path:")[0].splitlines() if line.strip()]
    noise = ("full_key:", "object_type=", "reference_type=", "See https", "Set the environment")
    text = " ".join(line for line in lines if not line.startswith(noise)).replace("\t", " ")
    return ConfigError(f"{text} (at {full})" if full and full not in text else text)


def has_keys(error: ValidationError, full: str, value: str) -> ConfigError:
    """Return the error for one value of a key that has keys of its own, with the first of these."""
    holder, (place, bracket, _) = error.parent_node, full.rpartition("[")
    first = names(holder._metadata.element_type if bracket else OmegaConf.get_type(holder, error.key))[0]
    meant = f"{named(place)}=[{{{first}:{value}}}]" if bracket else f"{named(f'{full}.{first}')}={value}"
    return ConfigError(f"has keys of its own; did you mean {meant}?", full, value)


def no_list(full: str, value: Any) -> ConfigError:
    """Return the error for one value (None: unknown) where a list is wanted, with the list of it."""
    listed = quote(["VALUE" if value is None else value]).replace("'", '"')
    several = isinstance(value, int) and full.endswith("seeds") and value > 1
    more = f", or '{named(full)}={quote(list(range(value)))}' for {value} seeds" if several else ""
    return ConfigError(f"must be a list; write '{named(full)}={listed}'{more}", full, UNSET if value is None else value)


def check_keys(config: DictConfig, prefix: str = "") -> None:
    """Raise ConfigError for a key that its schema lacks, as `+key=value` adds any, and an item that no list has."""
    schema = OmegaConf.get_type(config)
    for key in map(str, config):
        if is_dataclass(schema) and key not in names(schema):
            raise unknown_key(f"{prefix}{key}", schema)
        node = config._get_node(key)
        if isinstance(node, DictConfig) and not node._is_none():
            check_keys(node, f"{prefix}{key}.")
        items = node._content if isinstance(node, ListConfig) else None
        for place, item in enumerate(items if isinstance(items, list) else []):
            full = f"{prefix}{key}[{place}]"
            check(not item._is_none(), NULL_ITEM, full, None)
            check(not isinstance(item, ListConfig), "is a list within a list; leave its brackets out", full, item)


def names(schema: Any) -> list[str]:
    """Return the keys of a dataclass schema; for anything else an empty list."""
    return [each.name for each in fields(schema)] if is_dataclass(schema) else []


def unknown_key(full: str, schema: Any) -> ConfigError:
    """Return the error for a key that `schema` lacks, suggesting that of a section, or the closest one."""
    group, dot, key = full.rpartition(".")
    of_sections = [f"{section}.{key}" for section in names(schema) if key in names(type_of(schema, section))]
    near = of_sections or difflib.get_close_matches(key, names(schema), n=1)
    meant = f"did you mean {named(f'{group}{dot}{near[0]}')}?" if near else ALL_KEYS

    def has(ours: str) -> bool:
        if not group or (group.startswith("stages.") and "." not in group[7:]):  # a run has no out, and forces by name
            return type_of(schema, ours) is not None and not (group and ours in ("out", "force"))
        inner = f"{group.rpartition('.')[2]}."
        return ours.startswith(inner) and type_of(schema, ours.removeprefix(inner)) is not None

    return ConfigError(f"no such key; {other_word(key, has, meant)}", full)


def compose(name: str, schema: type, words: Words) -> DictConfig | None:
    """Compose `conf/NAME.yaml` with a command line; return None if an option like `--cfg` ran.

    Raises:
        ConfigError, HydraException, OmegaConfBaseException: a mistake on the command line.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"
    register(name, schema)
    if not separate_options(words)[0]:  # no option of Hydra's, whose own main composes everything twice
        with convert_hydra_errors():
            GlobalHydra.instance().clear()
            with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
                return hydra.compose(name, render_argv(words, name, schema))
    composed: list[DictConfig] = []

    def keep(config: DictConfig) -> None:  # a function: for a method Hydra would search the stack
        composed.append(config)

    before = sys.argv
    sys.argv = [before[0], *render_argv(words, name, schema)]
    try:
        with convert_hydra_errors():
            hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(keep)()
    finally:
        sys.argv = before
    return composed[0] if composed else None


def find_repeated(words: Words) -> Iterator[str]:
    """Yield a line for each group that is chosen several times; of a value, scripts give the one that counts last."""
    counts = Counter(word.partition("=")[0] for word in words if "=" in word)
    groups = (key for key, count in counts.items() if count > 1 and (CONF / key).is_dir())
    yield from (f"{key} is chosen several times; the last one counts" for key in groups)


def compose_config(name: str, schema: type[Config], words: Words, asked: bool) -> Config | None:
    """Return the configuration of a command line; None if help was `asked` for, or an option ran.

    Raises:
        UserError: a mistake on the command line or in a YAML file.
    """
    try:
        config = compose(name, schema, words)
        if config is not None and "own_tasks" in config and not OmegaConf.is_missing(config, "task"):
            config_dir = get_args_parser().parse_known_args(separate_options(words)[0])[0].config_dir
            folders = [*([Path(config_dir)] if config_dir else []), *search_path(words)]
            config.own_tasks = own_tasks(config.task.also, folders)
        if config is not None and asked:
            help_text.print_help(name, schema, config)
        if config is None or asked:
            return None
        warn(settle(config, schema, typed_keys(words)))
        settings = validate(config, schema)
        warn((*find_repeated(words), *without_effect(settings)))
        return settings
    except UserError:
        raise
    except MISTAKES as error:
        raise explain(error) from error


def own_tasks(names: Iterable[str], folders: Iterable[Path]) -> dict[str, Any]:
    """Return the settings of those tasks that are in `folders` of YAML files.

    Raises:
        ConfigError: a task is neither there nor one of ours.
    """
    tasks = {}
    for name in names:
        if files := [file for folder in folders if (file := folder / "task" / f"{name}.yaml").is_file()]:
            tasks[name] = OmegaConf.merge(OmegaConf.structured(TaskConfig), OmegaConf.load(files[0]))
        elif name not in (allowed := choices("task", *folders)):
            raise unknown_choice("task", name, allowed).but(key="task.also")
    return tasks


STORE = ("workdir", "out", "glue")  # keys of a stage or a run that may be in a store, like inputs
LOCAL = ("pretrained", "input", "output", "heartbeat", "mirror")


def check_addresses(config: Any) -> None:
    """Raise ConfigError if a key holds an object-store address that it cannot read or write."""
    stage = hasattr(config, "workdir")  # other commands make no local copies
    for key, role, value in walk_fields(config):
        stored = stage and (role == "input" or key in STORE)
        for place in value if isinstance(value, list) else [value]:
            if not isinstance(place, str):
                continue
            if scheme := scheme_of(place):
                raise ConfigError(f"an address begins with {scheme}://", key, place)
            if not is_address(place) or (role != "input" and key not in (*STORE, *LOCAL)):
                continue  # corpus.path may be in any store
            if not stored:
                raise ConfigError("must be a local path; mount the bucket or copy it to this machine", key, place)
            if not place.lower().startswith(SCHEMES):
                raise ConfigError(
                    f"must be in {', '.join(SCHEMES)} or a local folder; only corpus.path reads other stores",
                    key,
                    place,
                )
