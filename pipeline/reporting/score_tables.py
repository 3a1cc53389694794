"""Scores of a run, next to published ones, over checkpoints and over seeds of pre-training."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from model.tracking.metrics_file import read_metrics
from model.training.provenance import LOSSES
from pipeline.common.tables import read_table
from pipeline.evaluation import metrics, significance
from pipeline.records.manifest import Manifest, manifest_of
from pipeline.records.metrics import (
    BITS,
    PairScore,
    Record,
    Score,
    SystemScore,
    TableScore,
    TrainingSummary,
    mean_of,
    noted_of,
    record_of,
)
from pipeline.reporting import plots

Figures = dict[str, Any]  # of a row or a section, for the page
Plot = tuple[str, Figure]  # with its caption
COPY = re.compile(r"(.+)-seed(-?\d+)")  # the name of a stage of another seed than the run's
ACCURACY = TrainingSummary.ACCURACY
HELD_OUT = {
    ACCURACY: "held-out masked-LM accuracy",
    "masked_lm_loss": "held-out masked-LM loss",
    BITS: "held-out bits per byte",
    "next_sentence_accuracy": "held-out next-sentence accuracy",
}
# What a checkpoint's place on the curve is: the first that all checkpoints know.
AXES = (("words", "words seen"), ("tokens", "tokens seen"), ("step", "step"))

# What others published: the columns of GLUE, and models with scores in their order.
PUBLISHED: Figures = read_table(__file__, "published_scores.yaml")


@dataclass(frozen=True)
class Made:
    """A finished stage, with what it measured."""

    folder: Path
    manifest: Manifest
    record: Record | None


Stages = Mapping[str, Made]
Groups = dict[str, dict[int, str]]  # names of stages by seed, by the stage of the recipe


def read_finished(folders: Iterable[str]) -> Stages:
    """Return the finished stages by folder, which may be in a store."""
    read = ((folder, Manifest.read(folder, of_input=True)) for folder in folders)
    return {folder: Made(Path(folder), manifest, record_of(manifest)) for folder, manifest in read if manifest}


def format_score(value: float | None, deviation: float | None = None) -> str:
    """Format a score with three decimals, and its standard deviation if any; a missing one is empty."""
    return "" if value is None else f"{value:.3f}" + (f" ± {deviation:.3f}" if deviation else "")


def scores_in(stages: Stages) -> list[Score]:
    """Return the scores of the evaluations of a run."""
    return [stage.record for stage in stages.values() if isinstance(stage.record, Score)]


def task_scores(stages: Stages) -> list[Score]:
    """Return the scores of every task and of its `also`; tasks without training have a section."""
    return [part for one in scores_in(stages) if not isinstance(one, TableScore) for part in one.parts()]


def system_tables(stages: Stages) -> list[SystemScore]:
    """Return the scores of retrieval and similarity."""
    return [one for one in scores_in(stages) if isinstance(one, SystemScore)]


def score_plot(scores: list[Score]) -> Figure | None:
    """Plot the scores as bars, with what chance makes of them on as many dev examples."""
    if not scores:
        return None
    values = {
        "pre-trained": [one.score for one in scores],
        "most frequent class": [one.majority or 0.0 for one in scores],
        "random initialisation": [math.nan if one.baseline is None else one.baseline for one in scores],
    }
    whiskers = [significance.spread(one.metric, one.score, one.rows.get("dev", 0)) or 0.0 for one in scores]
    return plots.bars([one.title for one in scores], list(values.items()), "score", whiskers)


def published_scores(model: Figures) -> dict[str, float]:
    """Return the scores of a published model by task."""
    return dict(zip(PUBLISHED["columns"], model["scores"], strict=False))


def glue_rows(stages: Stages) -> list[Figures]:
    """Return the GLUE scores of our models in percent, followed by the published ones."""
    scores_by_start: dict[str, dict[str, float]] = {"pre-trained": {}, "random initialisation": {}}
    for score in scores_in(stages):
        # An evaluation of the task itself takes precedence over one with another task's model.
        for part in score.parts():
            for start, value in zip(scores_by_start, (part.score, part.baseline), strict=True):
                if part.task in PUBLISHED["columns"] and value is not None:
                    scores_by_start[start].setdefault(part.task, 100 * value)
    rows = [glue_row(name, scores, "this run (dev sets)") for name, scores in scores_by_start.items() if scores]
    others = PUBLISHED["models"] if rows else []
    return rows + [glue_row(one["name"], published_scores(one), one["source"]) for one in others]


def glue_row(name: str, scores: Mapping[str, float], source: str) -> Figures:
    """Return a model's scores in percent, with averages without WNLI (the paper's) and with it."""
    nine = metrics.glue_average(scores)
    ten = (nine * 9 + scores["wnli"]) / 10 if nine is not None and "wnli" in scores else None
    return {"name": name, "scores": dict(scores), "average": nine, "with_wnli": ten, "source": source}


def cell(value: float | None) -> str:
    """Format a percentage with one decimal; a missing one is empty."""
    return "" if value is None else f"{value:.1f}"


def markdown(rows: list[Figures]) -> str:
    """Return the table as Markdown."""
    columns = PUBLISHED["columns"]
    names = ["model", *columns.values(), "average", "with WNLI", "source"]
    lines = ["| " + " | ".join(names) + " |", "|---|" + "---:|" * (len(names) - 2) + "---|"]
    for one in rows:
        cells = map(cell, [*map(one["scores"].get, columns), one["average"], one["with_wnli"]])
        lines.append("| " + " | ".join([one["name"], *cells, one["source"]]) + " |")
    return "\n".join(lines) + "\n"


def plot_checkpoints(stages: Stages) -> list[Plot]:
    """Return a plot per task, and per training, of its score over checkpoint steps.

    The steps are read from the converted folders; a task with one checkpoint has no plot.
    """
    points: dict[tuple[str, str], dict[int, Score]] = {}
    for evaluation in stages.values():
        score, start = evaluation.record, evaluation.manifest.config.get("pretrained")
        if not isinstance(score, Score) or not start:
            continue
        model = noted_of(manifest := manifest_of(start), start)
        if model is not None and model.step is not None and manifest is not None:
            place = score.title, training_of(str(manifest.config.get("train")))
            points.setdefault(place, {})[model.step] = score
    drawn = []
    for (title, _), scores in sorted(points.items()):
        steps = sorted(scores)
        if len(steps) > 1:
            curves: list[plots.Curve] = [("pre-trained", steps, [scores[step].score for step in steps])]
            random = [one for step in steps if (one := scores[step].baseline) is not None]
            if len(random) == len(steps):
                curves.append(("random initialisation", steps, random))
            drawn.append((f"{title} over checkpoints", plots.lines(curves, "step", "score")))
    return drawn


def training_of(source: str) -> str:
    """Return the folder of a training, from that folder or from one of its checkpoints.

    >>> training_of("work/train"), training_of("work/train/checkpoints/4f78b391e481/step-00000020")
    ('work/train', 'work/train')
    """
    return source.partition("/checkpoints/")[0]


def seed_groups(stages: Stages, least: int = 2) -> Groups:
    """Return the stages that `least` or more seeds have, in the order of the run."""
    manifests = (one.manifest for name, one in stages.items() if not COPY.fullmatch(name))
    run_seed = next((int(one.config["seed"]) for one in manifests if one.stage == "train" and "seed" in one.config), 0)
    groups: Groups = {}
    for name in stages:
        copied = COPY.fullmatch(name)
        stage, seed = (copied[1], int(copied[2])) if copied else (name, run_seed)
        groups.setdefault(stage, {})[seed] = name
    return {stage: by_seed for stage, by_seed in groups.items() if len(by_seed) >= least}


def leader(stages: Stages, groups: Groups) -> int:
    """Return the seed with the baselines, which one seed has for all, else the first."""
    seeds = [(seed, name) for by_seed in groups.values() for seed, name in by_seed.items()]
    with_baseline = (seed for seed, name in seeds if has_baseline(stages[name]))
    return next(with_baseline, seeds[0][0] if seeds else 0)


def average_seeds(stages: Stages, groups: Groups) -> Stages:
    """Return the stages with one of each group, its scores replaced by means.

    It is the one with a baseline, else that of `leader`.
    """
    merged = dict(stages)
    first = leader(stages, groups)
    for by_seed in groups.values():
        names = sorted(by_seed.values(), key=lambda name: (not has_baseline(stages[name]), name != by_seed.get(first)))
        record = stages[names[0]].record
        every: list[Any] = [record, *(merged.pop(name).record for name in names[1:])]
        if isinstance(record, TrainingSummary | Score):
            record = record.of_seeds(every)
        merged[names[0]] = replace(stages[names[0]], record=record)
    return merged


def has_baseline(stage: Made) -> bool:
    """Return whether a stage has the score of a model with random weights."""
    return isinstance(stage.record, Score) and stage.record.baseline is not None


def named_scores(stage: str, record: Record | None) -> Iterator[tuple[str, float]]:
    """Yield each score of a stage with a name that is the same for all seeds."""
    if isinstance(record, TrainingSummary):
        held_out = record.validation
        yield from ((f"{title} ({stage})", held_out[key]) for key, title in HELD_OUT.items() if key in held_out)
    elif isinstance(record, PairScore):
        yield f"{record.title}, mean of paradigms", record.score
        for name, one in sorted(record.tables["phenomena"].items()):
            yield f"{record.title}, {name.replace('_', ' ')}", one["accuracy"]
    elif isinstance(record, Score):
        yield from ((f"{one.title} {one.metric_title}", one.score) for one in record.parts())


def seed_scores(groups: Groups, stages: Stages) -> dict[str, Figures]:
    """Return mean, deviation and values by seed of each score that all seeds have.

    Titles that several stages have are followed by the stage's name.
    """
    values: dict[tuple[str, str], dict[int, float]] = {}  # by title and stage
    for stage, by_seed in groups.items():
        for seed, name in by_seed.items():
            for title, value in named_scores(stage, stages[name].record):
                values.setdefault((title, stage), {})[seed] = value
    whole = {key: one for key, one in values.items() if len(one) == len(groups[key[1]])}
    times = Counter(title for title, _ in whole)
    result = {}
    for (title, stage), of_seeds in whole.items():
        mean, deviation = mean_of(list(of_seeds.values()))
        label = f"{title} ({stage})" if times[title] > 1 else title
        result[label] = {"mean": mean, "deviation": deviation, "seeds": of_seeds}
    return result


def seed_curves(groups: Groups, stages: Stages) -> Iterator[Plot]:
    """Yield the plots that have a curve per seed: held-out accuracy, and minimal pairs."""
    for stage, by_seed in groups.items():
        held_out, pairs, labels, title = [], [], set(), ""
        for seed, name in by_seed.items():
            entry = stages[name]
            if entry.manifest.stage == TrainingSummary.stage:
                held_out.append((f"seed {seed}", *mean_curve([read_metrics(entry.folder)], "validation", ACCURACY)[:2]))
            elif isinstance(entry.record, PairScore) and entry.record.checkpoints:
                x, label = places(entry.record.checkpoints)
                pairs.append((f"seed {seed}", x, [point["score"] for point in entry.record.checkpoints]))
                labels.add(label)
                title = title or entry.record.title
        if any(steps for _, steps, _ in held_out):
            drawn = plots.lines(held_out, "step", "share of masked tokens")
            yield f"Held-out masked-LM accuracy ({stage})", drawn
        if len(pairs) > 1 and len(labels) == 1:
            yield f"{title}, mean of paradigms ({stage})", plots.lines(pairs, labels.pop(), "accuracy")


def mean_curve(logs: Iterable[list[Figures]], kind: str, key: str) -> tuple[list[int], list[float], list[float]]:
    """Return the steps that trainings of several seeds share, the mean of a metric there, and its deviation."""
    read = [{row["step"]: row[key] for row in rows if row["kind"] == kind and key in row} for rows in logs]
    steps = sorted(set.intersection(*map(set, read)))
    points = [mean_of([one[step] for one in read]) for step in steps]
    return steps, [mean for mean, _ in points], [deviation or 0.0 for _, deviation in points]


def plot_metric(one: Figures, logs: Mapping[str, tuple[str, list[list[Figures]]]]) -> Plot | None:
    """Plot a metric of `plots.yaml`, a curve for the kind of rows and the logs of each label; None if no log has it.

    It is the mean over the seeds that the logs are of, with a band where there are several.
    """
    series = {label: mean_curve(rows, kind, one["key"]) for label, (kind, rows) in logs.items()}
    curves = [(label, steps, means) for label, (steps, means, _) in series.items() if steps]
    bands = {label: deviations for label, (*_, deviations) in series.items() if len(logs[label][1]) > 1}
    title = LOSSES.get(one["key"]) or one["title"]
    return (title, plots.lines(curves, "step", one["unit"], bands)) if curves else None


def places(points: list[Figures]) -> tuple[list[float], str]:
    """Return where checkpoints are on the axis of a learning curve, and its label."""
    for key, label in AXES:
        if all(point[key] is not None for point in points):
            return [point[key] for point in points], label
    return list(range(1, len(points) + 1)), "checkpoint"
