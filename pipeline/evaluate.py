"""`python -m pipeline.evaluate +task=NAME`: fine-tune on a task and score on its dev set.

Every score comes with two baselines, the same network from random initialisation and the most
frequent class; the difference shows the benefit of pre-training. Each finished run of the grid is a
file, so that an interrupted or extended grid resumes.
"""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from pipeline.cli import entry_point
from pipeline.common import run_record, screen
from pipeline.common.atomic import write_text
from pipeline.common.errors import ConfigError
from pipeline.common.figures import Score, mean_of
from pipeline.common.manifest import Result
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.evaluation import chance, examples, glue_submission, grid_search, zero_shot
from pipeline.evaluation.grid_search import PRETRAINED, RANDOM, Record, SearchContext, Trial
from pipeline.evaluation.task_types import remarks_of
from pipeline.stages import stage
from pipeline.stages.store_folder import StoreFolder
from pipeline.stages.store_inputs import local_place, localised
from pipeline.tokenization.coverage import Coverage

RESULTS, PREDICTIONS, RUNS, MODEL = "results.json", "predictions.tsv", "runs", "model"
POINT = ("batch_size", "learning_rate")  # of the grid
FAULTS = 20  # malformed rows that are listed; all are counted


def make(config: EvaluateConfig, out: Path) -> Result:
    """Do the missing runs of the grid, and write the results of all runs into `out`.

    Raises:
        ConfigError: raised by `grid_search.prepare`.
        InputError: raised by `grid_search.prepare`, or a test set for `submit` is missing.
    """
    folder = out / RUNS
    folder.mkdir(exist_ok=True)
    if not config.task.trains:
        return make_zero_shot(config, out, folder)
    context = grid_search.prepare(config)
    remarks = remarks_of(config, context.train, context.dev)
    for remark in remarks:
        screen.say(f"{config.task.name}: {remark}")
    keys = grid_search.grid_of(config)
    done = grid_search.finished(config, folder, keys)
    keeping = config.keep or config.submit
    clean_output(out, folder, {run.stem for run in done} if keeping else set(), {r.name for r in done})
    best = best_run(context, folder, keys, done)
    records = [done[run] for run in keys]
    found = replace(score_of(context, records), coverage=context.coverage.counts(), remarks=remarks)
    if keeping:
        from model.huggingface import vocabulary

        vocabulary.check_ids(folder / best.stem)
    if config.submit:
        found.submission.extend(glue_submission.predict(config, folder / best.stem, out))
    if config.keep:
        shutil.copytree(folder / best.stem, out / MODEL)
        write_text(out / MODEL / "README.md", card_of(context, done[best]))
    write_text(out / RESULTS, json.dumps(found.to_json(), indent=1) + "\n")
    predictions = done[best]["predictions"]
    write_text(out / PREDICTIONS, glue_submission.rows(config.task, predictions))
    for name, text in context.kind.export(context.dev, predictions).items():
        write_text(out / name, text)
    return Result(summary=describe(found, config.pretrained), figures=found.to_json())


def card_of(context: SearchContext, record: Record) -> str:
    """Return the model card of the run that is kept."""
    from model.huggingface import model_card

    config, task = context.config, context.config.task
    labels = ", ".join(getattr(context.kind, "tags", task.labels))
    scores = {f"dev {name}": f"{record['scores'][name]:.4f}" for name in task.metrics}
    rows = {
        "labels": labels or None,
        "examples": f"{len(context.train):,} of train, {len(context.dev):,} of dev",
        **scores,
        "epochs": config.epochs,
        **{name.replace("_", " "): record[name] for name in ("batch_size", "learning_rate", "seed")},
        "longest sequence": f"{config.sequence_length} tokens, {config.truncation}",
    }
    return model_card.write_tuned(context.size, context.kind.head, config.pretrained, task.name, rows)


def best_run(context: SearchContext, folder: Path, keys: dict[Trial, str], done: dict[Trial, Record]) -> Trial:
    """Do the missing runs, and return the best; it is repeated if its model has to be kept."""
    config = context.config
    while True:
        grid_search.run_trials(context, folder, keys, done)
        best = grid_search.best_of(config.task.metrics[0], keys, done)
        assert best is not None
        if (folder / best.stem).is_dir() or not (config.keep or config.submit):
            return best
        done.pop(best)  # its model was not kept then; it may score less now than another


def make_zero_shot(config: EvaluateConfig, out: Path, folder: Path) -> Result:
    """Score minimal pairs, and write the results into `out`; `folder` holds the scores.

    Raises:
        InputError: raised by `zero_shot.evaluate`.
    """
    found, files = zero_shot.evaluate(config, folder)
    write_text(out / RESULTS, json.dumps(found.to_json(), indent=1) + "\n")
    for name, text in files.items():
        write_text(out / name, text)
    return Result(summary=zero_shot.describe(found, config.pretrained), figures=found.to_json())


def evaluate(config: EvaluateConfig) -> None:
    """Run the stage; with `part`, the worker that completes the grid writes the results."""
    if not config.task.trains:
        if config.part is None or config.part[0] == 0:
            stage.run("evaluate", config, make, in_place=True)
        return
    if config.part is None or run_part(config):
        stage.run("evaluate", config, make, in_place=True, wait=config.part is not None)


def run_part(config: EvaluateConfig) -> bool:
    """Do the runs of `config.part`, and return whether the whole grid is done now."""
    assert config.part is not None
    index, parts = config.part
    keys = grid_search.grid_of(config)
    mine = dict(list(keys.items())[index::parts])
    store = StoreFolder("evaluate", config)
    with store.part(f"{RUNS}/*.json"):
        folder = local_place(config.out, config.mirror) / RUNS
        folder.mkdir(parents=True, exist_ok=True)
        done = grid_search.finished(config, folder, mine)
        if len(done) < len(mine):
            context = grid_search.prepare(localised("evaluate", config))
            grid_search.run_trials(context, folder, mine, done)
    whole = len(grid_search.finished(config, folder, keys)) == len(keys)
    print(f"{config.task.name}: part {index} of {parts}, {len(mine)} of {len(keys)} runs done")
    return whole


def clean_output(out: Path, folder: Path, models: set[str], files: set[str]) -> None:
    """Delete models and results of earlier runs that this one will not use."""
    for path in folder.iterdir():
        if path.is_dir() and path.name not in models:
            shutil.rmtree(path)
        elif path.is_file() and path.name not in files:
            path.unlink()
    for name in (MODEL, glue_submission.FOLDER):
        shutil.rmtree(out / name, ignore_errors=True)


def score_of(context: SearchContext, records: list[Record]) -> Score:
    """Return the score of a task, with its baselines."""
    task = context.config.task
    constant = context.kind.majority_baseline(context.train, context.dev)
    pretrained, random = (
        best_point(task, [record for record in records if record["start"] == start]) for start in (PRETRAINED, RANDOM)
    )
    # A dev set that is a part of the training file has the same faults.
    files = [context.train, *([] if task.dev_share else [context.dev])]
    faults = [fault for file in files for fault in file.malformed]
    kept = ("start", "batch_size", "learning_rate", "seed", "scores", "epochs")
    return Score(
        task=task.name,
        title=task.submission or task.folder or task.name,
        sample=task.sample,
        metric=task.metrics[0],
        positive=positive(task),
        rows={"train": len(context.train), "dev": len(context.dev)},
        **pretrained,
        baseline=random.get("score"),
        **{f"baseline_{name}": value for name, value in random.items() if name != "score"},
        majority=constant[task.metrics[0]],
        majority_scores=constant,
        also={name: also_of(context, name, records, pretrained["point"], random.get("point")) for name in context.also},
        runs=[{name: record[name] for name in kept} for record in records],
        malformed=len(faults),
        faults=faults[:FAULTS],
    )


def positive(task: TaskConfig) -> str | None:
    """Return the class that F1 is of, if there are two; that of other tasks is of no class."""
    two = task.kind == "classification" and len(task.labels) == 2
    return task.labels[1] if two else None


def best_point(task: TaskConfig, records: list[Record]) -> Record:
    """Return the best point of the grid by its mean over the seeds, and the best single run."""
    if not records:
        return {}
    metric = task.metrics[0]
    points: dict[tuple[int, float], list[dict[str, float]]] = {}
    for record in records:
        point = (record["batch_size"], record["learning_rate"])
        points.setdefault(point, []).append(record["scores"])
    means = {point: mean_of([seed[metric] for seed in seeds]) for point, seeds in points.items()}
    point = max(means, key=lambda one: means[one][0])
    seeds = points[point]
    return {
        "score": means[point][0],
        "scores": {name: mean_of([seed[name] for seed in seeds])[0] for name in seeds[0]},
        "deviation": means[point][1],
        "best": max(record["scores"][metric] for record in records),
        "point": {"batch_size": point[0], "learning_rate": point[1], "seeds": len(seeds)},
    }


def also_of(context: SearchContext, name: str, records: list[Record], point: Record, random: Record | None) -> Score:
    """Return the score on another task's dev set, at `point` of the grid, and `random` if any."""
    task = examples.task_of(name)
    metric = task.metrics[0]
    kind, part = context.also[name]

    def mean(start: str, point: Record) -> float:
        own = (record for record in records if record["start"] == start)
        same = [one for one in own if all(one[key] == point[key] for key in POINT)]
        return mean_of([one["also"][name][metric] for one in same])[0]

    return Score(
        task=name,
        title=task.submission or name,
        sample=context.config.task.sample,
        metric=metric,
        positive=positive(task),
        rows={"train": len(context.train), "dev": len(part)},
        score=mean(PRETRAINED, point),
        baseline=mean(RANDOM, random) if random else None,
        majority=kind.majority_baseline(context.train, part)[metric],
    )


def describe(found: Score, pretrained: str) -> str:
    """Return the summary line: the score, its baselines, and the fine-tuned model."""
    sample = " (sample task)" if found.sample else ""
    random = "" if found.baseline is None else f"random initialisation {found.baseline:.3f}, "
    rows = found.malformed
    faults = f", {rows} malformed rows skipped, {found.faults[0]}" if rows else ""
    remark = chance.verdict(found)
    remarks = "".join(f", {one}" for one in found.remarks)
    return (
        f"{found.title}{sample} {found.metric_title} {found.score:.3f} "
        f"({random}majority {found.majority:.3f}{f'; {remark}' if remark else ''}) "
        f"with {pretrained}{faults}{remarks}; {Coverage.of(found.coverage).line}"
    )


def check_model_named(words: list[str]) -> None:
    """Raise ConfigError for a custom task without `pretrained` or `workdir` on the command line.

    Otherwise the demo's model would silently be fine-tuned.
    """
    if "task=own" in (word.lstrip("+") for word in words) and not any(
        word.startswith(("pretrained=", "workdir=")) for word in words
    ):
        raise ConfigError(
            "is required; add pretrained=FOLDER, the model to fine-tune (pretrained=work/sample/convert is that of "
            "make demo)",
            "pretrained",
        )


def main() -> None:
    """Run the command."""
    words = sys.argv[1:]

    def checked(config: EvaluateConfig) -> None:
        check_model_named(words)
        evaluate(config)
        if run_record.OPTION not in words and Path(config.workdir, "report", "report.html").exists():
            print(f"python -m pipeline.report workdir={config.workdir} adds this to the report")

    entry_point.run("evaluate", EvaluateConfig, checked)


if __name__ == "__main__":
    main()
