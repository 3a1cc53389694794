"""MkDocs hook that generates the parts of pages that would otherwise go stale.

A line between `<!-- clone -->` and `<!-- /clone -->` is for readers of the source, and left out. A
line `<!-- reference: prepare -->` becomes the keys of that command and the choices of its config
groups, `<!-- include: CHANGELOG.md -->` a file of the repository, and `<!-- licences -->` those of
what this project depends on.
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
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # files of the repository with a page

CLONE = re.compile(r"^<!-- clone -->\n.*?^<!-- /clone -->\n", re.M | re.S)
COMMAND = re.compile(r"^<!-- (reference|include|licences)(?:: ([\w./-]+))? -->$", re.M)


def include(name: str) -> str:
    """Return a file of the repository as a page next to index.md."""
    return LINK.sub(_link, (ROOT / name).read_text(encoding="utf-8"))


def _link(found: re.Match[str]) -> str:
    """Return a link of the repository as a link between pages, or the name of other files."""
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
    """Replace the commands of a page by their output."""
    return COMMAND.sub(lambda found: WRITERS[found[1]](found[2]), CLONE.sub("", markdown))
