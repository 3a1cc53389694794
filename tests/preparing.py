"""Settings of `prepare`, of which a test names what it needs, and vocabularies."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline.cli import composing
from pipeline.config import CorpusConfig, PrepareConfig, RunnerConfig
from pipeline.tokenization.wordpiece import SPECIAL, build


def settings(reader: str, path: Path | str, vocab: Path | str, **more: Any) -> PrepareConfig:
    """Return the settings for files that a reader reads, with the vocabulary in a folder."""
    own = {key: more.pop(key) for key in ("language", "limit", "on_error", "options") if key in more}
    usual: dict[str, Any] = {"runner": RunnerConfig(), "source": "s", "out": "out"}
    if "corpus" not in more:
        usual["corpus"] = CorpusConfig(name="c", reader=reader, path=str(path), **own)
    return PrepareConfig(vocab=str(vocab), **(usual | more))


def composed(*words: str) -> PrepareConfig:
    """Return the settings of a command line."""
    config = composing.compose("prepare", PrepareConfig, list(words))
    assert config is not None
    return composing.validate(config, PrepareConfig)


def vocabulary(folder: Path, entries: Iterable[str]) -> Path:
    """Write a vocabulary of these words in lower case; return its folder."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(build([*SPECIAL, *entries], lowercase=True))
    return folder
