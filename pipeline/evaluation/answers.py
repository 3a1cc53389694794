"""Answers to dev and test sets, as files: `index<TAB>prediction`, labels as in the training set."""

import csv
import functools
import io
import itertools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline.cli import conf_files
from pipeline.common.schema import check
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.errors import InputError
from pipeline.evaluation import examples, table_files
from pipeline.evaluation.task_types import Dataset, Given, open_task_type
from pipeline.storage.atomic import write_text

FOLDER = "submission"  # of an evaluation: the answers to test sets
WRONG, LONGEST = 10, 300  # wrong answers that a record keeps, and characters of each text
CLASSES = 100  # of which a table has a row and a column each


@functools.cache
def server_tasks() -> dict[str, TaskConfig]:
    """Return the tasks that the GLUE server scores, by submission file name."""
    every = map(examples.task_of, conf_files.choices("task"))
    return {task.submission: task for task in every if task.submission and task.test_rows}


def rows(task: TaskConfig, answers: Given) -> str:
    """Return the text of a file of answers: a header and one answer per line."""
    return table(word(task, answer) for answer in answers)


def dev_rows(task: TaskConfig, part: Dataset, answers: Given) -> str:
    """Return the answers to a dev set, to texts with their labels: the set may be a share of a file.

    Labels and texts with quotation marks are quoted, as readers of CSV expect.
    """
    if not task.has("classes"):
        return rows(task, answers)
    writer = csv.writer(file := io.StringIO(), delimiter="\t", lineterminator="\n")
    writer.writerow([*table(()).split(), "label", *(f"text {place}" for place, _ in enumerate(part.extra[0], 1))])
    for index, (answer, label, texts) in enumerate(zip(answers, part.truth, part.extra, strict=True)):
        writer.writerow([index, *(" ".join(text.split()) for text in (word(task, answer), word(task, label), *texts))])
    return file.getvalue()


def submission_rows(task: TaskConfig, answers: Given) -> str:
    """Return the text of a submission file; scores are as the GLUE server wants them, if it does.

    These are from 0 to 5, with three decimals (https://gluebenchmark.com/faq).
    """
    if task.submission in server_tasks() and not task.labels:
        return table(f"{min(max(float(answer), 0.0), 5.0):.3f}" for answer in answers)
    return rows(task, answers)


def table(words: Iterable[str]) -> str:
    """Return a header and one line per word, numbered from 0."""
    return "index\tprediction\n" + "".join(f"{index}\t{word}\n" for index, word in enumerate(words))


def word(task: TaskConfig, answer: Any) -> str:
    """Format an answer: a label, a score with six decimals, tags, or the text of an answer."""
    if task.multilabel:
        return "|".join(task.labels[label] for label in answer)
    if isinstance(answer, list):  # tags of a sentence, or an answer and its margin
        return " ".join(answer) if isinstance(answer[-1], str) else str(answer[0])
    if task.has("classes"):
        return task.labels[int(answer)] if task.labels else f"{answer:.6f}"
    return str(answer)


def by_class(task: TaskConfig, part: Dataset, answers: Given) -> dict[str, Any]:
    """Return how often each class got which answer, and the first wrong answers: fields of a score."""
    if not task.has("classes") or not task.labels or task.multilabel:
        return {}
    pairs = [(word(task, label), word(task, answer)) for label, answer in zip(part.truth, answers, strict=True)]
    wrong = (
        {"texts": [text[:LONGEST] for text in texts], "label": label, "answer": answer}
        for texts, (label, answer) in zip(part.extra, pairs, strict=True)
        if label != answer
    )
    counts = Counter(pairs)
    labels = task.labels if len(task.labels) <= CLASSES else []
    confusion = {label: {answer: counts[label, answer] for answer in labels} for label in labels}
    return {"confusion": confusion, "wrong": list(itertools.islice(wrong, WRONG))}


def submit(config: EvaluateConfig, model: Path, out: Path) -> list[str]:
    """Write a kept model's answers to the test sets of a task and its `also`; return their names.

    Raises:
        ConfigError, InputError: raised by `answered_tasks` and `refuse_malformed`.
    """
    from model.encoders.device import device_of
    from model.finetuning import loop, saved_model
    from pipeline.tokenization.wordpiece import WordPiece

    _, saved = saved_model.load(model)
    wordpiece = WordPiece.load(model)
    (out / FOLDER).mkdir()
    written = []
    for task, test, name in answered_tasks(config):
        kind = open_task_type(config, task, wordpiece)
        part = kind.read(test, labelled=False)
        refuse_malformed(task, part.malformed)
        answers = kind.decode(part, loop.predict(saved.model, part.samples, device_of()))
        write_text(out / FOLDER / f"{name}.tsv", submission_rows(task, answers))
        written.append(name)
    return written


def answered_tasks(config: EvaluateConfig) -> list[tuple[TaskConfig, str, str]]:
    """Return the tasks whose test sets are answered, with these and their names: the task, and those of `also`.

    Raises:
        ConfigError: no test set was found.
        InputError: the task's own test set is missing, or a row of one is malformed.
    """
    sets = []
    for task in (config.task, *examples.also_of(config).values()):
        if task.test is None or task.submission is None:
            continue
        if task is config.task:
            examples.need(config.data, task, task.test)
        elif table_files.find(config.data, task.folder, task.test) is None:
            continue
        if task.has("examples"):  # others are refused when they are answered
            _, malformed = examples.read_examples(config.data, task, task.test, labelled=False)
            refuse_malformed(task, malformed)
        sets.append((task, task.test, task.submission))
    none = f"none of {', '.join(config.task.also)}, the tasks of task.also, has a test set in {config.data}"
    check(bool(sets), f"{none}; set submit=false, or data", "submit", True)
    return sets


def refuse_malformed(task: TaskConfig, faults: list[str]) -> None:
    """Raise InputError if rows of a task's test set were left out: the others would move up."""
    if faults:
        raise InputError(f"task {task.name} cannot be answered row by row; {faults[0]}", "submit", True)
