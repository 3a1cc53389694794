"""Readers for tasks of single sentences or pairs, in the GLUE layout or a custom one."""

import json
import math
import re
import unicodedata
from dataclasses import replace
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import Any

from pipeline.cli import conf_files
from pipeline.common.schema import check
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.errors import InputError
from pipeline.evaluation import table_files
from pipeline.evaluation.table_files import Content, Table
from pipeline.storage import strict_json
from pipeline.text import tables

SEPARATOR = re.compile("[,;|]")  # of several labels
LISTED = re.compile(r"""'([^']*)'|"([^"]*)"|([^\s,\[\]'"]+)""")  # an item of a list as Python or NumPy writes it
PLAIN = re.compile(r"(?!null\Z)[\w.+-]+\Z", re.ASCII | re.IGNORECASE)  # labels that are typed without quotation marks
QUOTED, MOST = re.compile(r"""[^'"\\$\n]+\Z"""), 40  # those that can be typed at all; of them, most
NAMES_SHOWN = 300  # characters, of all names
FLAGS = {"0": False, "1": True, "false": False, "true": True, "0.0": False, "1.0": True, "0.": False, "1.": True}
SMALL = 2**25  # bytes of a file that is read before a run begins

# Of a row: one or two sentences, then the endings of a choice; the index of its class, the number of
# the right ending, or its score; the indices of several classes.
Example = tuple[tuple[str, ...], Any]
Examples = tuple[list[Example], list[str]]  # and where and why rows were left out


def task_of(name: str) -> TaskConfig:
    """Return the task of `conf/task/NAME.yaml`."""
    from omegaconf import OmegaConf  # takes 0.1 s

    content = OmegaConf.load(conf_files.CONF / "task" / f"{name}.yaml")
    task = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(TaskConfig), content))
    assert isinstance(task, TaskConfig)
    return task


def also_of(config: EvaluateConfig) -> dict[str, TaskConfig]:
    """Return the other tasks on whose sets a model is scored, by name; a model answers with the classes of its own.

    Raises:
        ConfigError: one has another kind of answers, or labels that the model's task has not.
    """
    ours, tasks = config.task, dict[str, TaskConfig]()
    for name in ours.also:
        task = config.own_tasks.get(name) or task_of(name)
        mine, other = ((one.kind, one.multilabel, len(one.choices)) for one in (ours, task))
        known = bool(task.labels) == bool(ours.labels) and {*task.labels} <= {*ours.labels}
        fits = mine == other and (known or not task.has("classes"))
        check(fits, f"has other labels or another kind than {ours.name}; leave it out", "task.also", name)
        tasks[name] = replace(task, labels=ours.labels)
    return tasks


def dev_files(data: Path | str, task: TaskConfig) -> list[str]:
    """Return the development sets of a task, a pattern as the files that match it; one that has none stays."""
    folder, names = Path(data) / task.folder, list[str]()
    for name in task.dev_names:
        several = [] if (folder / name).is_file() else sorted(folder.glob(name)) if set(name) & set("*?[") else []
        names += [str(path.relative_to(folder)) for path in several] or [name]
    return list(dict.fromkeys(names))


def own_test(data: Path | str, task: TaskConfig) -> str | None:
    """Return the test set of a task if it has labels; that of a submission where its first line names their column."""
    if task.test is None or not task.submission:
        return task.test
    file = table_files.find(data, task.folder, task.test)
    named = file is not None and task.header and task.label.encode() in file[1].partition(b"\n")[0]
    return task.test if named else None


def need(data: Path | str, task: TaskConfig, name: str) -> Content:
    """Return path and content of a file of a task.

    Raises:
        InputError: the file was not found.
    """
    file = table_files.find(data, task.folder, name)
    if file is not None:
        return file
    if task.sample:
        cure = "run python -m pipeline.tasks first, or set data to its output folder"
    elif task.folder:
        cure = f"set data to the folder of the GLUE files, which contains {task.folder} or its zip file"
    else:
        cure = "set data to its folder, or name the file by task.train=FILE"
    if name in task.dev_names and table_files.find(data, task.folder, task.train) is not None:
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
    """Raise UserError if files of a task are not there, or if small ones of classes or scores cannot be read."""
    tests = [task.test] if task.test and not task.submission else []
    for name in (*([task.train] if task.has("training") else []), *dev_files(data, task), *tests):
        place, content = need(data, task, name)
        if task.has("examples") and len(content) < SMALL:
            parse_examples(place, content, task)


def read_examples(data: Path | str, task: TaskConfig, name: str, labelled: bool = True) -> Examples:
    """Return the examples of a file of a task, and where and why rows of it were left out.

    Test files are not `labelled`: they always have a header, columns of their own, and zeros for labels.

    Raises:
        InputError: the file is missing, or as `parse_examples`.
    """
    return parse_examples(*need(data, task, name), task, labelled)


def parse_examples(place: str, content: bytes, task: TaskConfig, labelled: bool = True) -> Examples:
    """Return the examples of the content of a file; see `read_examples`.

    Raises:
        InputError: a column is missing, a label is unknown, or no row is valid.
    """
    columns = [*(task.columns if labelled else task.test_columns or task.columns), *task.choices]
    endings = len(columns) - len(task.choices)
    label = task.label if labelled else None
    table = table_files.parse(place, content, task.header or not labelled, task.key, columns, label=label)
    try:
        texts = [texts_of(table, column) for column in columns]
    except InputError as error:
        raise error.but(problem=error.problem + other_type(table, content)) from None
    labels = labels_of(table, task) if labelled else [0.0] * len(table.rows)
    rows = list(zip(table.lines, zip(*texts, strict=True), labels, strict=True))
    empty = {line: f"{place}, line {line}: an ending is empty" for line, row, _ in rows if not all(row[endings:])}
    empty |= {line: f"{place}, line {line}: {label!r} is missing" for line, _, value in rows if value is None}
    judged = labelled and table.names.count("answer") == 1 and "answer" not in (*columns, label)
    answers = texts_of(table, "answer") if judged else []
    if answers and {*answers} <= {"accept", "reject", "ignore"}:  # as of Prodigy
        pairs = zip(table.lines, answers, strict=True)
        empty |= {line: f"{place}, line {line}: its answer is {one}" for line, one in pairs if one != "accept"}
    table.malformed.extend(empty.values())
    examples: list[Example] = [(row, value) for line, row, value in rows if line not in empty]
    if not examples:
        raise InputError(f"no valid rows{''.join(f'; {fault}' for fault in table.malformed[:1])}", path=place)
    return examples, table.malformed


def labels_of(table: Table, task: TaskConfig) -> list[Any]:
    """Return the label of each row as `label_of` does.

    Raises:
        InputError: the column is missing, or a label is unknown.
    """
    if table.names and task.label not in table.names and (flags := flags_of(table)):
        if not task.multilabel or not set(task.labels) <= flags.keys():
            raise InputError(
                f"column {task.label!r} not found; {', '.join(flags)} hold 0 and 1: for several labels a text set "
                f"task.multilabel=true {typed_labels([*flags])} 'task.metrics=[micro_f1,macro_f1]', for one "
                f"of them task.label={next(iter(flags))}",
                path=table.place,
                line=1,
            )
        return [[k for k, name in enumerate(task.labels) if flags[name][n]] for n in range(len(table.rows))]
    (label,) = columns_of(table, [task.label], " for task.label; python -m pipeline.predict answers sets without")
    stated = [unicodedata.normalize("NFC", row[label].strip()) for row in table.rows]
    # As pandas writes integers of a column that lacks some.
    decimals = {f"{name}.0": name for name in task.labels if f"{name}.0" not in task.labels}
    stated = [decimals.get(text, text) for text in stated]
    cure = cure_of(stated, task)
    return [label_of(table.place, *each, task, cure) for each in zip(table.lines, stated, strict=True)]


def cure_of(stated: list[str], task: TaskConfig) -> str:
    """Return what to type if a label of a file is not one of the task's: those that it has and all of the file."""
    if not task.multilabel and any(text[:1] + text[-1:] == "[]" and not PLAIN.match(text[1:-1]) for text in stated):
        return "; for several labels a text set task.multilabel=true"
    names = {*chain(*(names_in(text, task) for text in {*stated}))}
    known = task.labels if names & {*task.labels} else []
    skip = "; leave out rows labelled -" if "-" in names - {*known} and len(names) > 2 else ""
    new = sorted(names - {"", *known} - ({"-"} if skip else set()))
    return f"{skip}{', and' if skip else ';'} set {typed_labels([*known, *new])}" if new else skip


def typed_labels(names: list[str]) -> str:
    """Return how a command line sets the labels of a task; the key alone of one, of many, or of one that it changes."""
    if not 1 < len(names) <= MOST or not all(map(QUOTED.match, names)):
        return "task.labels"
    plain = all(map(PLAIN.match, names))
    return f"task.labels=[{','.join(names)}]" if plain else f"'task.labels={json.dumps(names, ensure_ascii=False)}'"


def flags_of(table: Table) -> dict[str, list[bool]]:
    """Return the columns with a name that hold 0 and 1, or false and true, alone, if there are two or more."""
    columns = {
        name: [one.strip().lower() for one in some] for name, *some in zip(table.names, *table.rows, strict=True)
    }
    flags = {name: [FLAGS[one] for one in some] for name, some in columns.items() if some and {*some} <= FLAGS.keys()}
    return flags if len(flags) > 1 else {}


def other_type(table: Table, content: bytes) -> str:
    """Return the type of task that a file without the columns may be for, and what to type; empty: not known."""
    lines = content[:4096].decode("utf-8", "replace").splitlines()[:-1]
    widths = {len(line.split()) for line in lines if not line.startswith("#")}
    if "tokens" in table.names or (len(widths) == 2 and 0 in widths and max(widths) > 1):
        return "; these are words with tags, as of CoNLL: set +task=ner"
    return "; these are questions about texts: set +task=squad" if {"question", "context"} <= {*table.names} else ""


def texts_of(table: Table, column: str) -> list[str]:
    """Return the text of each row: of a column, or of a sentence such as `{premise} Why?`.

    Raises:
        InputError: a column is missing.
    """
    plain = column in table.names or "{" not in column
    first, *parts = ["", column, ""] if plain else table_files.FIELD.split(column)
    rest = list(zip(columns_of(table, parts[::2]), parts[1::2], strict=True))
    return [first + "".join(row[at].strip() + text for at, text in rest) for row in table.rows]


def columns_of(table: Table, wanted: list[str], use: str = "") -> list[int]:
    """Return column indices by name, or by number if the file has no header; `use` says what they are for.

    Raises:
        InputError: a column is missing, or there are two of its name.
    """
    places = []
    for name in wanted:
        if table.known.count(name) > 1:
            raise InputError(f"two columns are named {name!r}; rename one of them", path=table.place, line=1)
        if name not in table.known:
            listed = shorten(", ".join(map(repr, table.known)), NAMES_SHOWN)
            raise InputError(f"column {name!r} not found; choose one of {listed}{use}", path=table.place, line=1)
        places.append(table.known.index(name))
    return places


def names_in(text: str, task: TaskConfig) -> list[str]:
    """Return the labels of a row: one, or the items of a list, as JSON, Python or NumPy write it, or between marks."""
    if not task.multilabel or text in task.labels:
        return [text]
    try:
        listed = strict_json.parse(text) if text[:1] == "[" else SEPARATOR.split(text)
    except ValueError:
        listed = map("".join, LISTED.findall(text))
    return list(filter(None, (str(name).strip() for name in listed if name is not None and name == name)))


def label_of(place: str, number: int, text: str, task: TaskConfig, cure: str) -> Any:
    """Return the class index of a label, those of several, the number of the right ending, or the score; None of none.

    `cure` is what to type if it is unknown.

    Raises:
        InputError: the label is unknown, or the score is not a finite number.
    """
    if not text and not task.multilabel and "" not in task.labels:
        return None
    if known := list(map(str, range(len(task.choices)))) or task.labels:
        names = names_in(text, task)
        if task.multilabel and len(names) == len(known) and {name.lower() for name in names} <= FLAGS.keys():
            if {*names} <= {*known}:
                fault = f"{text!r} may be labels, or a 0 or 1 for each; give them other names, or columns of 0 and 1"
                raise InputError(fault, "task.labels", path=place, line=number)
            return [index for index, name in enumerate(names) if FLAGS[name.lower()]]
        if lost := [name for name in names if name not in known]:
            cure, key = ("; number endings from 0", None) if task.choices else (cure, "task.labels")
            raise InputError(f"label {lost[0]!r} is not one of {', '.join(known)}{cure}", key, path=place, line=number)
        numbers = sorted(map(known.index, {*names}))
        return numbers if task.multilabel else numbers[0]
    value = float(text) if tables.NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise InputError(f"score {text!r} is not a number such as 2.5", path=place, line=number)
    return value
