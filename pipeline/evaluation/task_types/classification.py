"""Classification of, or regression on, sentences and sentence pairs."""

from typing import Any

import numpy as np

from model.finetuning.features import TruncationConfig, tokenize
from pipeline.config import TaskConfig
from pipeline.evaluation import examples, metrics
from pipeline.evaluation.task_types import Dataset, Keep, Logits, Scores, chosen
from pipeline.tokenization.wordpiece import WordPiece


class Classification:
    """The task type of GLUE and of most custom tasks."""

    head = "class"

    def __init__(self, data: str, task: TaskConfig, wordpiece: WordPiece, framing: TruncationConfig):
        self._data, self._task, self._wordpiece, self._framing = data, task, wordpiece, framing
        self.outputs = len(task.labels) or 1

    def read(self, name: str, labelled: bool = True, rows: int | None = None, keep: Keep | None = None) -> Dataset:
        """See `TaskType`."""
        found = examples.read_examples(self._data, self._task, name, labelled)
        places = range(len(found))
        found = found.take(chosen(places, keep, lambda place: found.first[place], rows))
        samples = tokenize(self._wordpiece, found.first, found.second, found.labels, self._framing)
        return Dataset(samples, found.labels if labelled else [], None, found.malformed)

    def decode(self, part: Dataset, logits: Logits) -> list[Any]:
        """Return class indices, or scores rounded to six decimals."""
        if not self._task.labels:
            return [round(float(value[0]), 6) for value in logits]
        return [int(value.argmax()) for value in logits]

    def score(self, part: Dataset, answers: list[Any]) -> Scores:
        """See `TaskType`."""
        return metrics.score(self._task.metrics, np.array(part.truth), np.array(answers))

    def majority_baseline(self, train: Dataset, dev: Dataset) -> Scores:
        """Score always predicting the most frequent class, or the mean."""
        truths = [np.array(part.truth, np.float64) for part in (train, dev)]
        return metrics.constant(self._task.metrics, truths[0], truths[1], len(self._task.labels))

    def export(self, part: Dataset, answers: list[Any]) -> dict[str, str]:
        """Return no files, as the table is the exchange format."""
        return {}
