r"""Fine-tuning of one task: ours against Hugging Face's Trainer, with the same model and data.

    python -m benchmarks.scores.finetune --pretrained work/sample/convert --data work/sample/tasks \
        --task sample_next --rows 2000 --seeds 0 1 2

Both start from the same folder, with the same epochs, seeds, batch size, learning rate, schedule,
clipping, weight decay, longest sequence and threads. The Trainer pads each batch to its longest; `trainer` draws
batches at random, as ours does, and `sorted` groups samples by length. Each run is a separate process; they alternate.
Measures training and the scoring of the dev set after each epoch, without start-up. Needs
`pip install -e '.[benchmarks]'`.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.shared import keep, mean
from model.training import provenance

PEERS = {"trainer": "random", "sorted": "group by length", "ours": ""}  # how the Trainer draws batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pretrained", required=True, help="a Hugging Face folder")
    parser.add_argument("--data", required=True, help="folder of the task's files")
    parser.add_argument("--task", required=True, help="a name of conf/task with classes")
    parser.add_argument("--set", nargs="*", default=[], help="task settings: train=FILE dev=FILE")
    parser.add_argument("--rows", type=int, help="training examples; default: all")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--length", type=int, default=128, help="tokens; at most those that the model has learnt")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", choices=list(PEERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.length = min(options.length, provenance.learnt(options.pretrained))
    if options.one:
        importlib.import_module("torch._dynamo")  # is start-up: optimizers load it with their first step
        print(json.dumps(ours(options) if options.one == "ours" else trainer(options)))
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in PEERS}
    for seed in options.seeds:
        for name, runs in found.items():
            runs.append(alone(name, seed, options.threads))
            last = runs[-1]
            print(f"{name:8} seed {seed}: {last['seconds']:7.2f} s, {last['score']:.4f}", flush=True)
    report(found)


def alone(name: str, seed: int, threads: int) -> dict[str, float]:
    """Run once in a separate process."""
    command = [sys.executable, "-m", "benchmarks.scores.finetune", *sys.argv[1:], "--one", name]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [*command, "--seeds", str(seed)], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def report(found: dict[str, list[dict[str, float]]]) -> None:
    """Print a table of all, and the ratios."""
    print(f"\n{'':10}{'seconds':>18}{'dev score':>18}")
    for name, runs in found.items():
        print(f"{name:10}" + "".join(f"{mean([run[key] for run in runs]):>18}" for key in ("seconds", "score")))
    means = {name: statistics.median(run["seconds"] for run in runs) for name, runs in found.items()}
    for name, batches in PEERS.items():
        if name != "ours":
            keep(f"fine-tuning: Trainer, {batches}", means[name] / means["ours"])
            print(f"ours is {means[name] / means['ours']:.2f} times as fast as {name} (medians)")


def task_of(options: argparse.Namespace) -> Any:
    """Return the task with its settings changed."""
    from dataclasses import replace

    from pipeline.evaluation import examples

    return replace(examples.task_of(options.task), **dict(item.split("=", 1) for item in options.set))


def ours(options: argparse.Namespace) -> dict[str, float]:
    """Return seconds and last score of our loop."""
    from model.encoders.device import device_of
    from pipeline.config import EvaluateConfig
    from pipeline.evaluation import grid_search

    config = EvaluateConfig(
        task=task_of(options),
        data=options.data,
        pretrained=options.pretrained,
        workdir="work",
        out="out",
        epochs=options.epochs,
        batch_sizes=[options.batch],
        learning_rates=[options.rate],
        seeds=options.seeds,
        sequence_length=options.length,
        maximum_rows=options.rows,
        baseline=False,
        threads=options.threads,
        precision=options.precision,
    )
    bench = grid_search.prepare(config)
    began = time.perf_counter()
    run = grid_search.Trial(grid_search.PRETRAINED, options.batch, options.rate, options.seeds[0])
    record = grid_search.fine_tune(bench, Path(), run, lambda *_: None, device_of())
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "score": record["scores"][config.task.metrics[0]]}


def trainer(options: argparse.Namespace) -> dict[str, float]:
    """Return seconds and last score of Hugging Face's Trainer."""
    import numpy as np
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        set_seed,
    )
    from transformers.utils import logging

    from pipeline.evaluation import metrics

    logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    set_seed(options.seeds[0])
    task = task_of(options)
    tokenizer = AutoTokenizer.from_pretrained(options.pretrained)
    train = rows(options, task, tokenizer, task.train, options.rows)
    dev = rows(options, task, tokenizer, task.dev, None)
    model = AutoModelForSequenceClassification.from_pretrained(options.pretrained, num_labels=len(task.labels) or 1)

    def measure(prediction: Any) -> dict[str, float]:
        logits = prediction.predictions
        found = logits.argmax(-1) if task.labels else logits[:, 0]
        return metrics.score(task.metrics, np.asarray(prediction.label_ids), np.asarray(found))

    with tempfile.TemporaryDirectory() as folder:
        loop = Trainer(
            model,
            arguments(options, folder),
            compute_metrics=measure,
            data_collator=DataCollatorWithPadding(tokenizer),
            train_dataset=train,
            eval_dataset=dev,
        )
        began = time.perf_counter()
        loop.train()
        seconds = time.perf_counter() - began
    key = f"eval_{task.metrics[0]}"
    scores = [row[key] for row in loop.state.log_history if key in row]
    return {"seconds": seconds, "score": scores[-1]}


def rows(options: argparse.Namespace, task: Any, tokenizer: Any, name: str, count: int | None) -> list[dict[str, Any]]:
    """Return the first `count` examples of a task's file, tokenized for the Trainer."""
    from pipeline.evaluation import examples

    read = examples.read_examples(options.data, task, name)[0][:count]
    texts = map(list, zip(*(texts for texts, _ in read), strict=True))
    made = tokenizer(*texts, truncation=True, max_length=options.length)
    labels = [int(label) if task.labels else label for _, label in read]
    lengths = map(len, made["input_ids"])
    return [
        {**{key: made[key][n] for key in made}, "labels": label, "length": length}
        for n, (label, length) in enumerate(zip(labels, lengths, strict=True))
    ]


def arguments(options: argparse.Namespace, folder: str) -> Any:
    """Return the Trainer's settings: ours."""
    import torch
    from transformers import TrainingArguments

    return TrainingArguments(
        folder,
        num_train_epochs=options.epochs,
        learning_rate=options.rate,
        seed=options.seeds[0],
        per_device_train_batch_size=options.batch,
        per_device_eval_batch_size=128,
        weight_decay=0.01,
        warmup_steps=0.1,
        lr_scheduler_type="linear",
        max_grad_norm=1.0,
        train_sampling_strategy=PEERS[options.one].replace(" ", "_"),
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
        adam_epsilon=1e-6,
        use_cpu=not torch.cuda.is_available(),
        bf16=options.precision == "bf16",
    )


if __name__ == "__main__":
    main()
