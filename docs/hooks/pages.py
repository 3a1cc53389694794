"""What MkDocs puts into the pages: everything that would go stale if it were written by hand.

A line `<!-- reference: prepare -->` becomes the keys of that command and the choices of its config
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

LINK = re.compile(r"\[([^]]+)\]\((?!https?:)([^)#]+)(#[^)]*)?\)")  # its text, file, place in it
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # of the repository, pages here too

COMMAND = re.compile(r"^<!-- (reference|include|licences)(?:: ([\w./-]+))? -->$", re.M)


def include(name: str) -> str:
    """A file of the repository, for a page beside index.md."""
    return LINK.sub(_link, (ROOT / name).read_text(encoding="utf-8"))


def _link(found: re.Match[str]) -> str:
    """A link of the repository as one between pages; a file that is no page is only named."""
    text, target, place = found[1], found[2], found[3] or ""
    if target.startswith("docs/") or target in PAGES:
        page = target.removeprefix("docs/") if target.startswith("docs/") else target.lower()
        return f"[{text}]({page}{place})"
    return f"`{target}::{text.strip('`')}`" if text.startswith("`test_") else text


WRITERS: dict[str, Callable[[str], str]] = {
    "reference": reference.keys,
    "include": include,
    "licences": lambda _: licences.table(),
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Carry out the commands of a page."""
    return COMMAND.sub(lambda found: WRITERS[found[1]](found[2]), markdown)
