"""Settings of `prepare`, of which a test names what it needs."""

from pathlib import Path
from typing import Any

from pipeline.config import CorpusConfig, PrepareConfig, RunnerConfig


def settings(reader: str, path: Path | str, vocab: Path | str, **more: Any) -> PrepareConfig:
    """Return the settings for files that a reader reads, with the vocabulary in a folder."""
    own = {key: more.pop(key) for key in ("language", "limit", "options") if key in more}
    corpus = CorpusConfig(name="c", reader=reader, path=str(path), **own)
    usual = {"runner": RunnerConfig(), "source": "", "out": ""}
    return PrepareConfig(corpus=corpus, vocab=str(vocab), **(usual | more))
