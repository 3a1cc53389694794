"""The base of config schemas: fields with help texts, roles and limits, and `StageConfig`.

`option` defines a setting, which is part of the stage's fingerprint. `input_path` defines a file or
folder that the stage reads: its content is part of the fingerprint, and it adds an edge to the
graph. `runtime_option` cannot change the output, so it is not part of the fingerprint.
"""

import dataclasses
import importlib
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_origin, get_type_hints

from pipeline.errors import UNSET, ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig  # takes 0.1 s to import, for composing alone

MISSING = "???"  # OmegaConf's
Rule = Callable[[Any, Any], Any]  # whether a value is within a limit; NaN never is
RULES: dict[str, Rule] = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le, "below": operator.lt}
RULES |= {"choices": lambda value, choices: value in choices}


def describe_limits(limits: Mapping[str, Any]) -> str:
    """Return what a value must be, as an error says it."""
    if choices := limits.get("choices"):
        return f"choose one of {', '.join(choices)}"
    return "must be " + " and ".join(f"{name.replace('_', ' ')} {limit:g}" for name, limit in limits.items())


def option(
    default: Any = MISSING,
    help: str = "",
    role: str = "setting",
    counts: Callable[[Any], Any] | None = None,
    formerly: Any = None,
    **limits: Any,
) -> Any:
    """Return a field that affects the stage's output; `limits` are of `RULES`, by name.

    A `role` that is the name of another field says: only where that is set. `counts` returns the part
    of a value that does so, if the rest does not. `formerly` was the default in an earlier version of
    the stage, whose folders stand.
    """
    assert limits.keys() <= RULES.keys(), limits
    metadata = {"help": help, "role": role, "counts": counts or (lambda value: value), "limits": limits}
    metadata |= {"formerly": formerly} if formerly is not None else {}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def input_path(default: Any = MISSING, help: str = "") -> Any:
    """Return a field that names an input of the stage."""
    return option(default, help, "input")


def runtime_option(default: Any = MISSING, help: str = "", **limits: Any) -> Any:
    """Return a field that changes how a stage runs, never its output."""
    return option(default, help, "runtime", **limits)


def group(schema: type, help: str = "", role: str = "setting") -> Any:
    """Return a field that holds a nested schema with its defaults."""
    return field(default_factory=schema, metadata={"help": help, "role": role})


def check(rule: bool, problem: str, key: str | None = None, value: object = UNSET) -> None:
    """Raise `ConfigError` unless `rule` holds."""
    if not rule:
        raise ConfigError(problem, key, value)


def library(name: str, key: str, value: object = UNSET, package: str = "") -> Any:
    """Import a library that an option needs; raise `ConfigError` if its `package` is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        name = package or name
        raise ConfigError(f"{name} is not installed ({error}); run pip install {name}", key, value) from error


def is_finite(value: Any) -> bool:
    """Return whether no number in a value, however nested, is infinite or NaN."""
    if isinstance(value, Mapping):
        return is_finite(list(value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def walk_fields(config: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield (dotted key, role, value) of a config dataclass; role is input, runtime or setting."""
    for each in fields(config):
        value, role = getattr(config, each.name), each.metadata.get("role", "setting")
        if role not in ("setting", "input", "runtime"):
            role = "setting" if getattr(config, role) else "runtime"
        if role != "runtime" and is_dataclass(value):
            for key, inner, item in walk_fields(value):
                yield f"{each.name}.{key}", inner, item
        else:
            yield each.name, role, counted(each, value)


def without_effect(config: Any, prefix: str = "") -> Iterator[str]:
    """Yield a line for each value of a config dataclass that is not the default and that nothing reads."""
    for each in fields(config):
        value = getattr(config, each.name)
        if is_dataclass(value):
            yield from without_effect(value, f"{prefix}{each.name}.")
        elif other := value != default_of(each) and switch_of(config, each.name):
            yield f"{prefix}{each.name}={value} has no effect with {prefix}{other}"


def switch_of(config: Any, name: str) -> str | None:
    """Return the field, and its value, by which another of a config dataclass is not read; None if it is read."""
    rules = getattr(config, "_only", {}).get(name, [])
    for other, *read_with in rules if isinstance(rules, list) else [rules]:
        current = operator.attrgetter(other)(config)
        read = current in read_with if read_with else current and current != getattr(type(config), other, None)
        if not read and switch_of(config, other) is None:  # what is not read switches nothing
            return f"{other}={'null' if current is None else current}"
    return None


def counted(each: Any, value: Any) -> Any:
    """Return the part of a field's value that determines the output."""
    return each.metadata.get("counts", lambda whole: whole)(value)


def set_key(nested: Any, key: str, value: Any) -> None:
    """Set a dotted key of nested dataclasses, dicts and lists, where a number is a place."""
    first, _, rest = key.partition(".")
    place, holds = int(first) if isinstance(nested, list) else first, isinstance(nested, list | dict)
    if rest:
        set_key(nested[place] if holds else getattr(nested, first), rest, value)
    elif holds:
        nested[place] = value
    else:
        setattr(nested, first, value)


def has_default(each: Any) -> bool:
    """Return whether a field of a dataclass may be left out."""
    return each.default_factory is not dataclasses.MISSING or each.default not in (dataclasses.MISSING, MISSING)


def default_of(each: Any) -> Any:
    """Return the default of a field that has one."""
    return each.default if each.default_factory is dataclasses.MISSING else each.default_factory()


def built(schema: Any, value: Any, key: str = "") -> Any:
    """Return plain values, as JSON has them, as an instance of `schema`, a dataclass or another type.

    Raises:
        ValueError: a value has another type, or a key is missing or not one of the schema's.
    """
    kinds = [kind for kind in get_args(schema) if kind is not NoneType]
    if schema is Any or (value is None and len(kinds) < len(get_args(schema))):
        return value
    if is_dataclass(schema) and isinstance(value, Mapping):
        hints, dot = get_type_hints(schema), key and f"{key}."
        by_name = {each.name: each for each in fields(schema)}
        # What an earlier version has written may have an option that is gone since, and was off, and
        # lacks one that is new since: it had the default.
        value = {name: item for name, item in value.items() if item or name in by_name}
        lost = {name for name in by_name.keys() - value.keys() if not has_default(by_name[name])}
        if wrong := sorted((value.keys() - by_name.keys()) | lost):
            raise ValueError(f"{dot}{wrong[0]}: {'no such key' if wrong[0] in value else 'missing'}")
        return schema(**{name: built(hints[name], item, f"{dot}{name}") for name, item in value.items()})  # type: ignore[operator]
    origin = get_origin(schema) or schema
    if origin in (list, tuple) and isinstance(value, list):
        return origin(built(kinds[0], item, key) for item in value)
    if origin is dict and isinstance(value, dict):
        return {name: built(kinds[1], item, f"{key}.{name}") for name, item in value.items()}
    if schema is float and type(value) is int:
        return float(value)
    if isinstance(schema, type) and type(value) is schema:
        return value
    if origin is not schema and len(kinds) == 1:  # KIND | None
        return built(kinds[0], value, key)
    raise ValueError(f"{key} is {value!r}, must be {getattr(schema, '__name__', schema)}")


@dataclass(kw_only=True)
class Section:
    """A part of a configuration under `key`; a new instance checks its fields' limits."""

    _prefix: ClassVar[str] = ""
    # The field and its values with which one is read, or unless it has its usual one; all of them in a list.
    _only: ClassVar[dict[str, Any]] = {}
    _yields: ClassVar[dict[str, tuple[str, ...]]] = {}  # a key, and those that it excludes: yields if those are typed
    _together: ClassVar[tuple[str, ...]] = ()  # those of them that may be typed together

    def __init_subclass__(cls, key: str = "") -> None:
        cls._prefix = f"{key}." if key else cls._prefix

    def __post_init__(self) -> None:
        """Check the limits of all fields that are set."""
        for each in fields(self):
            limits, value = each.metadata.get("limits"), getattr(self, each.name)
            key = f"{self._prefix}{each.name}"
            check(is_finite(value), "must be finite", key, value)
            if not limits or value is None or value == MISSING:
                continue
            values = value if isinstance(value, list) else [value]
            if not all(RULES[name](one, limit) for one in values for name, limit in limits.items()):
                null = ", or null" if NoneType in get_args(each.type) else ""
                raise ConfigError(f"{describe_limits(limits)}{null}", key, value)
        self.check_rules()  # which may know more of an empty value
        for each in fields(self):
            named = each.default in (None, MISSING) or each.name == "workdir"  # else empty may be a choice
            empty = named and getattr(self, each.name) == ""
            check(not empty, "must not be empty; is a variable unset?", f"{self._prefix}{each.name}", "")

    def check_rules(self) -> None:
        """Check what no limit of one field says; by default nothing."""

    def require(self, rule: bool, problem: str, name: str) -> None:
        """Raise `ConfigError` for the value of a field unless `rule` holds."""
        check(rule, problem, f"{self._prefix}{name}", getattr(self, name))


@dataclass(kw_only=True)
class TrackerConfig(Section, key="tracking"):
    """Where trainings and finished stages are logged."""

    name: str = option("none", "Tracker.", choices=("wandb", "none"))
    project: str | None = option(None, "Project of the tracker; null: WANDB_PROJECT, or else bert-pipeline.")


@dataclass(kw_only=True)
class StageConfig(Section):
    """The options of every stage."""

    workdir: str = runtime_option("work", "Folder of the run, with one folder per stage.")
    out: str = runtime_option(help="Output folder of the stage.")
    force: bool = runtime_option(
        False, "Delete the stage's output, then run it. After an interruption leave it out, to resume."
    )
    mirror: str | None = runtime_option(
        None, "Local folder for copies of what is in an object store; null: in the user's cache folder."
    )

    @staticmethod
    def complete(config: "DictConfig") -> None:
        """Fill in values of a composed config that follow from others; by default none."""
