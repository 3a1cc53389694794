"""The examples of a task's file by column, to compare with what was written."""

from dataclasses import dataclass

from pipeline.evaluation import examples


@dataclass(frozen=True)
class Columns:
    """The texts of each column, the labels, and what was left out."""

    texts: list[list[str]]
    labels: list[float]
    malformed: list[str]


def read_columns(*given, **named):
    """Read by `read_examples`."""
    rows, malformed = examples.read_examples(*given, **named)
    texts = zip(*(texts for texts, _ in rows), strict=True)
    return Columns(list(map(list, texts)), [label for _, label in rows], malformed)
