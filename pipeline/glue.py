"""Reads tasks in the official GLUE layout, as its files are and not as TSV ought to be.

Fields are split at tabs and nothing else: quotation marks are text, and often unbalanced.
"""

import codecs
import math
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.config import TaskConfig
from pipeline.errors import InputError


@dataclass(frozen=True)
class Examples:
    """The rows of one file of a task, N of them."""

    first: list[str]
    second: list[str] | None  # None: a task of single sentences
    labels: list[float]  # class indices, or scores
    malformed: list[str] = field(default_factory=list)  # rows left out: where and why

    def __len__(self) -> int:
        return len(self.first)

    def head(self, count: int | None) -> "Examples":
        """The first `count` rows; all of them for None."""
        second = None if self.second is None else self.second[:count]
        return Examples(self.first[:count], second, self.labels[:count], self.malformed)


def need(data: Path | str, task: TaskConfig, name: str) -> Path:
    """The path of file `name` of a task.

    Raises:
        InputError: it is not there.
    """
    path = Path(data) / task.folder / name
    if path.is_file():
        return path
    cure = (
        "run python -m pipeline.tasks first, or set data to a folder that it made"
        if task.sample
        else f"set data to the folder of the GLUE files, the one that has {task.folder} in it"
    )
    raise InputError(f"data={data}: task {task.name} needs {path}, which is not there; {cure}")


def read_lines(path: Path) -> list[str]:
    """The lines of a file, without a byte-order mark and line ends.

    Raises:
        InputError: it cannot be read, is empty or not UTF-8.
    """
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from error
    lines = [line.removesuffix("\r") for line in content.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise InputError(f"{path}: empty")
    return lines


def read_examples(data: Path | str, task: TaskConfig, name: str) -> Examples:
    """The rows of file `name` of a task; rows with too few or too many fields are left out.

    Raises:
        InputError: the file or a column is missing, a label is none of the task's, or no row is
            whole.
    """
    path = need(data, task, name)
    lines = read_lines(path)
    places, width = columns_of(path, lines[0].split("\t"), task)
    *sentences, label = places
    examples = Examples([], [] if len(sentences) == 2 else None, [])
    for number, line in enumerate(lines[task.header :], 1 + task.header):
        fields = line.split("\t")
        if len(fields) != width:
            examples.malformed.append(
                f"{path}, line {number}: {len(fields)} fields, {width} expected"
            )
            continue
        examples.first.append(fields[sentences[0]].strip())
        if examples.second is not None:
            examples.second.append(fields[sentences[1]].strip())
        examples.labels.append(label_of(path, number, fields[label].strip(), task))
    if not len(examples):
        fault = f"; {examples.malformed[0]}" if examples.malformed else ""
        raise InputError(f"{path}: no whole row{fault}")
    return examples


def columns_of(path: Path, first: list[str], task: TaskConfig) -> tuple[list[int], int]:
    """Where the sentences and the label stand, and how many fields a row has.

    Raises:
        InputError: a column is not there.
    """
    names = [name.strip() for name in first]
    places = []
    for wanted in (*task.columns, task.label):
        if task.header and wanted in names:
            places.append(names.index(wanted))
        elif not task.header and int(wanted) < len(names):
            places.append(int(wanted))
        else:
            listed = ", ".join(map(repr, names))
            raise InputError(f"{path}, line 1: no column {wanted!r}, only {listed}")
    return places, len(names)


def label_of(path: Path, number: int, text: str, task: TaskConfig) -> float:
    """The class index of a label word, or the score.

    Raises:
        InputError: it is neither.
    """
    if task.labels:
        if text not in task.labels:
            known = ", ".join(task.labels)
            raise InputError(f"{path}, line {number}: label {text!r} is none of {known}")
        return task.labels.index(text)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{path}, line {number}: score {text!r} is not a number")
    return value
