"""Kinds of tasks: how their files become samples, and logits become answers and scores.

Each kind is a module with a class of that protocol; the loop that fine-tunes knows no more of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from model.samples import Framing, Samples
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.text.wordpiece import WordPiece

Logits = Sequence[npt.NDArray[np.float32]]  # as `finetune.predict` gives them
Scores = dict[str, float]


@dataclass(frozen=True)
class Part:
    """One set of a task: what the model reads, and what it is measured by."""

    samples: Samples
    truth: list[Any]  # an entry an answer, JSON; empty in a test set
    extra: Any = None  # what the kind needs to make answers of logits
    malformed: list[str] = field(default_factory=list)  # rows left out: where and why

    def __len__(self) -> int:
        return len(self.truth) or len(self.samples)


class Kind(Protocol):
    """What a kind of task can do."""

    head: str  # of model.heads
    outputs: int  # of that head

    def read(self, name: str, labelled: bool = True, rows: int | None = None) -> Part:
        """File `name` of the task, or its first `rows`."""

    def decide(self, part: Part, logits: Logits) -> list[Any]:
        """The answers to a part, JSON."""

    def score(self, part: Part, answers: list[Any]) -> Scores:
        """The task's metrics of answers, at least."""

    def constant(self, train: Part, dev: Part) -> Scores:
        """What always giving the most frequent answer of train scores on dev."""


def framing_of(config: EvaluateConfig) -> Framing:
    """How a configuration wants texts cut."""
    return Framing(config.sequence_length, config.truncation, config.chunks)


def open_kind(config: EvaluateConfig, task: TaskConfig, wordpiece: WordPiece) -> Kind:
    """The kind of `task`, with its files in `config.data`."""
    from pipeline.kinds.answers import Answers
    from pipeline.kinds.choice import Choice
    from pipeline.kinds.classification import Classification
    from pipeline.kinds.tagging import Tagging

    if task.kind == "classification":
        return Classification(config.data, task, wordpiece, framing_of(config))
    if task.kind == "choice":
        return Choice(config.data, task, wordpiece, framing_of(config))
    if task.kind == "tagging":
        return Tagging(config.data, task, wordpiece, config.sequence_length)
    return Answers(config.data, task, wordpiece, config.sequence_length, config.stride)
