"""Generated parts of pages, which would go stale if written by hand.

A line `<!-- reference: prepare -->` becomes the keys of that command and the choices of its config
groups, `<!-- include: CHANGELOG.md -->` a file of the repository, and `<!-- licences -->` those of
the dependencies.
"""

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
sys.path[:0] = [str(HERE), str(ROOT)]

licences = importlib.import_module("licences")
reference = importlib.import_module("reference")

LINK = re.compile(r"\[([^]]+)\]\((?!https?:)([^)#]+)(#[^)]*)?\)")  # text, file, anchor
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # repository files that are also pages

COMMAND = re.compile(r"^<!-- (reference|include|licences)(?:: ([\w./-]+))? -->$", re.M)


def include(name: str) -> str:
    """Return a file of the repository, for a page next to index.md."""
    return LINK.sub(_link, (ROOT / name).read_text(encoding="utf-8"))


def _link(found: re.Match[str]) -> str:
    """Convert a repository link to a link between pages, or to plain text for other files."""
    text, target, anchor = found[1], found[2], found[3] or ""
    if target.startswith("docs/") or target in PAGES:
        page = target.removeprefix("docs/") if target.startswith("docs/") else target.lower()
        return f"[{text}]({page}{anchor})"
    return f"`{target}::{text.strip('`')}`" if text.startswith("`test_") else text


WRITERS: dict[str, Callable[[str], str]] = {
    "reference": reference.keys,
    "include": include,
    "licences": lambda _: licences.table(),
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Expand the commands in a page."""
    return COMMAND.sub(lambda found: WRITERS[found[1]](found[2]), markdown)
