"""A task of letters that can be learnt, and its evaluation."""

import numpy as np

from pipeline import evaluate
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.stages import stage

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
LABELS = ["no", "yes"]
COLUMNS = ["sentence1", "sentence2"]
TASK = TaskConfig(name="toy", folder="Toy", columns=COLUMNS, labels=LABELS, metrics=["accuracy", "f1"], sample=True)


def write_task(folder):
    """Whether the second part has an `a`: can be learnt, but not from how often words occur."""
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for name, rows in (("train", 300), ("dev", 100)):
        lines = ["index\tsentence1\tsentence2\tlabel"]
        for index in range(rows):
            first, second = (draw.choice(list("bcdefgh"), draw.integers(1, 6)) for _ in range(2))
            label = index % 2
            (second if label else first)[0] = "a"
            texts = "\t".join(" ".join(words) for words in (first, second))
            lines.append(f"{index}\t{texts}\t{TASK.labels[label]}")
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")


def configured(tmp_path, model_folder):
    """Write the files of the task; return the configuration of one quick run of it."""
    write_task(tmp_path / "tasks" / "Toy")
    grid = {"epochs": 1, "batch_sizes": [16], "learning_rates": [3e-3], "sequence_length": 16}
    places = {"workdir": str(tmp_path), "out": str(tmp_path / "evaluate-toy"), "data": str(tmp_path / "tasks")}
    return EvaluateConfig(task=TASK, pretrained=str(model_folder), **places, **grid)


def run(config):
    return stage.run("evaluate", config, evaluate.make, in_place=True)
