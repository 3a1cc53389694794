"""Classification of, or regression on, sentences and sentence pairs, and choice of an ending."""

import numpy as np

from model.finetuning.features import Samples, TruncationConfig, tokenize
from pipeline.common.errors import InputError
from pipeline.config import TaskConfig
from pipeline.evaluation import examples, metrics, table_files
from pipeline.evaluation.task_types import Dataset, Given, Keep, Logits, Scores, chosen
from pipeline.tokenization.wordpiece import WordPiece


class Classification:
    """The task type of GLUE and of most custom tasks."""

    head = "class"

    def __init__(self, data: str, task: TaskConfig, wordpiece: WordPiece, framing: TruncationConfig):
        self._data, self._task, self._wordpiece, self._framing = data, task, wordpiece, framing
        self._classes = len(task.choices if self.head == "choice" else task.labels)
        self.outputs = self._classes or 1

    def read(self, name: str, labelled: bool = True, rows: int | None = None, keep: Keep | None = None) -> Dataset:
        """See `TaskType`."""
        found = examples.read_examples(self._data, self._task, name, labelled)
        places = range(len(found))
        found = found.take(chosen(places, keep, lambda place: found.first[place], rows))
        samples = tokenize(self._wordpiece, found.first, found.second, found.labels, self._framing)
        return Dataset(samples, found.labels if labelled else [], None, found.malformed)

    def decode(self, part: Dataset, logits: Logits) -> Given:
        """Return class indices, or scores rounded to six decimals."""
        if not self._classes:
            return [round(float(value[0]), 6) for value in logits]
        return [int(value.argmax()) for value in logits]

    def score(self, part: Dataset, answers: Given) -> Scores:
        """See `TaskType`."""
        return metrics.score(self._task.metrics, np.array(part.truth), np.array(answers))

    def majority_baseline(self, train: Dataset, dev: Dataset) -> Scores:
        """Score always predicting the most frequent class, or the mean."""
        truths = [np.array(part.truth, np.float64) for part in (train, dev)]
        return metrics.constant(self._task.metrics, truths[0], truths[1], self._classes)

    def export(self, part: Dataset, answers: Given) -> dict[str, str]:
        """Return no files, as the table is the exchange format."""
        return {}


class Choice(Classification):
    """The task type of a sentence, optionally the start of the next one, and several endings.

    Source: SWAG (Zellers et al. 2018; Devlin et al. 2019, section 4.4).
    """

    head = "choice"

    def read(self, name: str, labelled: bool = True, rows: int | None = None, keep: Keep | None = None) -> Dataset:
        """See `TaskType`.

        Raises:
            InputError: a label is not the number of an ending, from 0.
        """
        task, count = self._task, self.outputs
        place, content = examples.need(self._data, task, name)
        wanted = [*task.columns, *task.choices, *([task.label] if labelled else [])]
        table = table_files.parse(place, content, True, task.key, task.quoted, wanted)
        columns = examples.columns_of(table, wanted)
        first, second, truth = [], [], []
        every = zip(table.lines, table.rows, strict=True)
        for line, row in chosen(every, keep, lambda item: item[1][columns[0]], rows):
            fields = [row[column].strip() for column in columns]
            begun = fields[1] if len(task.columns) == 2 else ""
            endings = fields[len(task.columns) :][:count]
            first += [fields[0]] * count
            second += [f"{begun} {ending}".strip() for ending in endings]
            if labelled:
                if fields[-1] not in map(str, range(count)):
                    raise InputError(
                        f"label {fields[-1]!r} must be a number from 0 to {count - 1}", path=place, line=line
                    )
                truth.append(int(fields[-1]))
        pairs = tokenize(self._wordpiece, first, second, [0.0] * len(first), self._framing)
        number = len(first) // count
        labels = np.array(truth if labelled else [0] * number, np.float64)
        samples = Samples(pairs.ids, pairs.second, labels, np.arange(number + 1) * count)
        return Dataset(samples, truth, None, table.malformed)
