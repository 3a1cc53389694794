"""Settings of `prepare`, of which a test names what it needs, vocabularies, documents and runs."""

import random
import shlex

from pipeline.config import CorpusConfig, PrepareConfig, RunnerConfig
from pipeline.records.manifest import require_manifest
from pipeline.tokenization.wordpiece import SPECIAL, build
from tests.support import forked


def settings(reader, path, vocab, **more):
    """Return the settings for files that a reader reads, with the vocabulary in a folder."""
    own = {key: more.pop(key) for key in ("language", "limit", "on_error", "options") if key in more}
    usual = {"runner": RunnerConfig(), "source": "s", "out": "out"}
    if "corpus" not in more:
        usual["corpus"] = CorpusConfig(name="c", reader=reader, path=str(path), **own)
    return PrepareConfig(vocab=str(vocab), **(usual | more))


def vocabulary(folder, entries):
    """Write a vocabulary of these words in lower case; return its folder."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(build([*SPECIAL, *entries], lowercase=True))
    return folder


def random_documents(folder, seed, words, lines, size):
    """Write a vocabulary of letters; return documents of `size` of the lines, each of 12 of so many words."""
    draw, letters = random.Random(seed), "abcdefghijklmnopqrstuvwxyz"
    vocabulary(folder, [*letters, *(f"##{letter}" for letter in letters), "."])
    every = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(words)]
    drawn = [" ".join(draw.choices(every, k=12)) + "." for _ in range(lines)]
    return ["\n".join(drawn[start : start + size]) for start in range(0, lines, size)]


def run(out, words, *more):
    """Run the command with these words in a process; return the manifest of what it has made."""
    done = forked.module("pipeline.prepare", f"out={out}", *shlex.split(words), *more)
    assert done.returncode == 0, done.stderr
    return require_manifest(out, "prepare", "out")
