"""Several runs side by side: what differs, their scores, and curves with a band over seeds."""

from collections.abc import Iterator, Mapping
from typing import Any

from model.tracking.metrics_file import read_metrics
from pipeline.records.metrics import BY_WORDS, CorpusCounts, SystemScore, TrainingSummary
from pipeline.reporting import plots, score_tables
from pipeline.reporting.score_tables import Figures, Plot, Stages, format_score

Runs = Mapping[str, Stages]
Cells = dict[str, dict[str, str]]  # by row, and by run
NOTE = "Mean and standard deviation over the seeds of a run, where it has several."


def tables(runs: Runs) -> list[Figures]:
    """Return a table of scores, of what was read and learnt, and of the settings that differ."""
    scores: Cells = {}
    figures: Cells = {}
    for run, stages in runs.items():
        for title, one in score_tables.seed_scores(score_tables.seed_groups(stages, 1), stages).items():
            count = f" (seeds: {len(one['seeds'])})" if len(one["seeds"]) > 1 else ""
            scores.setdefault(title, {})[run] = format_score(one["mean"], one["deviation"]) + count
        for title, value in read_and_learnt(stages):
            figures.setdefault(title, {})[run] = f"{value:,}"
    settings = {key: cells for key, cells in all_settings(runs).items() if len(set(map(cells.get, runs))) > 1}
    results = (("Scores", "score", scores, NOTE), ("Text and training", "figure", figures, ""))
    every = (*results, ("Settings that differ", "setting", settings, ""))
    return [
        {
            "title": title,
            "of": label,
            "runs": list(runs),
            "rows": {name: [cells.get(run, "") for run in runs] for name, cells in rows.items()},
            "note": note,
        }
        for title, label, rows, note in every
        if rows
    ]


def read_and_learnt(stages: Stages) -> Iterator[tuple[str, int]]:
    """Yield what each corpus and each training of the first seed counted."""
    for name, stage in stages.items():
        if isinstance(counts := stage.record, CorpusCounts):
            yield f"documents ({name})", counts.written
            yield f"tokens ({name})", counts.tokens
            yield f"entries of the vocabulary ({name})", counts.vocab_size
        elif isinstance(summary := stage.record, TrainingSummary) and not score_tables.COPY.fullmatch(name):
            yield f"steps ({name})", summary.steps
            yield f"tokens seen ({name})", summary.tokens


def all_settings(runs: Runs) -> Cells:
    """Return every setting of the stages that runs share, paths in a run's own folder without it."""
    settings: Cells = {}
    for run, stages in runs.items():
        for name, stage in stages.items():
            if score_tables.COPY.fullmatch(name) or not all(name in other for other in runs.values()):
                continue
            config = stage.manifest.config
            for key, value in leaves({key: config[key] for key in config if key not in ("workdir", "out")}, name):
                settings.setdefault(key, {})[run] = str(value).replace(f"{config.get('workdir', run)}/", "")
    return settings


def leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested settings, by dotted key."""
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from leaves(part, f"{key}.{name}")
    else:
        yield key, value


def warnings(runs: Runs) -> Iterator[str]:
    """Yield why the losses and accuracies of runs do not compare."""
    records = [(one.record, one.manifest.config) for stages in runs.values() for one in stages.values()]
    corpora = [(record, config) for record, config in records if isinstance(record, CorpusCounts)]
    texts = {str([config.get(key) for key in ("corpus", "validation_share", "filters")]) for _, config in corpora}
    if len({record.tokenizer for record, _ in corpora}) > 1:
        yield (
            "the runs have different vocabularies: of held-out figures compare bits per byte alone; losses and "
            "accuracies are of other tokens"
        )
    sets: dict[str, set[Any]] = {}  # of each title, those of a run
    for stages in runs.values():
        dev_sets: dict[str, set[Any]] = {}
        for part in (part for one in score_tables.scores_in(stages) for part in one.parts()):
            same = part.systems.get(BY_WORDS, {}).get("scores") if isinstance(part, SystemScore) else part.majority
            dev_sets.setdefault(f"{part.title} {part.metric_title}", set()).add((part.rows.get("dev"), str(same)))
        for title, each in dev_sets.items():
            sets.setdefault(title, set()).add(frozenset(each))
    yield from (f"{title}: the runs have different dev sets" for title in sorted(sets) if len(sets[title]) > 1)
    if len(texts) > 1:
        yield "the runs have different corpora, filters or shares: held-out figures are of other documents"


def curves(runs: Runs) -> Iterator[Plot]:
    """Yield a plot for each held-out figure, else that of training, with a curve for each run and training."""
    logs = {}
    for run, stages in runs.items():
        groups = score_tables.seed_groups(stages, 1)
        trained = {
            stage: [stages[name].folder for name in by_seed.values()]
            for stage, by_seed in groups.items()
            if any(stages[name].manifest.stage == TrainingSummary.stage for name in by_seed.values())
        }
        for stage, folders in trained.items():
            logs[run if len(trained) == 1 else f"{run}: {stage}"] = [read_metrics(one) for one in folders]
    bands = "; bands: one standard deviation over seeds" if any(len(rows) > 1 for rows in logs.values()) else ""
    for one in plots.TABLE["curves"]:
        for kind, suffix in (("validation", "held out"), ("train", "in training")):
            if plot := score_tables.plot_metric(one, {label: (kind, rows) for label, rows in logs.items()}):
                title, figure = plot
                yield f"{title}, {suffix}{bands}", figure
                break
