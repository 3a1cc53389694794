"""Scores of a recipe over several seeds of pre-training: mean and standard deviation."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from model.training.tracking import read_metrics
from pipeline.common.figures import PairScore, Score, TrainingSummary, mean_of
from pipeline.common.manifest import Manifest
from pipeline.reporting import plots
from pipeline.reporting.minimal_pair_tables import pair_score, places
from pipeline.reporting.score_tables import Stages, shown

COPY = re.compile(r"(.+)-seed(-?\d+)")  # the name of a stage of another seed than the run's
ACCURACY = TrainingSummary.ACCURACY
HELD_OUT = {
    ACCURACY: "held-out masked-LM accuracy",
    "masked_lm_loss": "held-out masked-LM loss",
    "next_sentence_accuracy": "held-out next-sentence accuracy",
}

Groups = dict[str, dict[int, str]]  # names of stages by seed, by the stage of the recipe


def groups(stages: Stages) -> Groups:
    """Return the stages that there are for more than one seed, in the order of the run."""
    own = next(
        (
            int(manifest.config["seed"])
            for name, (_, manifest) in stages.items()
            if manifest.stage == "train" and "seed" in manifest.config and not COPY.fullmatch(name)
        ),
        0,
    )
    found: Groups = {}
    for name in stages:
        copied = COPY.fullmatch(name)
        stage, seed = (copied[1], int(copied[2])) if copied else (name, own)
        found.setdefault(stage, {})[seed] = name
    return {stage: by_seed for stage, by_seed in found.items() if len(by_seed) > 1}


def leader(stages: Stages, found: Groups) -> int:
    """Return the seed with the baselines, which one seed has for all, else the first."""
    seeds = [(seed, name) for by_seed in found.values() for seed, name in by_seed.items()]
    own = (seed for seed, name in seeds if has_baseline(stages[name][1]))
    return next(own, seeds[0][0] if seeds else 0)


def leading(stages: Stages, found: Groups) -> Stages:
    """Return the stages with one of each group, its scores replaced by means.

    It is the one with a baseline, else that of `leader`.
    """
    kept = dict(stages)
    first = leader(stages, found)
    for by_seed in found.values():
        names = sorted(
            by_seed.values(), key=lambda name: (not has_baseline(stages[name][1]), name != by_seed.get(first))
        )
        folder, manifest = stages[names[0]]
        every = [stages[name][1] for name in names]
        kept[names[0]] = (folder, replace(manifest, figures=averaged(every)))
        for name in names[1:]:
            del kept[name]
    return kept


def has_baseline(manifest: Manifest) -> bool:
    """Return whether a stage has the score of a model with random weights."""
    return manifest.stage == Score.stage and Score.of(manifest).baseline is not None


def averaged(manifests: list[Manifest]) -> dict[str, Any]:
    """Return the figures of the first of a group, its scores replaced by means."""
    first = manifests[0]
    if first.stage == TrainingSummary.stage:
        trainings = list(map(TrainingSummary.of, manifests))
        return trainings[0].of_seeds(trainings).to_json()
    if first.stage == Score.stage:
        scores = list(map(Score.of, manifests))
        return scores[0].of_seeds(scores).to_json()
    return first.figures


def scores_of(stage: str, manifest: Manifest) -> Iterator[tuple[str, float]]:
    """Yield each score of a stage with a name that is the same for all seeds."""
    if manifest.stage == TrainingSummary.stage:
        held_out = TrainingSummary.of(manifest).validation
        yield from ((f"{title} ({stage})", held_out[key]) for key, title in HELD_OUT.items() if key in held_out)
    elif manifest.stage == Score.stage:
        found = Score.of(manifest)
        if isinstance(found, PairScore):
            yield f"{found.title}, mean of paradigms", found.score
            for name, one in sorted(found.tables["phenomena"].items()):
                yield f"{found.title}, {name.replace('_', ' ')}", one["accuracy"]
        else:
            yield from ((f"{one.title} {one.metric_title}", one.score) for one in found.parts())


def scores(found: Groups, stages: Stages) -> dict[str, dict[str, Any]]:
    """Return mean, deviation and values by seed of each score that all seeds have.

    Titles that several stages have are followed by the stage's name.
    """
    values: dict[tuple[str, str], dict[int, float]] = {}  # by title and stage
    for stage, by_seed in found.items():
        for seed, name in by_seed.items():
            for title, value in scores_of(stage, stages[name][1]):
                values.setdefault((title, stage), {})[seed] = value
    whole = {key: one for key, one in values.items() if len(one) == len(found[key[1]])}
    times = Counter(title for title, _ in whole)
    result = {}
    for (title, stage), of_seeds in whole.items():
        mean, deviation = mean_of(list(of_seeds.values()))
        own = f"{title} ({stage})" if times[title] > 1 else title
        result[own] = {"mean": mean, "deviation": deviation, "seeds": of_seeds}
    return result


def section(found: Groups, stages: Stages) -> dict[str, Any] | None:
    """Return the section of the page; None for a run with one seed."""
    if not found:
        return None
    seeds = list(dict.fromkeys(seed for by_seed in found.values() for seed in by_seed))
    rows = [
        {
            "name": title,
            "mean": shown(one["mean"]),
            "deviation": shown(one["deviation"]),
            "shown": [shown(one["seeds"].get(seed)) for seed in seeds],
        }
        for title, one in scores(found, stages).items()
    ]
    plots = list(curves(found, stages))
    return {"seeds": seeds, "leader": leader(stages, found), "rows": rows, "plots": plots}


def curves(found: Groups, stages: Stages) -> Iterator[tuple[str, str]]:
    """Yield the plots that have a curve per seed: held-out accuracy, and minimal pairs."""
    for stage, by_seed in found.items():
        of_seeds = {f"seed {seed}": stages[name] for seed, name in by_seed.items()}
        held_out = [
            (seed, *accuracies(folder)) for seed, (folder, manifest) in of_seeds.items() if manifest.stage == "train"
        ]
        if any(steps for _, steps, _ in held_out):
            title = f"Held-out masked-LM accuracy ({stage})"
            yield title, plots.lines(held_out, "step", "share of masked tokens")
        pairs = [
            (seed, *places(score.checkpoints), score)
            for seed, (_, manifest) in of_seeds.items()
            if (score := pair_score(manifest)) is not None and score.checkpoints
        ]
        labels = {label for _, _, label, _ in pairs}
        if len(pairs) > 1 and len(labels) == 1:
            drawn = [(seed, x, [point["score"] for point in score.checkpoints]) for seed, x, _, score in pairs]
            yield (f"{pairs[0][-1].title}, mean of paradigms ({stage})", plots.lines(drawn, labels.pop(), "accuracy"))


def accuracies(folder: Path) -> tuple[list[int], list[float]]:
    """Return the steps and the values of the held-out accuracy of a training."""
    rows = [row for row in read_metrics(folder) if row["kind"] == "validation" and ACCURACY in row]
    return [row["step"] for row in rows], [row[ACCURACY] for row in rows]
