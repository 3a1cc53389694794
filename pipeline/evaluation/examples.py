"""Reads tasks of single sentences and of pairs, in the official GLUE layout or one's own."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import OmegaConf

from pipeline.cli import conf_files
from pipeline.common.errors import InputError
from pipeline.config import TaskConfig
from pipeline.evaluation import table_files
from pipeline.evaluation.table_files import Table


@dataclass(frozen=True)
class Examples:
    """The rows of one file of a task, N of them."""

    first: list[str]
    second: list[str] | None  # None: a task of single sentences
    labels: list[float]  # class indices, or scores; zeros where the file has none
    malformed: list[str] = field(default_factory=list)  # rows left out: where and why

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: list[int]) -> "Examples":
        """Some of the rows."""
        return Examples(
            [self.first[row] for row in rows],
            None if self.second is None else [self.second[row] for row in rows],
            [self.labels[row] for row in rows],
            self.malformed,
        )


def task_of(name: str) -> TaskConfig:
    """The task of `conf/task/NAME.yaml`."""
    content = OmegaConf.load(conf_files.CONF / "task" / f"{name}.yaml")
    task = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(TaskConfig), content))
    assert isinstance(task, TaskConfig)
    return task


def need(data: Path | str, task: TaskConfig, name: str) -> tuple[str, bytes]:
    """A file of a task, and where it was.

    Raises:
        InputError: it is not there.
    """
    found = table_files.find(data, task.folder, name)
    if found is not None:
        return found
    if task.sample:
        cure = "run python -m pipeline.tasks first, or set data to a folder that it made"
    elif task.folder:
        cure = (
            f"set data to the folder of the GLUE files, the one that has {task.folder} or its zip "
            f"file in it"
        )
    else:
        cure = "set data to its folder"
    path = Path(data) / task.folder / name
    raise InputError(f"data={data}: task {task.name} needs {path}, which is not there; {cure}")


def read_examples(data: Path | str, task: TaskConfig, name: str, labelled: bool = True) -> Examples:
    """The rows of file `name` of a task; rows with too few or too many fields are left out.

    Test files are not `labelled`: they always have a header, and their own columns.

    Raises:
        InputError: the file or a column is missing, a label is none of the task's, or no row is
            whole.
    """
    place, content = need(data, task, name)
    table = table_files.parse(place, content, task.header or not labelled, task.key)
    columns = task.columns if labelled else task.test_columns or task.columns
    places = columns_of(table, [*columns, *([task.label] if labelled else [])])
    examples = Examples([], [] if len(columns) == 2 else None, [], table.malformed)
    for number, row in zip(table.lines, table.rows, strict=True):
        examples.first.append(row[places[0]].strip())
        if examples.second is not None:
            examples.second.append(row[places[1]].strip())
        label = row[places[-1]].strip()
        examples.labels.append(label_of(place, number, label, task) if labelled else 0.0)
    if not len(examples):
        fault = f"; {examples.malformed[0]}" if examples.malformed else ""
        raise InputError(f"{place}: no whole row{fault}")
    return examples


def columns_of(table: Table, wanted: list[str]) -> list[int]:
    """Where columns stand, by name, or by number where there is no header.

    Raises:
        InputError: a column is not there.
    """
    width = len(table.names) or (len(table.rows[0]) if table.rows else 0)
    places = []
    for name in wanted:
        if name in table.names:
            places.append(table.names.index(name))
        elif not table.names and int(name) < width:
            places.append(int(name))
        else:
            listed = ", ".join(map(repr, table.names or table.rows[0]))
            raise InputError(f"{table.place}, line 1: no column {name!r}, only {listed}")
    return places


def label_of(place: str, number: int, text: str, task: TaskConfig) -> float:
    """The class index of a label word, or the score.

    Raises:
        InputError: it is neither.
    """
    if task.labels:
        if text not in task.labels:
            known = ", ".join(task.labels)
            raise InputError(f"{place}, line {number}: label {text!r} is none of {known}")
        return task.labels.index(text)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{place}, line {number}: score {text!r} is not a number")
    return value
