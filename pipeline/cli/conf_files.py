"""The YAML files of `conf/`: their location, choices and leading comments."""

import difflib
import itertools
from collections.abc import Iterable
from pathlib import Path

from pipeline.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parents[1]
# A wheel has conf/ within this package (setup.py), the repository next to it.
CONF = (_PACKAGE if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent) / "conf"


def choices(group: str, *folders: Path) -> list[str]:
    """Return the sorted names of the YAML files of a config group, also in more `folders`."""
    return sorted({path.stem for conf in (CONF, *folders) for path in (conf / group).glob("*.yaml")})


def unknown_choice(group: str, name: str, allowed: Iterable[str]) -> ConfigError:
    """Return the error for a `name` that is not in `allowed`, suggesting the closest one."""
    listed = list(allowed)
    near = difflib.get_close_matches(name, listed, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return ConfigError(f"no such {group}; {meant}choose one of {', '.join(listed)}", group, name)


def first_comment(path: Path) -> str:
    """Return the leading comment of a YAML file on one line, or its settings if it has none."""
    lines = path.read_text(encoding="utf-8").splitlines()
    settings = [line for line in lines if line and not line.startswith(("#", "name:"))]
    return " ".join(paragraphs(path)) or "; ".join(settings)


def paragraphs(path: Path) -> list[str]:
    """Return the leading comment of a YAML file; an empty comment line ends a paragraph."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = itertools.takewhile(lambda line: line.startswith("#"), lines)
    text = [line.lstrip("# ") for line in head if not line.startswith("# @package")]
    return [" ".join(part.split("\n")).strip() for part in "\n".join(text).split("\n\n") if part]
