"""The file metrics.jsonl, the authoritative record of a training's metrics."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from model.config import Json
from model.tracking.sink import Row, Sink
from pipeline.storage.atomic import write_text

METRICS = "metrics.jsonl"
RUN_ID = "wandb-run-id"
OWNER = ".metrics-of"  # the name of the folder of checkpoints that these two belong to


def swap_metrics_files(out: Path, run: Path) -> None:
    """Put away the curve of a training with other settings in `out`, and take back this one's.

    `run` is the folder of this training's checkpoints, `out/checkpoints/FINGERPRINT`; the other's
    curve goes to its own.
    """
    path = out / OWNER
    owner = name_in(path) or run.name  # earlier releases did not write it
    if owner != run.name:
        for name in (METRICS, RUN_ID):
            if (out / name).exists():
                away = run.parent / owner
                away.mkdir(parents=True, exist_ok=True)
                (out / name).replace(away / name)
    write_text(path, run.name)  # before this one's files come: they are not the other's
    for name in (METRICS, RUN_ID):
        if (run / name).exists() and not (out / name).exists():
            (run / name).replace(out / name)


def copy_metrics(out: Path, other: Path, run: Path, step: int) -> None:
    """Give a training the curve of another one up to `step`, before `take_back`.

    `run` and `other` are the folders of their checkpoints in `out`.
    """
    owner = name_in(out / OWNER)
    source = (out if owner == other.name else other) / METRICS
    target = (out if owner == run.name else run) / METRICS
    if source.exists():
        run.mkdir(parents=True, exist_ok=True)
        write_text(target, "".join(line for line, row in rows_of(source) if row["step"] <= step))


def rows_of(path: Path) -> Iterator[tuple[str, Json]]:
    """Yield the lines of a curve with their rows; damaged ones are left out, with a warning.

    A killed writer may have left a part of the last one, which is written again.
    """
    lines = path.read_bytes().splitlines() if path.exists() else []
    damaged = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if isinstance(row["step"], int) and isinstance(row["kind"], str):
                yield f"{line.decode()}\n", row
                continue
        except (ValueError, TypeError, KeyError):
            pass
        if number < len(lines) or line.endswith(b"}"):
            damaged.append(str(number))
    if damaged:
        print(f"warning: {path}: damaged, left out: line {', '.join(damaged)}", flush=True)


def name_in(path: Path) -> str | None:
    """Return the name that a file holds; None if there is none, or it is damaged."""
    text = path.read_bytes().decode(errors="replace") if path.exists() else ""
    return text if re.fullmatch(r"\w[\w.-]*", text, re.ASCII) else None


class MetricsFile(Sink):
    """The file metrics.jsonl, whose rows after its start a resumed run writes again."""

    def __init__(self, out: Path, start: int):
        kept = [(line, row) for line, row in rows_of(out / METRICS) if row["step"] <= start]
        write_text(out / METRICS, "".join(line for line, _ in kept))
        self._evaluated = {row["step"] for _, row in kept if row["kind"] == "validation"} & {start}
        self._file = (out / METRICS).open("a", encoding="utf-8")

    def log_metrics(self, row: Row) -> None:
        """Write a row, but not twice that of an evaluation."""
        if not (row.kind == "validation" and row.step in self._evaluated):
            self._file.write(json.dumps({"kind": row.kind, "step": row.step, **row.figures}) + "\n")
            self._file.flush()

    def before_save(self) -> None:
        """Have the rows on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        with self._file:
            os.fsync(self._file.fileno())


def read_metrics(folder: Path) -> list[Json]:
    """Read the records of a run's metrics.jsonl; return an empty list if missing."""
    return [row for _, row in rows_of(folder / METRICS)]
