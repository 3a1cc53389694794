"""Classification of, or regression on, sentences and sentence pairs, and choice of an ending."""

import numpy as np
import numpy.typing as npt

from model.finetuning.features import Samples, TruncationConfig, tokenize
from pipeline.config import TaskConfig
from pipeline.evaluation import examples, metrics
from pipeline.evaluation.task_types import Dataset, Given, Keep, Logits, Scores, TaskType, chosen, round_score
from pipeline.tokenization.wordpiece import WordPiece


class Classification(TaskType):
    """The task type of GLUE and of most custom tasks."""

    head = "class"

    def __init__(self, data: str, task: TaskConfig, wordpiece: WordPiece, framing: TruncationConfig):
        self._data, self._task, self._wordpiece, self._framing = data, task, wordpiece, framing
        self._classes = len(task.choices or task.labels)
        self.names = task.labels
        self.outputs, self.texts = self._classes or 1, None if task.choices else len(task.columns)

    def read(self, name: str, labelled: bool = True, rows: int | None = None, keep: Keep | None = None) -> Dataset:
        """See `TaskType`."""
        every, malformed = examples.read_examples(self._data, self._task, name, labelled)
        taken = chosen(every, keep, lambda example: example[0][0], rows)
        labels: Given = [label for _, label in taken]
        texts = [texts for texts, _ in taken]
        return Dataset(
            self._samples(texts, self._numbers(labels).tolist()), labels if labelled else [], texts, malformed
        )

    def _numbers(self, values: Given) -> npt.NDArray[np.float64]:
        """Return classes or scores `(N,)`, or whether each of several classes is there `(N, C)`."""
        if not self._task.multilabel:
            return np.array(values, np.float64)
        return np.array([np.isin(np.arange(self._classes), one) for one in values], np.float64)

    def _samples(self, texts: list[tuple[str, ...]], labels: list[float]) -> Samples:
        second = [text for one in texts for text in one[1:]]
        return tokenize(self._wordpiece, [one[0] for one in texts], second or None, labels, self._framing)

    def decode(self, part: Dataset, logits: Logits) -> Given:
        """Return class indices, lists of them if several are right, or rounded scores."""
        if not self._classes:
            return [round_score(float(value[0])) for value in logits]
        if self._task.multilabel:
            return [np.flatnonzero(value > 0).tolist() for value in logits]
        return [int(value.argmax()) for value in logits]

    def score(self, part: Dataset, answers: Given) -> Scores:
        """See `TaskType`."""
        return metrics.score(self._task.metrics, self._numbers(part.truth), self._numbers(answers))

    def majority_baseline(self, part: Dataset) -> Scores:
        """Score always predicting the most frequent class, or the mean."""
        return metrics.constant(self._task.metrics, self._numbers(part.truth), self._classes)


class Choice(Classification):
    """The task type of a sentence, optionally the start of the next one, and several endings.

    Source: SWAG (Zellers et al. 2018; Devlin et al. 2019, section 4.4).
    """

    head = "choice"

    def _samples(self, texts: list[tuple[str, ...]], labels: list[float]) -> Samples:
        count = self.outputs
        first = [one[0] for one in texts for _ in range(count)]
        second = [" ".join([*one[1:-count], ending]).strip() for one in texts for ending in one[-count:]]
        pairs = tokenize(self._wordpiece, first, second, [0.0] * len(first), self._framing)
        groups = np.arange(len(texts) + 1) * count
        return Samples(pairs.ids, pairs.second, np.array(labels, np.float64), groups)
