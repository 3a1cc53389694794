"""Minimal pairs in the report: accuracy by phenomenon next to published models, learning curves."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

from pipeline.common.figures import PairScore, Score
from pipeline.common.manifest import Manifest
from pipeline.reporting import plots

PUBLISHED = Path(__file__).with_name("published_minimal_pairs.yaml")
# What a checkpoint's place on the curve is: the first that all checkpoints know.
AXES = (("words", "words seen"), ("tokens", "tokens seen"), ("step", "step"))
MOST_CURVES = len(plots.COLOURS)

Figures = dict[str, Any]


@cache
def published() -> dict[str, list[Figures]]:
    """Return what others published, by task."""
    found = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def pair_score(manifest: Manifest) -> PairScore | None:
    """Return the score of a stage that is an evaluation on minimal pairs."""
    score = Score.of(manifest) if manifest.stage == Score.stage else None
    return score if isinstance(score, PairScore) else None


def sections(manifests: Iterable[Manifest]) -> list[dict[str, Any]]:
    """Return a section per evaluation; curves over checkpoints are added to the task's table."""
    found = [score for score in map(pair_score, manifests) if score is not None]
    parts: dict[str, dict[str, Any]] = {}
    shown = []
    for score in sorted(found, key=lambda one: bool(one.checkpoints)):
        if score.checkpoints and score.task in parts:
            parts[score.task]["plots"] += curves(score)
        else:
            shown.append(section(score))
            parts.setdefault(score.task, shown[-1])
    return shown


def section(score: PairScore) -> dict[str, Any]:
    """Return the table and the plots of one evaluation.

    A row is a phenomenon; of a set without phenomena, a paradigm.
    """
    tables, random = score.tables, score.baseline_tables
    kind = "phenomena" if tables["phenomena"] else "paradigms"
    known = others_of(score.task, tables)
    others = [one for one in known if one[2].keys() & tables[kind].keys()]
    rows = [
        row(name.replace("_", " "), one, random.get(kind, {}).get(name), [scores.get(name) for _, _, scores in others])
        for name, one in sorted(tables[kind].items())
    ]
    rows.append(
        row("mean of paradigms", tables["macro"], random.get("macro"), [scores.get("") for _, _, scores in others])
    )
    return {
        "task": f"{score.title}, mean of paradigms",
        "title": f"{score.title}: {score.scores['micro']:.1%} of {score.rows['dev']:,} pairs right",
        "kind": "phenomenon" if kind == "phenomena" else "paradigm",
        "rows": rows,
        "models": [name for name, _, _ in others],
        "ranking": ranking(score, known),
        "note": note(score),
        "plots": curves(score),
    }


def ranking(score: PairScore, known: list[tuple[str, str, dict[str, float]]]) -> list[dict[str, Any]]:
    """Return the scores over all of this model, random weights and published models, best first."""
    found = [("this model", "", 100 * score.score)]
    if score.baseline is not None:
        found.append(("random initialisation", "", 100 * score.baseline))
    found += [(name, source, scores[""]) for name, source, scores in known if "" in scores]
    return [
        {"name": name, "source": source, "percent": percent, "score": f"{percent:.1f}"}
        for name, source, percent in sorted(found, key=lambda one: -one[2])
    ]


def note(score: PairScore) -> str:
    """Return how sentences were scored."""
    how = {
        "pll": "pseudo-log-likelihood",
        "word_l2r": "pseudo-log-likelihood, words left to right",
        "likelihood": "likelihood",
    }
    missing = len(missing_paradigms(score.task, score.tables))
    part = f" {missing} published paradigms were not scored here: models are compared by the others."
    return (
        f"Model {score.model}, by {how[score.method]}; intervals of 95% are from a bootstrap of "
        f"pairs; chance is 50%. {score.ties:,} ties count as right." + part * bool(missing)
    )


def row(name: str, ours: Figures, random: Figures | None, others: list[float | None]) -> dict[str, Any]:
    """Return a row of the table, in percent."""
    low, high = ours["interval"]
    return {
        "name": name,
        "pairs": f"{ours['pairs']:,}",
        "percent": 100 * ours["accuracy"],
        "score": f"{100 * ours['accuracy']:.1f}",
        "interval": f"{100 * low:.1f} to {100 * high:.1f}",
        "random": "" if random is None else f"{100 * random['accuracy']:.1f}",
        "others": ["" if score is None else f"{score:.1f}" for score in others],
    }


def others_of(task: str, tables: Figures) -> list[tuple[str, str, dict[str, float]]]:
    """Return published models: name, source, and percent by phenomenon, "" that of all.

    Scores of paradigms are averaged over our phenomena; where one is missing, so is the mean. Of
    what is published for phenomena alone the score over all is their mean. If only a part of the
    paradigms was scored, what is published without them is left out, as it does not compare.
    """
    found = []
    part = missing_paradigms(task, tables)
    for entry in published().get(task, []):
        if part and "paradigms" not in entry:
            continue
        for number, name in enumerate(entry["models"]):
            by_paradigm = {key: one[number] for key, one in entry.get("paradigms", {}).items()}
            scores = {key: one[number] for key, one in entry.get("phenomena", {}).items()}
            if "overall" in entry:
                scores[""] = entry["overall"][number]
            elif scores:
                scores[""] = mean(scores.values())
            groups: dict[str, list[str]] = {"": []}
            for paradigm, one in tables["paradigms"].items():
                groups[""].append(paradigm)
                groups.setdefault(one["phenomenon"] or paradigm, []).append(paradigm)
            for group, members in groups.items():
                if by_paradigm and all(member in by_paradigm for member in members):
                    scores[group] = mean(by_paradigm[member] for member in members)
            found.append((name, entry["source"], scores))
    return found


def missing_paradigms(task: str, tables: Figures) -> set[str]:
    """Return the paradigms that others published scores of and that were not scored here."""
    entries = published().get(task, [])
    return {name for entry in entries for name in entry.get("paradigms", {})} - set(tables["paradigms"])


def curves(score: PairScore) -> list[tuple[str, str]]:
    """Return the learning curves over the checkpoints: over all, and phenomena a few at a time."""
    points = score.checkpoints
    if len(points) < 2:
        return []
    x, label = places(points)
    pairs = f"{score.rows['dev']:,} pairs"
    drawn = [
        (
            f"Mean of paradigms over checkpoints ({pairs})",
            plots.lines(
                [
                    ("accuracy", x, [point["score"] for point in points]),
                    ("chance", x, [score.majority or 0.0] * len(x)),
                ],
                label,
                "accuracy",
            ),
        )
    ]
    names = sorted(points[0]["phenomena"])
    for start in range(0, len(names), MOST_CURVES):
        part = [
            (name.replace("_", " "), x, [point["phenomena"][name] for point in points])
            for name in names[start : start + MOST_CURVES]
        ]
        drawn.append((f"Phenomena {start + 1} to {start + len(part)}", plots.lines(part, label, "accuracy")))
    return drawn


def places(points: list[Figures]) -> tuple[list[float], str]:
    """Return where checkpoints are on the axis of a learning curve, and its label."""
    known = [axis for axis in AXES if all(point[axis[0]] is not None for point in points)]
    if not known:
        return list(range(1, len(points) + 1)), "checkpoint"
    key, label = known[0]
    return [point[key] for point in points], label
