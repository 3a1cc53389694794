"""Test-set predictions as one zip file for the GLUE server; `python -m pipeline.submit`.

The zip has one file per task, `index<TAB>prediction`, with labels as in the training set and scores
of STS-B from 0 to 5 (https://gluebenchmark.com/faq).
"""

import functools
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline.cli import conf_files
from pipeline.common.atomic import write_text
from pipeline.common.errors import ConfigError, InputError
from pipeline.common.manifest import Result
from pipeline.config import EvaluateConfig, SubmitConfig, TaskConfig
from pipeline.evaluation import examples, table_files
from pipeline.evaluation.task_types import open_task_type

FOLDER = "submission"
ARCHIVE = "submission.zip"
HEADER = "index\tprediction"


def rows(task: TaskConfig, answers: list[Any]) -> str:
    """Return the text of a file of answers: a header and one answer per line."""
    return table(word(task, answer) for answer in answers)


def submission_rows(task: TaskConfig, answers: list[Any]) -> str:
    """Return the text of a submission file; scores are as the GLUE server wants them, if it does.

    These are from 0 to 5, with three decimals.
    """
    if task.submission in tasks() and not task.labels:
        return table(f"{min(max(float(answer), 0.0), 5.0):.3f}" for answer in answers)
    return rows(task, answers)


def table(words: Iterable[str]) -> str:
    """Return a header and one line per word, numbered from 0."""
    return f"{HEADER}\n" + "".join(f"{index}\t{word}\n" for index, word in enumerate(words))


def word(task: TaskConfig, answer: Any) -> str:
    """Format an answer: a label, a score with six decimals, tags, or the text of an answer."""
    if isinstance(answer, list):  # tags of a sentence, or an answer and its margin
        return " ".join(answer) if task.kind == "tagging" else str(answer[0])
    if task.kind == "classification" and task.labels:
        return task.labels[int(answer)]
    if task.kind == "classification":
        return f"{answer:.6f}"
    return str(answer)


def predict(config: EvaluateConfig, model: Path, out: Path) -> list[str]:
    """Write a kept model's answers to the test sets of a task and its `also`; return their names.

    Raises:
        ConfigError, InputError: raised by `answered_tasks` and `refuse_malformed`.
    """
    from model.encoders.device import device_of
    from model.finetuning import saved_model
    from pipeline.evaluation import grid_search
    from pipeline.tokenization.wordpiece import WordPiece

    _, found = saved_model.load(model)
    wordpiece = WordPiece.load(model)
    (out / FOLDER).mkdir()
    written = []
    for task in answered_tasks(config):
        assert task.test is not None
        assert task.submission is not None
        kind = open_task_type(config, task, wordpiece)
        part = kind.read(task.test, labelled=False)
        refuse_malformed(task, part.malformed)
        answers = grid_search.predict(found.model, kind, part, device_of(), lambda *_: None)
        write_text(out / FOLDER / f"{task.submission}.tsv", submission_rows(task, answers))
        written.append(task.submission)
    return written


def answered_tasks(config: EvaluateConfig) -> list[TaskConfig]:
    """Return the tasks whose test sets are answered: the task, and those of `also` with one.

    Raises:
        ConfigError: no test set was found.
        InputError: the task's own test set is missing, or a row of one is malformed.
    """
    found = []
    for task in (config.task, *map(examples.task_of, config.task.also)):
        if task.test is None or task.submission is None:
            continue
        if task is config.task:
            examples.need(config.data, task, task.test)
        elif table_files.find(config.data, task.folder, task.test) is None:
            continue
        if task.kind == "classification":  # others are refused when they are answered
            test_set = examples.read_examples(config.data, task, task.test, labelled=False)
            refuse_malformed(task, test_set.malformed)
        found.append(task)
    if not found:
        raise ConfigError(
            f"none of {', '.join(config.task.also)}, the tasks of task.also, has a test set in {config.data}; set "
            "submit=false, or data",
            "submit",
            True,
        )
    return found


def refuse_malformed(task: TaskConfig, faults: list[str]) -> None:
    """Raise InputError if rows of a task's test set were left out: the others would move up."""
    if faults:
        raise InputError(f"task {task.name} cannot be answered row by row; {faults[0]}", "submit", True)


@functools.cache
def tasks() -> dict[str, TaskConfig]:
    """Return the tasks that the server scores, by submission file name."""
    every = map(examples.task_of, conf_files.choices("task"))
    return {task.submission: task for task in every if task.submission and task.test_rows}


def faults_of(task: TaskConfig, text: str, count: int | None) -> list[str]:
    """Return problems of a submission file: header, order, number of rows, labels, score range."""
    lines = text.split("\n")
    if lines[-1] != "":
        return ["the last line does not end in a newline"]
    first, *found = lines[:-1]
    if first != HEADER:
        return [f"line 1: header {first!r} must be {HEADER!r}"]
    faults = []
    for number, line in enumerate(found):
        index, _, answer = line.partition("\t")
        if index != str(number):
            faults.append(f"line {number + 2}: index {index!r} must be {number}")
        if task.labels and answer not in task.labels:
            faults.append(f"line {number + 2}: {answer!r} is not one of {', '.join(task.labels)}")
        if not task.labels and not is_score(answer):
            faults.append(f"line {number + 2}: {answer!r} is not a score from 0 to 5")
    if count is not None and len(found) != count:
        faults.append(f"{len(found):,} rows, but the server expects {count:,}")
    return faults


def is_score(text: str) -> bool:
    """Return whether a text is a number from 0 to 5."""
    try:
        return 0 <= float(text) <= 5
    except ValueError:
        return False


def constant_rows(task: TaskConfig) -> str:
    """Return answers to a task that was not evaluated: always the first label."""
    assert task.test_rows is not None
    return submission_rows(task, [0] * task.test_rows)


def sources_of(names: list[str]) -> list[str]:
    """Return the tasks whose evaluations answer submission files; some answer several."""
    covered = {name for task in tasks().values() for name in task.also}
    return [
        task.name
        for task in tasks().values()
        if task.name not in covered
        and {task.submission, *(examples.task_of(name).submission for name in task.also)} & {*names}
    ]


def make(config: SubmitConfig, out: Path) -> Result:
    """Collect the answers of evaluations into a zip file, and validate them.

    Raises:
        InputError: answers are missing, or the server would reject a file.
    """
    found = {}
    for place in config.evaluations:
        for path in sorted((Path(place) / FOLDER).glob("*.tsv")):
            found[path.stem] = path.read_text(encoding="utf-8")
    if not found:
        raise InputError(
            "no answers to GLUE's test sets found; evaluate a task of GLUE with submit=true first, as +task=rte",
            "workdir",
            config.workdir,
        )
    filled = [name for name in tasks() if name not in found]
    if filled and not config.fill:
        raise InputError(
            f"answers to {', '.join(filled)} are missing; evaluate "
            f"{', '.join(sources_of(filled))} with submit=true and the test files in data, or set "
            f"fill=true for constant answers (the server requires every file)",
            "fill",
            False,
        )
    found |= {name: constant_rows(tasks()[name]) for name in filled}
    for name, text in sorted(found.items()):
        known = tasks().get(name)
        faults = faults_of(known, text, known.test_rows) if known else ["not a file of a GLUE task"]
        if faults:
            more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
            raise InputError(f"the server would reject {name}.tsv: {faults[0]}{more}")
    with zipfile.ZipFile(out / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(found.items()):
            member = zipfile.ZipInfo(f"{name}.tsv")  # no time stamp: reproducible bytes
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, text)
    summary = f"{len(found) - len(filled)} tasks answered"
    if filled:
        summary += f", constant answers to {', '.join(filled)}"
    return Result(summary=f"{summary}, checked", figures={"answered": sorted(found), "filled": filled})
