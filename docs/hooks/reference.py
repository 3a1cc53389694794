"""The reference of a command: keys, types, defaults and meanings, from schema and YAML."""

import ast
import dataclasses
import inspect
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import MISSING, OmegaConf

from pipeline import entry
from pipeline.config import RunConfig, StageConfig
from pipeline.dag import SCHEMAS, quoted

COMMANDS: dict[str, type] = {**SCHEMAS, "run": RunConfig}
LONGEST = 120  # characters of a default that a table can show
ROLES = {"input": "Something that is read.", "incidental": "Does not change what is made."}


@dataclasses.dataclass(frozen=True)
class Key:
    """A row of the reference."""

    name: str
    type: str
    default: str
    meaning: str


def comments(schema: type) -> dict[str, str]:
    """What the comments of a dataclass say of its fields: after the field, else above it."""
    source = inspect.getsource(schema)
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.ClassDef)
    words = {
        token.start[0]: (token.start[1], token.string.lstrip("# "))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith("# fmt:")
    }
    lines = source.splitlines()
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        assert node.end_lineno is not None
        own = [words[n][1] for n in range(node.lineno, node.end_lineno + 1) if n in words]
        above = []
        number = node.lineno - 1
        while number in words and lines[number - 1].lstrip().startswith("#"):
            above.append(words[number][1])
            number -= 1
        found[node.target.id] = " ".join(own or reversed(above))
    return found


def meanings(schema: type) -> dict[str, str]:
    """The comments of a schema and of those that it is made from."""
    found: dict[str, str] = {}
    for base in reversed(schema.__mro__):
        if dataclasses.is_dataclass(base):
            found |= comments(base)
    return found


def type_name(kind: Any) -> str:
    """A type as people write it: `int`, `list[str]`, `str or null`."""
    text = kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)
    text = text.replace("typing.", "").replace(" | None", " or null")
    return re.sub(r"dict\[str, Any\]", "keys", re.sub(r"(\w+\.)+", "", text))


def walk(schema: type, values: Mapping[str, Any], prefix: str = "") -> Iterator[Key]:
    """The keys of a schema, those of nested schemas by dotted names; `values` as composed."""
    told = meanings(schema)
    for field in dataclasses.fields(schema):
        value, kind = values.get(field.name, MISSING), field.type
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield from walk(
                kind, value if isinstance(value, dict) else {}, f"{prefix}{field.name}."
            )
            continue
        if field.name not in values and field.default is not dataclasses.MISSING:
            value = field.default
        elif field.name not in values and field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        role = ROLES.get(field.metadata.get("role", ""), "")
        meaning = told.get(field.name, "")
        sentence = meaning[:1].upper() + meaning[1:] + ("." if meaning else "")
        shown = "**must be set**" if value == MISSING else f"`{plain(value)}`"
        shown = shown if len(shown) < LONGEST else "see below"
        yield Key(prefix + field.name, type_name(kind), shown, f"{sentence} {role}".strip())


def plain(value: Any) -> str:
    """A value as one types it on a command line; what refers to other keys stays as it is."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {plain(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(plain, value)) + "]"
    return value if isinstance(value, str) and "${" in value else quoted(value)


def defaults(command: str) -> dict[str, Any]:
    """The configuration of a command as composed, with nothing on its command line."""
    for name, schema in COMMANDS.items():
        entry.register(name, schema)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(entry.CONF), version_base="1.3"):
        values = OmegaConf.to_container(compose(command))
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def keys(command: str) -> str:
    """The reference of a command as Markdown: a table, and the config groups it is composed of."""
    schema = COMMANDS[command]
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    own, common = [], []
    for key in walk(schema, defaults(command)):
        cells = (f"`{key.name}`", key.type, key.default, key.meaning)
        line = "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        everywhere = key.name in {f.name for f in dataclasses.fields(StageConfig)}
        (common if everywhere and issubclass(schema, StageConfig) else own).append(line)
    text = "\n".join([*rows, *own, *common])
    groups = [field.name for field in dataclasses.fields(schema) if entry.choices(field.name)]
    parts = [f"### `{group}=`\n\n{choices(group)}" for group in groups]
    return "\n\n".join([text, *parts])


def choices(group: str) -> str:
    """The files of a config group, each with the comment that it begins with."""
    rows = ["| choice | what it is |", "|---|---|"]
    for path in sorted((entry.CONF / group).glob("*.yaml")):
        rows.append(f"| `{path.stem}` | {first_comment(path)} |")
    return "\n".join(rows)


def first_comment(path: Path) -> str:
    """The comment at the head of a YAML file, on one line; its settings where it has none."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = []
    for line in lines:
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            head.append(line.lstrip("# ").replace("|", "\\|").replace("<", "&lt;"))
    settings = [line for line in lines if line and not line.startswith(("#", "name:"))]
    told = "; ".join(settings).replace("|", "\\|")
    return " ".join(head) or (f"`{told}`" if told else "")
