"""Resolved configurations as files: a run passes a stage its settings with `--from FILE`."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.common.atomic import write_text
from pipeline.common.errors import InputError

OPTION = "--from"


def write(path: Path, config: Any) -> None:
    """Write the dataclass `config` to `path` as YAML, readable by its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Non-ASCII characters are escaped, as YAML reads U+0085 and others back as line breaks.
    text = yaml.safe_dump(_escaped(dataclasses.asdict(config)), sort_keys=False)
    write_text(path, text, mode=0o600)


def read(path: Path, schema: type, overrides: list[str]) -> DictConfig:
    """Read a resolved configuration and apply `overrides`, each `KEY=VALUE`.

    Raises:
        InputError: the file is missing, or is not a configuration of `schema`.
        HydraException, OmegaConfBaseException: an override is invalid.
    """
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(loaded, dict):
            raise InputError("is not a configuration", path=path)
        config = OmegaConf.merge(OmegaConf.structured(schema), loaded)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", path=path) from error
    except (UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"is not a configuration ({reason})", path=path) from error
    assert isinstance(config, DictConfig)
    for override in OverridesParser.create().parse_overrides(overrides):
        OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
    return config


def _escaped(value: Any) -> Any:
    """Return the value with `${` escaped, so that it is not read as an interpolation."""
    if isinstance(value, str):
        # In OmegaConf's grammar backslashes before an interpolation are escaped too.
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value
