"""`python -m pipeline.evaluate +task=NAME`: fine-tune on a task and score on its dev set.

Beside every score stand that of the same network from random initialisation, and that of always
saying the most frequent class: what pre-training bought is the difference. Each finished run of the
grid is a file, so a grid that was cut off, or has grown, goes on from there.
"""

import itertools
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from pipeline import entry, glue, metrics, stage
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.errors import ConfigError, InputError

if TYPE_CHECKING:
    from torch import Tensor

    from model.config import ModelConfig
    from model.finetune import Samples

Record = dict[str, Any]  # of a finished run: what it was, its epochs, scores and predictions

RESULTS, PREDICTIONS, RUNS = "results.json", "predictions.tsv", "runs"
PRETRAINED, RANDOM = "pretrained", "random"  # where the weights of a run come from
FAULTS = 20  # malformed rows that are named; all are counted


@dataclass(frozen=True)
class Run:
    """One point of the grid, from one start, with one seed."""

    start: str
    batch_size: int
    learning_rate: float
    seed: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.start}-{self.batch_size}-{self.learning_rate!r}-{self.seed}.json"


@dataclass(frozen=True)
class Bench:
    """What all runs share."""

    size: "ModelConfig"
    weights: "dict[str, Tensor]"
    train: "Samples"
    dev: "Samples"


def make(config: EvaluateConfig, out: Path) -> stage.Result:
    """Run what is missing of the grid, and write the account of all of it."""
    task = config.task
    files = [glue.read_examples(config.data, task, name) for name in (task.train, task.dev)]
    bench = prepare(config, files[0].head(config.maximum_rows), files[1])
    keys = grid_of(config)
    folder = out / RUNS
    folder.mkdir(exist_ok=True)
    done = {} if config.force else finished(folder, keys)
    for path in folder.iterdir():
        if path.name not in {run.name for run in done}:
            path.unlink()
    run_grid(config, bench, folder, keys, done)
    records = [done[run] for run in keys]
    found = summary_of(config, bench, records)
    found["malformed"] = sum(len(file.malformed) for file in files)
    found["faults"] = [fault for file in files for fault in file.malformed][:FAULTS]
    stage.write_text(out / RESULTS, json.dumps(found, indent=1) + "\n")
    best = best_of(task, [record for record in records if record["start"] == PRETRAINED])
    stage.write_text(out / PREDICTIONS, predictions_of(task, best["predictions"]))
    return stage.Result(summary=describe(found), figures=found)


def evaluate(config: EvaluateConfig) -> None:
    """The stage; of a grid shared out over pods, the one that finds it whole writes the account."""
    if config.part is None or run_part(config):
        stage.run("evaluate", config, make, in_place=True, wait=config.part is not None)


def run_part(config: EvaluateConfig) -> bool:
    """Do what `config.part` says of the grid; whether all of the grid is done now."""
    assert config.part is not None
    index, parts = config.part
    keys = grid_of(config)
    mine = dict(list(keys.items())[index::parts])
    folder = Path(config.out) / RUNS
    folder.mkdir(parents=True, exist_ok=True)
    done = finished(folder, mine)
    if len(done) < len(mine):
        task = config.task
        files = [glue.read_examples(config.data, task, name) for name in (task.train, task.dev)]
        bench = prepare(config, files[0].head(config.maximum_rows), files[1])
        run_grid(config, bench, folder, mine, done)
    whole = len(finished(folder, keys)) == len(keys)
    print(f"{config.task.name}: part {index} of {parts}, {len(mine)} of {len(keys)} runs done")
    return whole


def prepare(config: EvaluateConfig, train: glue.Examples, dev: glue.Examples) -> Bench:
    """Weights and tokenized samples.

    Raises:
        ConfigError: the sequences are longer than the model's.
        InputError: the folder of the model lacks something.
    """
    import torch

    from model import finetune, huggingface
    from pipeline.text.wordpiece import WordPiece

    if config.threads is not None:
        torch.set_num_threads(config.threads)
    torch.set_flush_denormal(True)  # a matrix product takes 25 times longer with denormals on CPU
    if not (Path(config.pretrained) / huggingface.CONFIG).is_file():
        raise InputError(
            f"pretrained={config.pretrained}: no model in the Hugging Face format there; run "
            f"python -m pipeline.convert first, or set pretrained"
        )
    size, weights, _ = huggingface.load(config.pretrained)
    longest = config.sequence_length
    if longest > size.positions:
        raise ConfigError(f"sequence_length={longest}: the model has {size.positions} positions")
    wordpiece = WordPiece.load(config.pretrained)
    tokenized = [
        finetune.tokenize(wordpiece, part.first, part.second, part.labels, longest)
        for part in (train, dev)
    ]
    return Bench(size, weights, *tokenized)


def grid_of(config: EvaluateConfig) -> dict[Run, str]:
    """Every run of the grid, and its key: the fingerprint of the stage that would do it alone."""
    starts = (PRETRAINED, RANDOM) if config.baseline else (PRETRAINED,)
    keys = {}
    for start, batch_size, rate, seed in itertools.product(
        starts, config.batch_sizes, config.learning_rates, config.seeds
    ):
        alone = replace(
            config, batch_sizes=[batch_size], learning_rates=[rate], seeds=[seed],
            baseline=start == RANDOM,
        )  # fmt: skip
        keys[Run(start, batch_size, rate, seed)] = stage.fingerprint("evaluate", alone)[0]
    return keys


def finished(folder: Path, keys: dict[Run, str]) -> dict[Run, Record]:
    """The runs whose files are there, made from the same inputs by the same settings."""
    done = {}
    for run, key in keys.items():
        path = folder / run.name
        record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if record.get("key") == key:
            done[run] = record
    return done


def run_grid(
    config: EvaluateConfig, bench: Bench, folder: Path, keys: dict[Run, str],
    done: dict[Run, Record],
) -> None:  # fmt: skip
    """Do the runs that are not in `done`, one after the other, and put them there."""
    from model import finetune

    todo = [run for run in keys if run not in done]
    scoring = finetune.batches(bench.dev, finetune.EVALUATION_BATCH)
    total = sum(finetune.batches(bench.train, run.batch_size) + scoring for run in todo)
    metric = config.task.metrics[0]
    with tqdm(
        total=config.epochs * total, desc=config.task.name, unit="batch", disable=None
    ) as bar:
        for run in todo:
            record = {"key": keys[run], **asdict(run), **fine_tune(config, bench, run, bar)}
            stage.write_text(folder / run.name, json.dumps(record) + "\n")
            done[run] = record
            bar.set_postfix_str(f"{run.start} {metric} {record['scores'][metric]:.3f}")


def fine_tune(config: EvaluateConfig, bench: Bench, run: Run, bar: Any) -> Record:
    """One run: loss and scores on dev after each epoch; the last epoch's scores and predictions."""
    import torch

    from model import finetune

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    task = config.task
    recipe = finetune.Recipe(
        batch_size=run.batch_size, learning_rate=run.learning_rate, epochs=config.epochs,
        seed=run.seed, warmup_share=config.warmup_share, weight_decay=config.weight_decay,
    )  # fmt: skip
    weights = bench.weights if run.start == PRETRAINED else None
    model = finetune.build(bench.size, weights, len(task.labels) or 1, run.seed)
    epochs: list[Record] = []
    predicted = np.zeros(0)
    for loss in finetune.train(model, bench.train, recipe, device, bar.update):
        predicted = finetune.predict(model, bench.dev, device, bar.update)
        scores = metrics.score(task.metrics, bench.dev.labels, predicted)
        epochs.append({"train_loss": loss, "scores": scores})
    values = [int(v) for v in predicted] if task.labels else [round(v, 6) for v in predicted]
    return {"scores": epochs[-1]["scores"], "epochs": epochs, "predictions": values}


def best_of(task: TaskConfig, records: Iterable[Record]) -> Record:
    """The run of the highest score; the first of equals."""
    return max(records, key=lambda record: float(record["scores"][task.metrics[0]]))


def summary_of(config: EvaluateConfig, bench: Bench, records: list[Record]) -> Record:
    """The account of a task.

    `score` and `baseline` are means over the seeds, at the best point of the grid, of the task's
    first metric after the last epoch; `majority` is that of always saying the most frequent class
    (the mean) of train. `best` is the single best run of the grid: it flatters, as the maximum of
    noise does.
    """
    task = config.task
    metric = task.metrics[0]
    constant = metrics.constant(
        task.metrics, bench.train.labels, bench.dev.labels, len(task.labels)
    )
    pretrained, baseline = (
        [record for record in records if record["start"] == start] for start in (PRETRAINED, RANDOM)
    )
    found: Record = {
        "task": task.name,
        "title": task.folder,
        "sample": task.sample,
        "metric": metric,
        "rows": {"train": len(bench.train), "dev": len(bench.dev)},
        **point_of(task, pretrained),
        "baseline": None,
    }
    if baseline:
        point = point_of(task, baseline)
        found |= {"baseline": point.pop("score")}
        found |= {f"baseline_{name}": value for name, value in point.items()}
    kept = ("start", "batch_size", "learning_rate", "seed", "scores", "epochs")
    runs = [{name: record[name] for name in kept} for record in records]
    return found | {"majority": constant[metric], "majority_scores": constant, "runs": runs}


def point_of(task: TaskConfig, records: list[Record]) -> Record:
    """The best point of the grid by its mean over the seeds, and the best single run."""
    metric = task.metrics[0]
    points: dict[tuple[int, float], list[dict[str, float]]] = {}
    for record in records:
        point = (record["batch_size"], record["learning_rate"])
        points.setdefault(point, []).append(record["scores"])
    means = {point: np.mean([seed[metric] for seed in seeds]) for point, seeds in points.items()}
    point = max(means, key=means.__getitem__)
    seeds = points[point]
    values = [seed[metric] for seed in seeds]
    return {
        "score": float(means[point]),
        "scores": {name: float(np.mean([seed[name] for seed in seeds])) for name in task.metrics},
        "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        "best": best_of(task, records)["scores"][metric],
        "point": {"batch_size": point[0], "learning_rate": point[1], "seeds": len(seeds)},
    }


def describe(found: Record) -> str:
    """One line: the score and what it has to be measured by."""
    sample = " (sample task)" if found["sample"] else ""
    random = "" if found["baseline"] is None else f"random initialisation {found['baseline']:.3f}, "
    rows = found["malformed"]
    faults = f", {rows} malformed rows left out, {found['faults'][0]}" if rows else ""
    return (
        f"{found['title']}{sample} {found['metric']} {found['score']:.3f} "
        f"({random}majority {found['majority']:.3f}){faults}"
    )


def predictions_of(task: TaskConfig, predicted: list[float]) -> str:
    """The rows of a GLUE submission: label words, or scores with three digits."""
    words = [task.labels[int(value)] if task.labels else f"{value:.3f}" for value in predicted]
    rows = [f"{index}\t{word}\n" for index, word in enumerate(words)]
    return "index\tprediction\n" + "".join(rows)


def main() -> None:
    """The command."""
    entry.run("evaluate", EvaluateConfig, evaluate)


if __name__ == "__main__":
    main()
