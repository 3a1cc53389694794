"""Kinds of tasks: how their files become samples, and logits become answers and scores.

Each kind is a module with a class of that protocol; the loop that fine-tunes knows no more of it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from model.finetuning.features import Samples, TruncationConfig
from pipeline.common.errors import InputError
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.shards.sentence_pairs import document_hash, held_out
from pipeline.tokenization.wordpiece import WordPiece

Logits = Sequence[npt.NDArray[np.float32]]  # as `finetune.predict` gives them
Scores = dict[str, float]
Keep = Callable[[str], bool]  # whether what a text is about is read
Item = TypeVar("Item")


@dataclass(frozen=True)
class Dataset:
    """One set of a task: what the model reads, and what it is measured by."""

    samples: Samples
    truth: list[Any]  # an entry an answer, JSON; empty in a test set
    extra: Any = None  # what the kind needs to make answers of logits
    malformed: list[str] = field(default_factory=list)  # rows left out: where and why

    def __len__(self) -> int:
        return len(self.truth) or len(self.samples)


class TaskType(Protocol):
    """What a kind of task can do."""

    head: str  # of model.finetuning.heads
    outputs: int  # of that head

    def read(
        self, name: str, labelled: bool = True, rows: int | None = None, keep: Keep | None = None
    ) -> Dataset:
        """File `name` of the task, or the first `rows` of what `keep` keeps."""

    def decide(self, part: Dataset, logits: Logits) -> list[Any]:
        """The answers to a part, JSON."""

    def score(self, part: Dataset, answers: list[Any]) -> Scores:
        """The task's metrics of answers, at least."""

    def constant(self, train: Dataset, dev: Dataset) -> Scores:
        """What always giving the most frequent answer of train scores on dev."""

    def files(self, part: Dataset, answers: list[Any]) -> dict[str, str]:
        """The answers to a part as others exchange them, by name of the file; besides the table."""


def chosen(
    items: Iterable[Item], keep: Keep | None, about: Callable[[Item], str], rows: int | None
) -> list[Item]:
    """The first `rows` of the items that `keep` keeps for what they are about."""
    return [item for item in items if keep is None or keep(about(item))][:rows]


def read_sides(kind: TaskType, task: TaskConfig, rows: int | None) -> tuple[Dataset, Dataset]:
    """Train, at most `rows` of it, and dev: two files, or one by the hash of what it is about.

    Raises:
        InputError: a file is missing or broken, or a side is empty.
    """
    if not task.dev_share:
        return kind.read(task.train, rows=rows), kind.read(task.dev)

    def is_dev(text: str) -> bool:
        return held_out(document_hash(text), task.dev_share)

    train = kind.read(task.train, rows=rows, keep=lambda text: not is_dev(text))
    dev = kind.read(task.train, keep=is_dev)
    for name, part in (("train", train), ("dev", dev)):
        if not len(part):
            raise InputError(f"task.dev_share={task.dev_share}: {task.train} leaves {name} empty")
    return train, dev


def framing_of(config: EvaluateConfig) -> TruncationConfig:
    """How a configuration wants texts cut."""
    return TruncationConfig(config.sequence_length, config.truncation, config.chunks)


def open_task_type(config: EvaluateConfig, task: TaskConfig, wordpiece: WordPiece) -> TaskType:
    """The kind of `task`, with its files in `config.data`."""
    from pipeline.evaluation.task_types.classification import Classification
    from pipeline.evaluation.task_types.multiple_choice import Choice
    from pipeline.evaluation.task_types.question_answering import Answers
    from pipeline.evaluation.task_types.token_classification import Tagging

    if task.kind == "classification":
        return Classification(config.data, task, wordpiece, framing_of(config))
    if task.kind == "choice":
        return Choice(config.data, task, wordpiece, framing_of(config))
    if task.kind == "tagging":
        return Tagging(config.data, task, wordpiece, config.sequence_length)
    return Answers(config.data, task, wordpiece, config.sequence_length, config.stride)
