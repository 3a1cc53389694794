"""Minimal pairs: two sentences, of which a model is to find the good one more likely.

BLiMP (Warstadt et al. 2020) and sets like it. Nothing is trained, so this type is none of those
that fine-tuning drives: it reads pairs, and makes tables of their scores.

Shapes: N pairs, P paradigms, R resamples.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.common import counter_rng
from pipeline.common.counter_rng import Bools, Floats
from pipeline.common.errors import InputError
from pipeline.config import TaskConfig
from pipeline.evaluation import table_files
from pipeline.evaluation.examples import columns_of, pair_files
from pipeline.evaluation.table_files import Table
from pipeline.text.clean import clean

RESAMPLES = 1000  # of the bootstrap
COVERAGE = 0.95  # of its intervals


@dataclass(frozen=True)
class Pairs:
    """The pairs of a task, N of them, in the order of the files."""

    good: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    contexts: list[tuple[str, str]] = field(default_factory=list)  # of each; "": none
    paradigms: list[str] = field(default_factory=list)
    groups: dict[str, tuple[str, str]] = field(default_factory=dict)  # of a paradigm: see `group_of`
    malformed: list[str] = field(default_factory=list)  # rows left out: where and why
    other_files: list[str] = field(default_factory=list)  # files that hold no pairs
    counts: Counter[str] = field(default_factory=Counter)  # of good rows, by paradigm

    def __len__(self) -> int:
        return len(self.good)


def read_pairs(data: str, task: TaskConfig, rows: int | None = None) -> Pairs:
    """Read the pairs of a task, or the first `rows` of each paradigm; files without its columns are left out.

    Raises:
        InputError: no file matches, one is broken, or has only some of the columns.
    """
    files = pair_files(data, task)
    pairs = Pairs()
    wanted = [*task.columns, *task.contexts]
    seen: dict[str, str] = {}
    for place, content in files:
        table = table_files.parse(place, content, task.header, task.key, task.quoted, wanted)
        lost = [name for name in wanted if name not in table.names]
        if len(lost) == len(wanted):
            pairs.other_files.append(place)
            seen[place] = ", ".join(table.names)
        elif lost:
            only = ", ".join(table.names)
            raise InputError(f"no column {lost[0]!r}, only {only}", "task.columns", path=place, line=1)
        else:
            _add(pairs, table, task, rows)
    if not len(pairs):
        fault = pairs.malformed or [f"{place}: columns {names}" for place, names in seen.items()]
        raise InputError(f"no pair in {task.dev}, columns {', '.join(wanted)}; {fault[0]}", "data", data)
    return pairs


def _add(pairs: Pairs, table: Table, task: TaskConfig, most: int | None) -> None:
    """Add the rows of a file, up to `most` of a paradigm; those without one of the two sentences are malformed."""

    def column(name: str, default: str) -> list[str]:
        if not name or name not in table.names:  # pandas leaves the name of its index empty
            return [default] * len(table.rows)
        (place,) = columns_of(table, [name])
        return [_without_surrogates(row[place]).strip() for row in table.rows]

    stem = PurePosixPath(table.place.rpartition(":")[2]).stem
    good, bad = (column(name, "") for name in task.columns)
    names = [*task.contexts, *task.contexts][:2] or ["", ""]
    contexts = zip(*(column(name, "") for name in names), strict=True)
    paradigms = column(task.paradigm, stem)
    groups = zip(column(task.phenomenon, ""), column(task.category, ""), strict=True)
    pairs.malformed.extend(table.malformed)
    rows = zip(good, bad, contexts, paradigms, groups, table.lines, strict=True)
    for one, other, context, paradigm, group, line in rows:
        if not clean(one) or not clean(other):
            pairs.malformed.append(f"{table.place}, line {line}: a sentence is empty")
            continue
        pairs.counts[paradigm or stem] += 1
        if most is not None and pairs.counts[paradigm or stem] > most:
            continue
        pairs.good.append(one)
        pairs.bad.append(other)
        pairs.contexts.append(context)
        pairs.paradigms.append(paradigm or stem)
        pairs.groups.setdefault(paradigm or stem, group)


def _without_surrogates(text: str) -> str:
    """Return text that can be written; the tokenizer skips lone surrogates too."""
    return text if text.isascii() else text.encode(errors="ignore").decode()


def is_right(scores: Floats) -> Bools:
    """Return whether the good sentence wins `(N,)`, by scores `(N, 2)` of the good and the bad one.

    A tie counts as right, as in the official BabyLM pipeline, which takes the first of the
    sentences with the greatest score, and has the good one first. How many there are is counted.
    """
    return np.asarray(scores[:, 0] >= scores[:, 1])


def accuracies(pairs: Pairs, right: Bools, seed: int = 0) -> dict[str, Any]:
    """Return the accuracy of each paradigm, phenomenon and category, and over all, as JSON.

    Groups of paradigms, and `macro`, are means over paradigms; `micro` is over pairs. Intervals
    are percentiles of a bootstrap of pairs within paradigms.
    """
    names = list(dict.fromkeys(pairs.paradigms))
    index = {name: number for number, name in enumerate(names)}
    paradigm = np.array([index[name] for name in pairs.paradigms])
    counts = np.bincount(paradigm)
    draws = np.stack(
        [  # (P, R)
            _resampled(right[paradigm == number], seed, name) for name, number in index.items()
        ]
    )
    means = np.bincount(paradigm, right) / counts
    tables: dict[str, Any] = {"paradigms": {}, "phenomena": {}, "categories": {}}
    for number, name in enumerate(names):
        phenomenon, category = pairs.groups[name]
        entry = _entry(means[[number]], draws[[number]], counts[[number]])
        tables["paradigms"][name] = entry | {"phenomenon": phenomenon, "category": category}
    for place, kind in enumerate(("phenomena", "categories")):
        for group, members in _members(names, pairs, place):
            tables[kind][group] = _entry(means[members], draws[members], counts[members])
    micro = counts @ draws / counts.sum()
    return {
        "macro": _entry(means, draws, counts),
        "micro": {"accuracy": float(right.mean()), "interval": _interval(micro), "pairs": len(right)},
        **tables,
    }


def _members(names: list[str], pairs: Pairs, place: int) -> Iterator[tuple[str, list[int]]]:
    """Yield the groups that paradigms are in, by name, and the numbers of their paradigms."""
    found: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        if group := pairs.groups[name][place]:
            found.setdefault(group, []).append(number)
    yield from sorted(found.items())


def _resampled(right: Bools, seed: int, name: str) -> Floats:
    """Return the accuracies `(R,)` of resamples of the pairs of a paradigm."""
    count = len(right)
    key = counter_rng.key(seed, "bootstrap", name)
    found = np.empty(RESAMPLES)
    block = max(1, 2**20 // count)  # resamples that are drawn at once
    for start in range(0, RESAMPLES, block):
        stop = min(start + block, RESAMPLES)
        places = np.arange(start * count, stop * count)
        chosen = counter_rng.integers(key, places, count)
        found[start:stop] = right[chosen].reshape(-1, count).mean(1)
    return found


def _entry(means: Floats, draws: Floats, counts: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return the mean over some paradigms, with its interval, as JSON."""
    return {"accuracy": float(means.mean()), "interval": _interval(draws.mean(0)), "pairs": int(counts.sum())}


def _interval(draws: Floats) -> list[float]:
    """Return the percentiles of resamples between which `COVERAGE` of them lie."""
    side = (1 - COVERAGE) / 2
    return [float(value) for value in np.quantile(draws, (side, 1 - side))]
