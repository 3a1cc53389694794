"""Corpora of the Hugging Face hub, bound to one commit before anything is read."""

from collections.abc import MutableMapping
from typing import Any

from pipeline.common import storage


def pin(config: Any, known: MutableMapping[str, str] | None = None) -> None:
    """Replace the revisions in a configuration's addresses of the hub by their commits.

    A branch may move while a stage or a run reads it. `known` keeps the commits of several
    configurations: each address is resolved once.

    Raises:
        ConfigError, StoreError: the data set is missing, or the token may not see it.
        Restart: the hub does not answer.
    """
    known = {} if known is None else known

    def pinned(place: str) -> str:
        if place not in known:
            known[place] = storage.pinned(place)
        return known[place]

    corpus = getattr(config, "corpus", None)
    if corpus is None:
        return
    if corpus.path is not None:
        corpus.path = pinned(corpus.path)
    for part in corpus.parts.values():
        if isinstance(part, MutableMapping) and part.get("path"):
            part["path"] = pinned(str(part["path"]))
