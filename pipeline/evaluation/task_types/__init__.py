"""Task types: conversion of files to samples, and of logits to answers and scores.

Each type is a module with a class that implements `TaskType`, the interface of fine-tuning.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any, Protocol, TypeVar
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from model.finetuning.features import Samples, TruncationConfig
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.console.formatting import pluralize
from pipeline.errors import InputError
from pipeline.evaluation.examples import dev_files
from pipeline.shards.holdout import document_hash, is_held_out
from pipeline.tokenization.wordpiece import WordPiece

Logits = Sequence[npt.NDArray[np.float32]]  # as returned by `loop.predict`
Scores = dict[str, float]
Given = list[Any]  # answers to a dataset, as JSON values
Keep = Callable[[str], bool]  # predicate: keep the example with this text?
Item = TypeVar("Item")

EMPTY = 2  # tokens of an empty text: [CLS] and [SEP], whatever a model calls them


@dataclass(frozen=True)
class Dataset:
    """One dataset of a task: model inputs and true answers."""

    samples: Samples
    truth: Given  # one JSON value per answer; empty in a test set
    extra: Any = None  # what the task type needs to convert logits to answers
    malformed: list[str] = field(default_factory=list)  # skipped rows: location and reason

    def __len__(self) -> int:
        return len(self.truth) or len(self.samples)


class TaskType(Protocol):
    """Interface of a task type."""

    head: str  # of model.finetuning.heads
    outputs: int  # of that head
    names: list[str]  # of its outputs, where they have some
    texts: int | None = None  # of a sample, where each is read as one or two

    def read(self, name: str, labelled: bool = True, rows: int | None = None, keep: Keep | None = None) -> Dataset:
        """Read file `name` of the task: the first `rows` of the examples that `keep` accepts."""

    def decode(self, part: Dataset, logits: Logits) -> Given:
        """Return the answers to a dataset, as JSON values."""

    def score(self, part: Dataset, answers: Given) -> Scores:
        """Return at least the task's metrics of the answers."""

    def majority_baseline(self, part: Dataset) -> Scores:
        """Return the scores of always giving the most frequent answer of the dataset itself."""

    def export(self, part: Dataset, answers: Given) -> dict[str, str]:
        """Return the answers in exchange formats other than the table, by file name; by default none."""
        return {}

    def marks(self, part: Dataset) -> dict[str, Any]:
        """Return what a saved model has to know of the words of a dataset: fields of `saved_model.Reading`."""
        return {}


def round_score(score: float) -> float:
    """Return a score with six decimals, or as many digits of a smaller one: scores have any scale."""
    return round(score, 6) if abs(score) >= 1 else float(f"{score:.6g}")


def chosen(items: Iterable[Item], keep: Keep | None, about: Callable[[Item], str], rows: int | None) -> list[Item]:
    """Return the first `rows` items whose text `about(item)` is accepted by `keep`."""
    return [item for item in items if keep is None or keep(about(item))][:rows]


def read_sides(kind: TaskType, task: TaskConfig, data: Path | str, rows: int | None) -> tuple[Dataset, Dataset]:
    """Return train, at most `rows` of it, and dev: two files in `data`, or one split by hash of the text.

    Raises:
        InputError: a file is missing or malformed, or train or dev is empty.
    """
    if not task.dev_share:
        return kind.read(task.train, rows=rows), kind.read(dev_files(data, task)[0])

    def is_dev(text: str) -> bool:
        return is_held_out(document_hash(normalize("NFC", text)), task.dev_share)

    train = kind.read(task.train, rows=rows, keep=lambda text: not is_dev(text))
    dev = kind.read(task.train, keep=is_dev)
    for name, part in (("train", train), ("dev", dev)):
        if not len(part):
            problem = f"leaves no examples of {task.train} for {name}; set another task.dev_share"
            raise InputError(problem, "task.dev_share", task.dev_share)
    return train, dev


def remarks_of(config: EvaluateConfig, train: Dataset, sets: Mapping[str, Dataset]) -> list[str]:
    """Return what makes a score doubtful: rows malformed, empty or of another set, classes in order or unseen.

    `sets` are those that are scored, dev and others, by name.
    """
    faults = faults_of(config.task, train, sets)
    remarks = [f"{pluralize(len(faults), 'malformed row')} skipped, {faults[0]}"] if faults else []
    chosen_by = {"train": train, "dev": sets["dev"]}
    rows = {"train": {*_contents(train.samples)}}
    for name, part in sets.items():  # of which dev is the first
        contents = _contents(part.samples)
        for other, known in rows.items():
            if same := sum(content in known for content in contents):
                remarks.append(f"{same:,} of {len(contents):,} {name} examples are in {other} too")
        if name == "dev":  # against which the others are held
            rows["dev"] = {*contents}
    every = [part.samples for part in (train, *sets.values())]
    if empty := sum(int((samples.lengths() <= EMPTY).sum()) for samples in every):
        remarks.append(f"{empty:,} of {sum(map(len, every)):,} examples have no text")
    for name, part in chosen_by.items() if config.task.has("classes") else ():
        there = {*(chain(*part.truth) if config.task.multilabel else part.truth)}
        unseen = [label for number, label in enumerate(config.task.labels) if number not in there]
        if unseen and (name == "train" or "macro_f1" in config.task.metrics):
            remarks.append(f"no row of {name} has the label {', '.join(unseen)}")
        if not config.task.labels and len(there) == 1:
            remarks.append(f"all {len(part):,} rows of {name} have the score {part.truth[0]:g}")
    classes = train.truth if config.task.has("classes") else []
    if config.maximum_rows == len(classes) and config.task.labels and not config.task.multilabel:
        runs = [label for label, _ in groupby(classes)]
        if len(runs) == len(set(classes)):
            counts = ", ".join(f"{classes.count(number):,} {label}" for number, label in enumerate(config.task.labels))
            remarks.append(f"maximum_rows={config.maximum_rows} of a file in order of classes ({counts}); shuffle it")
    return remarks


def faults_of(task: TaskConfig, train: Dataset, sets: Mapping[str, Dataset]) -> list[str]:
    """Return the malformed rows of a task's files; a dev set that is a part of the training file has the same."""
    parts = [train, *(part for name, part in sets.items() if name != "dev" or not task.dev_share)]
    return [fault for part in parts for fault in part.malformed]


def _contents(samples: Samples) -> list[bytes]:
    """Return the tokens of each sample, with where the second texts begin."""
    places = samples.bounds()
    each = [
        ids.tobytes() + bytes([0, *int(second).to_bytes(4, "big")])
        for ids, second in zip(samples.ids, samples.second, strict=True)
    ]
    return [b"".join(each[start:end]) for start, end in pairwise(places.tolist())]


def open_task_type(config: EvaluateConfig, task: TaskConfig, wordpiece: WordPiece) -> TaskType:
    """Return the type of `task`, with its files in `config.data`."""
    from pipeline.evaluation.task_types.classification import Choice, Classification
    from pipeline.evaluation.task_types.question_answering import Answers
    from pipeline.evaluation.task_types.token_classification import Tagging

    given, framing = (config.data, task, wordpiece), TruncationConfig(config.longest, config.truncation, config.chunks)
    types: dict[str, Callable[[], TaskType]] = {
        "classification": lambda: Classification(*given, framing),
        "choice": lambda: Choice(*given, framing),
        "tagging": lambda: Tagging(*given, config.longest),
        "answers": lambda: Answers(*given, config.longest, config.stride),
    }
    return types[task.kind]()
