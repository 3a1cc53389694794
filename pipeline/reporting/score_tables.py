"""Tables and plots of a run's scores for the report."""

from pathlib import Path
from typing import Any

from pipeline.common.manifest import Manifest
from pipeline.evaluation import chance
from pipeline.reporting import plots
from pipeline.reporting.minimal_pair_tables import is_minimal_pairs
from pipeline.stages import fingerprints

Stages = dict[str, tuple[Path, Manifest]]


def evaluations(stages: Stages) -> list[Manifest]:
    """Return the manifests of evaluations."""
    return [manifest for _, manifest in stages.values() if manifest.stage == "evaluate"]


def score_rows(stages: Stages) -> list[dict[str, Any]]:
    """Return one row per evaluated task and per task of its `also`."""
    found = []
    for manifest in evaluations(stages):
        figures = manifest.figures
        if is_minimal_pairs(manifest):
            continue  # it has a section of its own
        found.append(score_row(figures, figures))
        found += [score_row(figures, part) for part in figures.get("also", {}).values()]
    return found


def score_row(figures: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return one row; `figures` are those of the evaluation, `part` contains the scores."""
    deviation, baseline, majority = (part.get(k) for k in ("deviation", "baseline", "majority"))
    return {
        "title": part.get("title", figures["task"]),
        "sample": figures["sample"],
        "metric": part["metric"],
        "remark": chance.verdict({**part, "rows": part.get("rows") or {}}),
        "score": with_deviation(part["score"], deviation),
        "baseline": shown(baseline),
        "majority": shown(majority),
        "rows": f"{figures['rows']['train']:,}",
        "dev_rows": f"{part['rows']['dev']:,}" if "rows" in part else "",
        "values": (part["score"], baseline or 0.0, majority or 0.0),
    }


def shown(value: float | None) -> str:
    """Format a score with three decimals; a missing one is empty."""
    return "" if value is None else f"{value:.3f}"


def with_deviation(value: float | None, deviation: float | None) -> str:
    """Format a score with its standard deviation, if there is one."""
    if value is None:
        return "not finite"
    return shown(value) + (f" ± {deviation:.3f}" if deviation else "")


def our_scores(stages: Stages) -> dict[str, dict[str, float]]:
    """Return the scores by task, pre-trained and from random initialisation."""
    found: dict[str, dict[str, float]] = {"pre-trained": {}, "random initialisation": {}}
    for manifest in evaluations(stages):
        figures = manifest.figures
        # An evaluation of the task itself takes precedence over one with another task's model.
        sets = {figures["task"]: figures}
        sets |= {name: part for name, part in figures.get("also", {}).items() if name not in sets}
        for name, part in sets.items():
            for kind, key in (("pre-trained", "score"), ("random initialisation", "baseline")):
                if part.get(key) is not None:
                    found[kind].setdefault(name, part[key])
    return found


def by_checkpoint(stages: Stages) -> list[tuple[str, str]]:
    """Return a plot per task, and per training, of its score over checkpoint steps.

    The steps are read from the converted folders; a task with one checkpoint has no plot.
    """
    points: dict[tuple[str, str], dict[int, tuple[float, float | None]]] = {}
    for manifest in evaluations(stages):
        start = manifest.config.get("pretrained")
        if not start or (step := fingerprints.figures_of(start).get("step")) is None:
            continue
        made = fingerprints.manifest_of(start)
        assert made is not None
        figures = manifest.figures
        pair = (figures["score"], figures.get("baseline"))
        place = figures.get("title", figures["task"]), training_of(str(made.config.get("train")))
        points.setdefault(place, {})[step] = pair
    drawn = []
    for (title, _), found in sorted(points.items()):
        steps = sorted(found)
        if len(steps) > 1:
            curves: list[plots.Curve] = [("pre-trained", steps, [found[s][0] for s in steps])]
            random = [found[step][1] for step in steps]
            if None not in random:
                curves.append(
                    ("random initialisation", steps, [r for r in random if r is not None])
                )
            drawn.append((f"{title} over checkpoints", plots.lines(curves, "step", "score")))
    return drawn


def training_of(source: str) -> str:
    """Return the folder of a training, from that folder or from one of its checkpoints.

    >>> training_of("work/train"), training_of("work/train/checkpoints/4f78b391e481/step-00000020")
    ('work/train', 'work/train')
    """
    return source.partition("/checkpoints/")[0]


def score_plot(scores: list[dict[str, Any]]) -> str:
    """Plot the scores as bars."""
    if not scores:
        return ""
    titles = ("pre-trained", "random initialisation", "most frequent class")
    series = [(title, [s["values"][n] for s in scores]) for n, title in enumerate(titles)]
    return plots.bars([s["title"] for s in scores], series, "score")
