"""Several corpora in one run, each with a weight.

A weight of 0.25 keeps each document with a probability of a quarter; one of 2.5 has each learnt
from twice, and every other one a third time. The choice is a function of the document's text and of
the seed, so it depends on neither the order of files nor on how the work is cut.
"""

import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Iterator, Mapping

import numpy as np

from pipeline import readers
from pipeline.common import counter_rng
from pipeline.common.errors import ConfigError, UserError
from pipeline.config import CorpusConfig, DownloadFile
from pipeline.readers import Document, FileRange, SkipCounts

MOST = 1000  # times that a document may be repeated


class Reader:
    """Reads the corpora in `corpus.parts`, in the order of their names."""

    def __init__(self, corpus: CorpusConfig, source: str, *, seed: int = 0):
        if len(corpus.parts) < 1:
            raise ConfigError("corpus.parts: at least one corpus is needed, with a weight")
        self.parts: dict[str, tuple[CorpusConfig, float, readers.Reader]] = {}
        self.seed = seed
        for name in sorted(corpus.parts):
            part, weight = part_config(corpus, name)
            with keys_of_part(name):
                self.parts[name] = part, weight, readers.open_corpus(part, source)

    def splits(self, split_bytes: int) -> list[FileRange]:
        """The splits of all parts; one of weight 0 has none."""
        found = []
        for name, (_, weight, reader) in self.parts.items():
            with keys_of_part(name):
                splits = reader.splits(split_bytes) if weight > 0 else []
            found += [dataclasses.replace(split, part=name) for split in splits]
        return found

    def read(self, split: FileRange, tally: SkipCounts) -> Iterator[Document]:
        """Documents of one part that its weight keeps; counted by part."""
        part, weight, reader = self.parts[split.part]
        inner = SkipCounts(part.on_error)
        key = counter_rng.key(self.seed, "mix", split.part)
        try:
            for document in reader.read(split, inner):
                copies = repeat_count(key, document.text, weight)
                if not copies:
                    inner["sampled out"] += 1
                    continue
                inner.notes["documents"] += 1
                inner.notes["repeats"] += copies - 1
                yield dataclasses.replace(
                    document,
                    id=f"{split.part}: {document.id}",
                    language=document.language or part.language,
                    copies=copies,
                )
        finally:
            inner.notes = +inner.notes  # without zeros
            tally.take(inner, f"{split.part}: ")


@contextlib.contextmanager
def keys_of_part(name: str) -> Iterator[None]:
    """Have errors of the body name the keys of a part of the mix, not those of the mix.

    Raises:
        UserError: in place of the body's.
    """
    try:
        yield
    except UserError as error:
        part = rf"corpus.parts.{name}."
        raise type(error)(
            re.sub(r"\bcorpus\.(?!parts\.)", lambda _: part, str(error)),
            key=error.key and error.key.replace("corpus.", part, 1),
            path=error.path,
            line=error.line,
        ) from error


def repeat_count(key: np.uint64, text: str, weight: float) -> int:
    """How often a document is learnt from; on average `weight` times."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    drawn = counter_rng.uniform(key, np.uint64(int.from_bytes(digest, "big")))
    return int(weight) + bool(drawn < weight - int(weight))


def part_config(corpus: CorpusConfig, name: str) -> tuple[CorpusConfig, float]:
    """The configuration of a part, and its weight.

    Raises:
        ConfigError: it is incomplete, has an unknown key, or a weight that cannot be.
    """
    key = f"corpus.parts.{name}"
    settings = corpus.parts[name]
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{key}: a corpus with keys of its own, such as reader, path and weight")
    settings = {"name": name, "on_error": corpus.on_error, **settings}
    weight = settings.pop("weight", 1.0)
    if not isinstance(weight, int | float) or not 0 <= weight <= MOST:
        raise ConfigError(f"{key}.weight={weight}: from 0 to {MOST}")
    known = {field.name for field in dataclasses.fields(CorpusConfig)}
    if unknown := sorted(set(settings) - known):
        raise ConfigError(f"{key}.{unknown[0]}: no such key; there are weight, {', '.join(known)}")
    if "reader" not in settings:
        raise ConfigError(f"{key}.reader: say how it is read")
    if settings["reader"] == "mix":
        raise ConfigError(f"{key}.reader=mix: no mix in a mix; name its parts beside this one")
    try:
        settings["files"] = [DownloadFile(**file) for file in settings.get("files") or []]
    except TypeError as error:
        raise ConfigError(f"{key}.files: each has url, and sums or digest ({error})") from error
    part = CorpusConfig(**settings)
    if part.files and part.path is None:
        raise ConfigError(
            f"{key}.path: where are its files? python -m pipeline.download with this "
            f"corpus alone fetches them to work/{part.name}/download"
        )
    return part, float(weight)
