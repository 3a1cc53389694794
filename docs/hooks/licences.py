"""Licences of the installed dependencies, from the packages' metadata."""

import re
from collections.abc import Iterator
from importlib import metadata

PROJECT = "bert-pipeline"
TESTS_AND_PAGES = ("dev", "docs", "audit")  # extras for development only


def required(name: str, extras: tuple[str, ...] = ()) -> Iterator[str]:
    """Return the names of a package's dependencies on this machine."""
    from packaging.requirements import Requirement

    for line in metadata.requires(name) or []:
        wanted = Requirement(line)
        marks = [{"extra": extra} for extra in ("", *extras)]
        if wanted.marker is None or any(wanted.marker.evaluate(mark) for mark in marks):
            yield wanted.name


def licence(package: metadata.PackageMetadata) -> str:
    """Return a package's licence: an SPDX expression, else classifiers, else free text."""
    found = package.get("License-Expression")
    classifiers = [
        line.rpartition(" :: ")[2].removesuffix(" License")
        for line in package.get_all("Classifier") or []
        if line.startswith("License :: ")
    ]
    words = (package.get("License") or "").strip().splitlines()
    return found or ", ".join(classifiers) or (words[0][:60] if words else "not stated")


def table() -> str:
    """Return direct and indirect dependencies as Markdown."""
    found: dict[str, metadata.PackageMetadata] = {}
    extras = [e for e in metadata.metadata(PROJECT).get_all("Provides-Extra") or []]
    waiting = [*required(PROJECT, tuple(e for e in extras if e not in TESTS_AND_PAGES))]
    while waiting:
        name = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            continue
        waiting += required(name)
    rows = [f"| {p['Name']} | {p['Version']} | {licence(p)} |" for _, p in sorted(found.items())]
    return "\n".join(["| package | version | licence |", "|---|---|---|", *rows])
