"""Minimal pairs in the report: accuracy by phenomenon next to published models, learning curves."""

from statistics import mean

from pipeline.common.tables import read_table
from pipeline.records.metrics import PairScore
from pipeline.reporting import plots
from pipeline.reporting.score_tables import Figures, Plot, Stages, places

MOST_CURVES = len(plots.COLOURS)

Published = tuple[str, str, dict[str, float]]  # a model: its name, its source, and percent by phenomenon
# What others published, by task.
PUBLISHED: dict[str, list[Figures]] = read_table(__file__, "published_minimal_pairs.yaml")


def sections(stages: Stages) -> list[Figures]:
    """Return a section per evaluation; curves over checkpoints are added to the task's table."""
    scores = [stage.record for stage in stages.values() if isinstance(stage.record, PairScore)]
    parts: dict[str, Figures] = {}
    sections = []
    for score in sorted(scores, key=lambda one: bool(one.checkpoints)):
        if score.checkpoints and score.task in parts:
            parts[score.task]["plots"] += curves(score)
        else:
            sections.append(section(score))
            parts.setdefault(score.task, sections[-1])
    return sections


def section(score: PairScore) -> Figures:
    """Return the table and the plots of one evaluation.

    A row is a phenomenon, or of a set without phenomena a paradigm: its name, our figures, the
    accuracy of random weights, and the percentages of published models.
    """
    kind = "phenomena" if score.tables["phenomena"] else "paradigms"
    tables = score.tables[kind]
    random = {one: score.baseline_tables.get(one, {}) for one in (kind, "macro")}
    published = others_of(score.task, score.tables)
    others = [one for one in published if one[2].keys() & tables.keys()]
    rows = [
        (name.replace("_", " "), one, random[kind].get(name, {}), [scores.get(name) for _, _, scores in others])
        for name, one in sorted(tables.items())
    ]
    whole = [scores.get("") for _, _, scores in others]
    rows.append(("mean of paradigms", score.tables["macro"], random["macro"], whole))
    return {
        "task": f"{score.title}, mean of paradigms",
        "title": f"{score.title}: {score.scores['micro']:.1%} of {score.rows['dev']:,} pairs right",
        "kind": "phenomenon" if kind == "phenomena" else "paradigm",
        "rows": rows,
        "models": [name for name, _, _ in others],
        "ranking": ranking(score, published),
        "note": note(score),
        "plots": curves(score),
    }


def ranking(score: PairScore, published: list[Published]) -> list[tuple[str, str, float]]:
    """Return name, source and percentage over all of every model, best first."""
    rows = [("this model", "", 100 * score.score)]
    if score.baseline is not None:
        rows.append(("random initialisation", "", 100 * score.baseline))
    rows += [(name, source, scores[""]) for name, source, scores in published if "" in scores]
    return sorted(rows, key=lambda one: -one[2])


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


def others_of(task: str, tables: Figures) -> list[Published]:
    """Return published models: name, source, and percent by phenomenon, "" that of all.

    Scores of paradigms are averaged over our phenomena; where one is missing, so is the mean. Of
    what is published for phenomena alone the score over all is their mean. If only a part of the
    paradigms was scored, what is published without them is left out, as it does not compare.
    """
    models = []
    part = missing_paradigms(task, tables)
    for entry in PUBLISHED.get(task, []):
        if part and "paradigms" not in entry:
            continue
        for number, name in enumerate(entry["models"]):
            by_paradigm, scores = (
                {key: one[number] for key, one in entry.get(kind, {}).items()} for kind in ("paradigms", "phenomena")
            )
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
            models.append((name, entry["source"], scores))
    return models


def missing_paradigms(task: str, tables: Figures) -> set[str]:
    """Return the paradigms that others published scores of and that were not scored here."""
    entries = PUBLISHED.get(task, [])
    return {name for entry in entries for name in entry.get("paradigms", {})} - set(tables["paradigms"])


def curves(score: PairScore) -> list[Plot]:
    """Return the learning curves over the checkpoints: over all, and phenomena a few at a time."""
    points = score.checkpoints
    if len(points) < 2:
        return []
    x, label = places(points)
    means = [("accuracy", x, [point["score"] for point in points]), ("chance", x, [score.majority or 0.0] * len(x))]
    title = f"Mean of paradigms over checkpoints ({score.rows['dev']:,} pairs)"
    drawn = [(title, plots.lines(means, label, "accuracy"))]
    names = sorted(points[0]["phenomena"])
    for start in range(0, len(names), MOST_CURVES):
        part = [
            (name.replace("_", " "), x, [point["phenomena"][name] for point in points])
            for name in names[start : start + MOST_CURVES]
        ]
        drawn.append((f"Phenomena {start + 1} to {start + len(part)}", plots.lines(part, label, "accuracy")))
    return drawn
