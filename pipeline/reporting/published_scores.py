"""Published scores on GLUE's test sets, for comparison with ours on dev sets.

In percent: F1 for MRPC and QQP, Spearman for STS-B, Matthews for CoLA and AX, otherwise accuracy,
like the first metric of our tasks.
"""

from collections.abc import Mapping
from typing import Any

from pipeline.evaluation import metrics

DEVLIN = "Devlin et al. 2019, table 1 (test sets)"
TURC = "Turc et al. 2019, scores in google-research/bert (test sets)"

COLUMNS = {
    "mnli": "MNLI-m",
    "mnli_mm": "MNLI-mm",
    "qqp": "QQP",
    "qnli": "QNLI",
    "sst2": "SST-2",
    "cola": "CoLA",
    "stsb": "STS-B",
    "mrpc": "MRPC",
    "rte": "RTE",
    "wnli": "WNLI",
    "ax": "AX",
}

# In the order of COLUMNS; the last ones may be unpublished.
MODELS: dict[str, tuple[str, list[float]]] = {
    "BERT-large": (DEVLIN, [86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1]),
    "BERT-base": (DEVLIN, [84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4]),
    "BERT-medium": (TURC, [80.0, 79.1, 69.6, 87.7, 89.6, 38.0, 78.4, 86.6, 62.2, 62.3, 30.5]),
    "BERT-small": (TURC, [77.6, 77.0, 68.1, 86.4, 89.7, 27.8, 77.0, 83.4, 61.8, 62.3, 28.6]),
    "BERT-mini": (TURC, [74.8, 74.3, 66.4, 84.1, 85.9, 0.0, 73.3, 81.1, 57.9, 62.3, 26.1]),
    "BERT-tiny": (TURC, [70.2, 70.3, 62.2, 81.5, 83.2, 0.0, 73.6, 81.1, 57.2, 62.3, 21.0]),
}


def row(name: str, scores: Mapping[str, float], source: str) -> dict[str, Any]:
    """Return a model's scores in percent, with averages without WNLI (the paper's) and with it."""
    nine = metrics.glue_average(scores)
    ten = (nine * 9 + scores["wnli"]) / 10 if nine is not None and "wnli" in scores else None
    return {"name": name, "scores": dict(scores), "average": nine, "with_wnli": ten, "source": source}


def table(ours: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return the GLUE scores of our models (shares, by name), followed by the published ones."""
    found = []
    for name, scores in ours.items():
        known = {task: 100 * scores[task] for task in COLUMNS if task in scores}
        if known:
            found.append(row(name, known, "this run (dev sets)"))
    if not found:
        return []
    for name, (source, values) in MODELS.items():
        found.append(row(name, dict(zip(COLUMNS, values, strict=False)), source))
    return found


def cell(value: float | None) -> str:
    """Format a score with one decimal; a missing one is empty."""
    return "" if value is None else f"{value:.1f}"


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table as Markdown."""
    names = ["model", *COLUMNS.values(), "average", "with WNLI", "source"]
    lines = ["| " + " | ".join(names) + " |", "|---|" + "---:|" * (len(names) - 2) + "---|"]
    for one in rows:
        cells = [cell(one["scores"].get(task)) for task in COLUMNS]
        cells += [cell(one["average"]), cell(one["with_wnli"]), one["source"]]
        lines.append("| " + " | ".join([one["name"], *cells]) + " |")
    return "\n".join(lines) + "\n"
