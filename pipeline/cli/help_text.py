"""The keys of a command: names, types, defaults and meanings, from schema and YAML.

A field of a schema holds its help text; `--help` and the pages of the documentation show it.
"""

import dataclasses
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from omegaconf import MISSING, DictConfig, OmegaConf

from pipeline.cli.conf_files import CONF, choices, paragraphs
from pipeline.cli.overrides import quote
from pipeline.common.schema import default_of
from pipeline.config import StageConfig

LONGEST = 120  # characters of a default that is worth showing
ROLES = {"input": "Read by the command.", "runtime": "Does not change the output."}


class Key(NamedTuple):
    """A key of a command."""

    name: str
    type: str  # as people write it: `list[str]`, `int or null`
    default: str | None  # as one types it; None: it must be set; empty: too long to show
    meaning: str  # sentences; may be empty
    effect: str  # a sentence on what its role implies; empty: it has none


def meaning_of(field: dataclasses.Field[Any]) -> str:
    """Return the help text of a field, and its choices."""
    allowed = field.metadata.get("limits", {}).get("choices", ())
    choices_of_field = f"One of {', '.join(allowed)}." if allowed else ""
    return " ".join(filter(None, (field.metadata.get("help", ""), choices_of_field)))


def type_name(kind: Any) -> str:
    """Return a type as people write it: `int`, `list[str]`, `str or null`."""
    text = kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)
    text = re.sub(r"(\w+\.)+", "", text).replace(" | None", " or null")
    return text.replace("dict[str, Any]", "keys")


def keys(schema: type, values: Mapping[str, Any], prefix: str = "") -> Iterator[Key]:
    """Yield the keys of a schema, those of nested schemas by dotted names; `values` as composed."""
    for field in dataclasses.fields(schema):
        kind, value = field.type, values[field.name] if field.name in values else default_of(field)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            inner = value if isinstance(value, dict) else {}
            yield from keys(kind, inner, f"{prefix}{field.name}.")
            continue
        shown = None if value == MISSING else plain(value)
        if shown is not None and len(shown) > LONGEST:
            shown = ""
        effect = ROLES.get(field.metadata.get("role", ""), "")
        yield Key(prefix + field.name, type_name(kind), shown, meaning_of(field), effect)


def order_keys(schema: type, values: Mapping[str, Any]) -> list[Key]:
    """Return the keys of a command; those of every stage come last."""
    common = {field.name for field in dataclasses.fields(StageConfig)}
    return sorted(keys(schema, values), key=lambda key: key.name in common)


def plain(value: Any) -> str:
    """Return a value as typed on a command line; references to other keys stay as they are."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {plain(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(plain, value)) + "]"
    return value if isinstance(value, str) and "${" in value else quote(value)


def groups(schema: type) -> list[str]:
    """Return the config groups that a command is composed of."""
    return [field.name for field in dataclasses.fields(schema) if choices(field.name)]


def print_help(name: str, schema: type, config: DictConfig) -> None:
    """Print a sentence about a command, the choices of groups, the keys with their values under its command line."""
    values: Any = OmegaConf.to_container(config)
    width = min(100, shutil.get_terminal_size().columns)
    bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    strong, plain_again = ("\033[1m", "\033[0m") if bold else ("", "")

    def entry_of(head: str, body: str) -> str:
        first, gap = f"  {head}", 34
        lines = textwrap.wrap(body, max(30, width - gap)) or [""]
        begin = first.ljust(gap) if len(first) < gap - 1 else f"{first}\n{' ' * gap}"
        begin = begin.replace(head, f"{strong}{head}{plain_again}", 1)
        return (begin + f"\n{' ' * gap}".join(lines)).rstrip()

    head = paragraphs(CONF / f"{name}.yaml")
    parts = [*("\n".join(textwrap.wrap(part, width)) for part in head), ""]
    chosen = groups(schema)
    if chosen:
        parts.append("Choices (GROUP=NAME):")
        parts += [entry_of(f"{group}=", ", ".join(choices(group))) for group in chosen]
        parts.append("")
    parts.append("Keys (KEY=VALUE), with their values now:")
    for key in order_keys(schema, values):
        group = key.name.partition(".")[0]
        unset = f"(set by {group}=NAME)" if group in chosen and "." in key.name else "???"
        now = unset if key.default is None else key.default or "…"
        entry = f"{key.name}={now}"
        if now.startswith("{") and len(entry) > width - 2:
            entry = f"{key.name}={{…}}"
        parts.append(entry_of(entry, key.meaning or key.type))
    parts += ["", "--cfg job prints the whole configuration; ??? has to be set."]
    print("\n".join(parts), flush=True)
