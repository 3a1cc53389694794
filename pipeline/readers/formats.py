"""What files are, by their names and by how they begin: the reader that is for them, or what converts them."""

import re
from collections import Counter
from pathlib import PurePosixPath

from pipeline.common.tables import read_table
from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError
from pipeline.readers.io import compressed

_KINDS = [{"named": "", "begins": "", **kind} for kind in read_table(__file__, "formats.yaml")]
_BEGINS = [(re.compile(kind["begins"]), kind) for kind in _KINDS if kind["begins"]]
_NUMBERED = re.compile(r"^\d+\t[^\t\n]*+(\t)?", re.MULTILINE)
_LOOKED_AT, _NEARLY = 20, 0.9  # lines at least, and which share of them tells


def by_name(name: str) -> str | None:
    """Return what a file is that is not prose, and what to type; None where its name does not say."""
    name = compressed.plain_name(name).lower()
    found = next((kind for kind in _KINDS if kind["named"] and name.endswith(tuple(kind["named"].split()))), None)
    return f"is {found['what']}; use {found['use']}" if found else None


def check_name(corpus: CorpusConfig, name: str, suffixes: tuple[str, ...]) -> None:
    """Raise ConfigError for a file whose name says that another reader is for it."""
    if not name.lower().endswith(suffixes) and (why := by_name(name)):
        raise ConfigError(f"{why}, not with corpus.reader={corpus.reader}", "corpus.path", corpus.path)


def cures(names: list[str]) -> str:
    """Return what to type for the most frequent kind of some files; empty where none is known."""
    ends = Counter(PurePosixPath(compressed.plain_name(name).lower()).suffix for name in names)
    ends[".json"] = min(ends[".json"], 1)  # next to files of many kinds
    known = [(count, end, why) for end, count in ends.items() if count and (why := by_name(f"a{end}"))]
    return "; {1} {2}".format(*max(known, key=lambda each: (each[0], each[1] != ".json"))) if known else ""


def not_prose(head: str) -> str | None:
    """Return what a text is that is not prose, by its beginning, and what to type; None for prose."""
    head = head.removeprefix("\ufeff")
    return next((f"is {kind['what']}; use {kind['use']}" for begins, kind in _BEGINS if begins.match(head)), None)


def numbers(head: str) -> str | None:
    """Return what to type for a text nearly all of whose lines begin with a number and a tab; None for others."""
    lines = head.count("\n", 0, head.rfind("\n") + 1)
    found = _NUMBERED.findall(head)
    if lines < _LOOKED_AT or len(found) < _NEARLY * lines:
        return None
    if sum(map(bool, found)) > _NEARLY * lines:
        return "is a table of numbered rows, as of words and their counts; use corpus=tsv, or sentences"
    return (
        "nearly every line begins with its number; type +corpus=text corpus.options.document=line "
        "corpus.options.numbered=true to leave it out (false keeps it)"
    )
