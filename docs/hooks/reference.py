"""The reference of a command as Markdown."""

from collections.abc import Iterator
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from pipeline import config as schemas
from pipeline.cli import composing, conf_files
from pipeline.cli.conf_files import first_comment
from pipeline.cli.help_text import groups, order_keys
from pipeline.config import RunConfig
from pipeline.stages.registry import STAGES


def commands() -> Iterator[tuple[str, type]]:
    """Yield the commands that have a configuration, with their schemas."""
    yield from {**{name: stage.schema for name, stage in STAGES.items()}, "run": RunConfig}.items()
    for path in sorted(conf_files.CONF.glob("*.yaml")):
        schema = getattr(schemas, f"{path.stem.capitalize()}Config", None)
        if schema is not None and path.stem not in STAGES and path.stem != "run":
            yield path.stem, schema


COMMANDS: dict[str, type] = dict(commands())


def defaults(command: str) -> dict[str, Any]:
    """Return the composed configuration of a command with an empty command line."""
    for name, schema in COMMANDS.items():
        composing.register(name, schema)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_files.CONF), version_base="1.3"):
        values = OmegaConf.to_container(compose(command))
    assert isinstance(values, dict)
    return {str(key): {} if key == "stages" else value for key, value in values.items()}


def cell(text: str) -> str:
    """Escape text for a table cell."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def keys(command: str) -> str:
    """Return a table of the keys and the config groups of a command."""
    schema = COMMANDS[command]
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key in order_keys(schema, defaults(command)):
        shown = f"`{key.default}`" if key.default else "see below"
        shown = "**must be set**" if key.default is None else shown
        row = (f"`{key.name}`", key.type, shown, cell(f"{key.meaning} {key.effect}".strip()))
        rows.append("| " + " | ".join(row) + " |")
    parts = [f"### `{group}=`\n\n{choices(group)}" for group in groups(schema)]
    return "\n\n".join(["\n".join(rows), *parts])


def choices(group: str) -> str:
    """Return a table of the files of a config group with their leading comments."""
    rows = ["| choice | meaning |", "|---|---|"]
    for path in sorted((conf_files.CONF / group).glob("*.yaml")):
        rows.append(f"| `{path.stem}` | {cell(first_comment(path))} |")
    return "\n".join(rows)
