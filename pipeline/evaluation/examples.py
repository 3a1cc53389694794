"""Readers for tasks of single sentences or pairs, in the GLUE layout or a custom one."""

import math
import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.cli import conf_files
from pipeline.common.errors import InputError
from pipeline.config import TASK_KINDS, TaskConfig
from pipeline.evaluation import table_files
from pipeline.evaluation.table_files import Content, Table

_FIELD = re.compile(r"\{([^{}]+)\}")  # a column within a sentence


@dataclass(frozen=True)
class Examples:
    """The N examples of one file of a task."""

    first: list[str]
    second: list[str] | None  # None: a task of single sentences
    labels: list[float]  # class indices or scores; zeros if the file has none
    malformed: list[str] = field(default_factory=list)  # skipped rows: location and reason

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: list[int]) -> "Examples":
        """Return the examples at these indices."""
        return Examples(
            [self.first[row] for row in rows],
            None if self.second is None else [self.second[row] for row in rows],
            [self.labels[row] for row in rows],
            self.malformed,
        )


def task_of(name: str) -> TaskConfig:
    """Return the task of `conf/task/NAME.yaml`."""
    from omegaconf import OmegaConf  # takes 0.1 s

    content = OmegaConf.load(conf_files.CONF / "task" / f"{name}.yaml")
    task = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(TaskConfig), content))
    assert isinstance(task, TaskConfig)
    return task


def need(data: Path | str, task: TaskConfig, name: str) -> Content:
    """Return path and content of a file of a task.

    Raises:
        InputError: the file was not found.
    """
    found = table_files.find(data, task.folder, name)
    if found is not None:
        return found
    if task.sample:
        cure = "run python -m pipeline.tasks first, or set data to its output folder"
    elif task.folder:
        cure = f"set data to the folder of the GLUE files, which contains {task.folder} or its zip file"
    else:
        cure = "set data to its folder, or name the file by task.train=FILE"
    if name == task.dev and table_files.find(data, task.folder, task.train) is not None:
        cure = "name it by task.dev=FILE, or hold a part of train out by task.dev_share=0.1"
    path = Path(data) / task.folder / name
    raise InputError(f"task {task.name} needs {path}, which does not exist; {cure}", "data", data, path=path)


def pair_files(data: Path | str, task: TaskConfig) -> list[Content]:
    """Return path and content of the files of a task of minimal pairs.

    Raises:
        InputError: there is none.
    """
    files = table_files.matching(data, task.folder, task.dev)
    if not files:
        raise InputError(
            f"no file {task.dev} there, nor in {task.folder or 'it'}; set data to the folder of the files of "
            f"{task.name}",
            "data",
            data,
        )
    return files


def check_files(data: Path | str, task: TaskConfig) -> None:
    """Raise InputError if the files with which a task begins are not there."""
    if TASK_KINDS[task.kind].trains:
        need(data, task, task.train)
    else:
        pair_files(data, task)


def read_examples(data: Path | str, task: TaskConfig, name: str, labelled: bool = True) -> Examples:
    """Return the examples of file `name` of a task, without rows of the wrong number of fields.

    Test files are not `labelled`: they always have a header, and columns of their own.

    Raises:
        InputError: the file or a column is missing, a label is unknown, or no row is valid.
    """
    place, content = need(data, task, name)
    columns = task.columns if labelled else task.test_columns or task.columns
    inside = [name for column in columns for name in _FIELD.findall(column)]
    table = table_files.parse(
        place,
        content,
        task.header or not labelled,
        task.key,
        task.quoted,
        [*columns, *inside, *([task.label] if labelled else [])],
    )
    texts = [texts_of(table, column) for column in columns]
    labels = [0.0] * len(table.rows)
    if labelled:
        (label,) = columns_of(table, [task.label])
        labels = [
            label_of(place, number, row[label].strip(), task)
            for number, row in zip(table.lines, table.rows, strict=True)
        ]
    examples = Examples(texts[0], texts[1] if len(texts) == 2 else None, labels, table.malformed)
    if not len(examples):
        fault = f"; {examples.malformed[0]}" if examples.malformed else ""
        raise InputError(f"no valid rows{fault}", path=place)
    return examples


def texts_of(table: Table, column: str) -> list[str]:
    """Return the text of each row: of a column, or of a sentence such as `{premise} Why?`.

    Raises:
        InputError: a column is missing.
    """
    if column in table.names or "{" not in column:
        (place,) = columns_of(table, [column])
        return [row[place].strip() for row in table.rows]
    between, names = _FIELD.split(column)[::2], _FIELD.split(column)[1::2]
    places = columns_of(table, names)
    first, *rest = between
    return [
        first + "".join(row[at].strip() + text for at, text in zip(places, rest, strict=True)) for row in table.rows
    ]


def columns_of(table: Table, wanted: list[str]) -> list[int]:
    """Return column indices by name, or by number if the file has no header.

    Raises:
        InputError: a column is missing, or there are two of its name.
    """
    width = len(table.names) or (len(table.rows[0]) if table.rows else 0)
    places = []
    for name in wanted:
        if table.names.count(name) > 1:
            raise InputError(f"two columns are named {name!r}; rename one of them", path=table.place, line=1)
        if name in table.names:
            places.append(table.names.index(name))
        elif not table.names and name.isdecimal() and int(name) < width:
            places.append(int(name))
        else:
            listed = ", ".join(map(repr, table.names or range(width)))
            raise InputError(f"column {name!r} not found; choose one of {listed}", path=table.place, line=1)
    return places


def label_of(place: str, number: int, text: str, task: TaskConfig) -> float:
    """Return the class index of a label, or the score.

    Raises:
        InputError: the label is unknown, or the score is not a finite number.
    """
    if task.labels:
        text = unicodedata.normalize("NFC", text)
        if text not in task.labels:
            known = ", ".join(task.labels)
            raise InputError(
                f"label {text!r} is not one of {known}; set task.labels", "task.labels", path=place, line=number
            )
        return task.labels.index(text)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"score {text!r} is not a number", path=place, line=number)
    return value
