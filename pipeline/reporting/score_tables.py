"""Tables and plots of a run's scores for the report."""

from pathlib import Path
from typing import Any

from pipeline.common.figures import PairScore, Score
from pipeline.common.manifest import Manifest
from pipeline.evaluation import chance
from pipeline.reporting import plots
from pipeline.stages import fingerprints

Stages = dict[str, tuple[Path, Manifest]]


def scores_in(stages: Stages) -> list[tuple[Manifest, Score]]:
    """Return the evaluations of a run."""
    return [(one, Score.of(one)) for _, one in stages.values() if one.stage == Score.stage]


def score_rows(stages: Stages) -> list[dict[str, Any]]:
    """Return one row per evaluated task and per task of its `also`; pairs have a section."""
    found = (score for _, score in scores_in(stages) if not isinstance(score, PairScore))
    return [score_row(part) for score in found for part in score.parts()]


def score_row(score: Score) -> dict[str, Any]:
    """Return one row."""
    return {
        "title": score.title,
        "sample": score.sample,
        "metric": score.metric_title,
        "remark": chance.verdict(score),
        "score": with_deviation(score.score, score.deviation),
        "baseline": shown(score.baseline),
        "majority": shown(score.majority),
        "rows": f"{score.rows.get('train', 0):,}",
        "dev_rows": f"{score.rows['dev']:,}" if "dev" in score.rows else "",
        "values": (score.score, score.baseline or 0.0, score.majority or 0.0),
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
    for _, score in scores_in(stages):
        # An evaluation of the task itself takes precedence over one with another task's model.
        for part in score.parts():
            found["pre-trained"].setdefault(part.task, part.score)
            if part.baseline is not None:
                found["random initialisation"].setdefault(part.task, part.baseline)
    return found


def by_checkpoint(stages: Stages) -> list[tuple[str, str]]:
    """Return a plot per task, and per training, of its score over checkpoint steps.

    The steps are read from the converted folders; a task with one checkpoint has no plot.
    """
    points: dict[tuple[str, str], dict[int, tuple[float, float | None]]] = {}
    for manifest, score in scores_in(stages):
        start = manifest.config.get("pretrained")
        if not start or (model := fingerprints.conversion_of(start)) is None or model.step is None:
            continue
        made = fingerprints.manifest_of(start)
        assert made is not None
        place = score.title, training_of(str(made.config.get("train")))
        points.setdefault(place, {})[model.step] = (score.score, score.baseline)
    drawn = []
    for (title, _), found in sorted(points.items()):
        steps = sorted(found)
        if len(steps) > 1:
            curves: list[plots.Curve] = [("pre-trained", steps, [found[s][0] for s in steps])]
            random = [found[step][1] for step in steps]
            if None not in random:
                curves.append(("random initialisation", steps, [r for r in random if r is not None]))
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
