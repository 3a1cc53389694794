"""The records as tables and curves."""

from pathlib import Path
from typing import Any

from benchmarks.shared import heading, read
from pipeline.records.metrics import BITS

HERE = Path(__file__).parent
Row = dict[str, Any]
COLUMNS = {
    "corpus": "{}",
    "words": "{:,}",
    "readings": "{}",
    "size": "{}",
    "entries": "{:,}",
    "rate": "{:g}",
    "length": "{}",
    "architecture": "{}",
    "tokens_a_step": "{:,}",
    "dropout": "{:g}",
    "seed": "{}",
    "tokens": "{:,}",
    "processor_seconds": "{:.0f}",
    "accuracy": "{:.3f}",
    BITS: "{:.3f}",
}


def all_records() -> list[Row]:
    """Return the records of all designs, each with the name of its design."""
    return [row | {"design": path.stem} for path in sorted(HERE.glob("*.jsonl")) for row in read(path)]


def table(rows: list[Row]) -> str:
    """Return rows of one machine and one state of the code as a table."""
    lines = [heading(" | ".join(name.replace("_", " ") for name in COLUMNS))]
    for row in rows:
        cells = ("" if row[name] is None else form.format(row[name]) for name, form in COLUMNS.items())
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
