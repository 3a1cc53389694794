"""`python -m pipeline.evaluate +task=NAME`: fine-tune on a task and score on its dev set.

Beside every score stand that of the same network from random initialisation, and that of always
saying the most frequent class: what pre-training bought is the difference.
"""

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from pipeline import entry, glue, metrics, stage
from pipeline.config import EvaluateConfig
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from model.config import ModelConfig
    from model.finetune import Samples

RESULTS, PREDICTIONS = "results.json", "predictions.tsv"


def make(config: EvaluateConfig, out: Path) -> stage.Result:
    """Run the grid from the pre-trained weights and from random ones; write all results."""
    import torch

    from model import finetune, huggingface
    from pipeline.text.wordpiece import WordPiece

    task = config.task
    files = {
        "train": glue.read_examples(config.data, task, task.train).head(config.maximum_rows),
        "dev": glue.read_examples(config.data, task, task.dev),
    }
    size, weights, _ = huggingface.load(config.pretrained)
    if config.sequence_length > size.positions:
        raise ConfigError(
            f"sequence_length={config.sequence_length}: the model has {size.positions} positions"
        )
    wordpiece = WordPiece.load(config.pretrained)
    samples = {
        name: finetune.tokenize(wordpiece, e.first, e.second, e.labels, config.sequence_length)
        for name, e in files.items()
    }
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        torch.set_flush_denormal(True)
    starts = {"pretrained": weights} | ({"random": None} if config.baseline else {})
    runs, predictions = run_grid(config, size, samples, starts, device)
    found = summary_of(config, samples, runs)
    found["malformed"] = [fault for e in files.values() for fault in e.malformed]
    stage.write_text(out / RESULTS, json.dumps(found, indent=1) + "\n")
    write_predictions(out / PREDICTIONS, config, predictions)
    return stage.Result(summary=describe(config, found), figures=found)


def run_grid(
    config: EvaluateConfig, size: "ModelConfig", samples: "dict[str, Samples]",
    starts: dict[str, Any], device: Any,
) -> tuple[list[dict[str, Any]], np.ndarray]:  # fmt: skip
    """Every (start, batch size, learning rate, seed); also the best pre-trained predictions."""
    from model import finetune

    classes = len(config.task.labels) or 1
    grid = list(itertools.product(starts, config.batch_sizes, config.learning_rates, config.seeds))
    steps = sum(config.epochs * -(-len(samples["train"]) // batch) for _, batch, _, _ in grid)
    runs: list[dict[str, Any]] = []
    best, best_predictions = -np.inf, np.zeros(0)
    with tqdm(total=steps, desc=config.task.name, unit="step", disable=None) as bar:
        for start, batch_size, learning_rate, seed in grid:
            recipe = finetune.Recipe(
                batch_size=batch_size, learning_rate=learning_rate, epochs=config.epochs,
                seed=seed, warmup_share=config.warmup_share, weight_decay=config.weight_decay,
            )  # fmt: skip
            model = finetune.build(size, starts[start], classes, seed)
            loss = finetune.train(model, samples["train"], recipe, device, lambda: _tick(bar))
            predicted = finetune.predict(model, samples["dev"], device)
            scores = metrics.score(config.task.metrics, samples["dev"].labels, predicted)
            runs.append(
                {"start": start, "batch_size": batch_size, "learning_rate": learning_rate,
                 "seed": seed, "train_loss": loss, "scores": scores}
            )  # fmt: skip
            bar.set_postfix_str(f"{start} {scores[config.task.metrics[0]]:.3f}")
            if start == "pretrained" and scores[config.task.metrics[0]] > best:
                best, best_predictions = scores[config.task.metrics[0]], predicted
    return runs, best_predictions


def _tick(bar: Any) -> None:
    bar.update()


def summary_of(
    config: EvaluateConfig, samples: "dict[str, Samples]", runs: list[dict[str, Any]]
) -> dict[str, Any]:
    """The account of a task: for each start the best point of the grid, over its seeds."""
    task = config.task
    metric = task.metrics[0]
    found: dict[str, Any] = {
        "task": task.name,
        "title": task.folder,
        "sample": task.sample,
        "metric": metric,
        "rows": {name: len(part) for name, part in samples.items()},
        "majority": metrics.constant(
            task.metrics, samples["train"].labels, samples["dev"].labels, len(task.labels)
        )[metric],
        "runs": runs,
        "baseline": None,
    }
    for start, prefix in (("pretrained", ""), ("random", "baseline_")):
        points: dict[tuple[int, float], list[dict[str, float]]] = {}
        for run in runs:
            if run["start"] == start:
                point = (run["batch_size"], run["learning_rate"])
                points.setdefault(point, []).append(run["scores"])
        if not points:
            continue
        point, scores = max(points.items(), key=lambda p: float(np.mean([s[metric] for s in p[1]])))
        values = [seed[metric] for seed in scores]
        found[prefix.removesuffix("_") or "score"] = float(np.mean(values))
        found[f"{prefix}deviation"] = float(np.std(values))
        found[f"{prefix}best"] = max(values)
        found[f"{prefix}scores"] = {
            name: float(np.mean([seed[name] for seed in scores])) for name in task.metrics
        }
        found[f"{prefix}point"] = {"batch_size": point[0], "learning_rate": point[1]}
    return found


def describe(config: EvaluateConfig, found: dict[str, Any]) -> str:
    """One line: the score and what it has to be measured by."""
    sample = " (sample task)" if found["sample"] else ""
    random = "" if found["baseline"] is None else f"random initialisation {found['baseline']:.3f}, "
    faults = f", {len(found['malformed'])} malformed rows left out" if found["malformed"] else ""
    return (
        f"{found['title']}{sample} {found['metric']} {found['score']:.3f} "
        f"({random}most frequent class {found['majority']:.3f}){faults}"
    )


def write_predictions(path: Path, config: EvaluateConfig, predicted: np.ndarray) -> None:
    """The best run's predictions on dev, as label words or scores."""
    words = config.task.labels
    rows = [
        f"{index}\t{words[int(value)] if words else f'{value:.3f}'}\n"
        for index, value in enumerate(predicted)
    ]
    stage.write_text(path, "index\tprediction\n" + "".join(rows))


def main() -> None:
    """The command."""
    entry.run("evaluate", EvaluateConfig, lambda config: stage.run("evaluate", config, make))


if __name__ == "__main__":
    main()
