"""The YAML files of `conf/`: where they are, their choices, and what their comments say."""

import itertools
from pathlib import Path

CONF = Path(__file__).resolve().parents[2] / "conf"


def choices(group: str) -> list[str]:
    """Return the names of the YAML files of a config group, sorted."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def first_comment(path: Path) -> str:
    """Return the comment at the head of a YAML file on one line; its settings if it has none."""
    lines = path.read_text(encoding="utf-8").splitlines()
    settings = [line for line in lines if line and not line.startswith(("#", "name:"))]
    return " ".join(paragraphs(path)) or "; ".join(settings)


def paragraphs(path: Path) -> list[str]:
    """Return the comment at the head of a YAML file; an empty comment line ends a paragraph."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = itertools.takewhile(lambda line: line.startswith("#"), lines)
    told = [line.lstrip("# ") for line in head if not line.startswith("# @package")]
    return [" ".join(part.split("\n")).strip() for part in "\n".join(told).split("\n\n") if part]
