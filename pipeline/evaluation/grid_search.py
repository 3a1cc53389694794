"""The runs of an evaluation: every point of the grid, from each start, with each seed.

Each finished run is a file, so that an interrupted or extended grid resumes. With `processes`, runs
are distributed over several processes.
"""

import contextlib
import itertools
import json
import multiprocessing
import queue
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from pipeline.common import cores, heartbeat, screen
from pipeline.common.atomic import atomic_folder, write_text
from pipeline.common.errors import ConfigError
from pipeline.common.estimate import Estimate
from pipeline.common.formatting import pluralize
from pipeline.config import EvaluateConfig
from pipeline.evaluation.task_types import Dataset, TaskType, open_task_type, read_sides
from pipeline.stages import fingerprints
from pipeline.tokenization.coverage import Coverage

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from model.config import ModelConfig
    from model.finetuning.heads import BertWithHead, HeadConfig

Record = dict[str, Any]  # of a finished run: its trial, epochs, scores and predictions

PRETRAINED, RANDOM = "pretrained", "random"  # initial weights of a run


@dataclass(frozen=True)
class Trial:
    """One point of the grid, from one start, with one seed."""

    start: str
    batch_size: int
    learning_rate: float
    seed: int

    @property
    def stem(self) -> str:
        """Return the name of its file, without the suffix."""
        return f"{self.start}-{self.batch_size}-{self.learning_rate!r}-{self.seed}"

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return f"{self.stem}.json"


@dataclass(frozen=True)
class SearchContext:
    """The configuration, weights and data that all runs share."""

    config: EvaluateConfig
    size: "ModelConfig"
    weights: "dict[str, Tensor]"
    kind: TaskType
    train: Dataset
    dev: Dataset
    also: dict[str, tuple[TaskType, Dataset]]  # other tasks' dev sets, by name
    coverage: Coverage  # of all of their texts

    def parts(self) -> list[Dataset]:
        """Return all datasets that are predicted after the last epoch."""
        return [self.dev, *(part for _, part in self.also.values())]


def prepare(config: EvaluateConfig) -> SearchContext:
    """Load weights and tokenized samples.

    The files of the task are read first, so that mistakes in them do not wait for PyTorch.

    Raises:
        ConfigError: `sequence_length` or `layers` exceeds the model, required GPUs are missing, or
            `submit` has no test sets.
        InputError: the model's folder or a file of the task is incomplete or malformed, or `keep`
            or `submit` cannot save the model.
    """
    from model.resilience.gpus import require_gpus
    from pipeline.evaluation import glue_submission
    from pipeline.tokenization.wordpiece import WordPiece

    require_gpus()
    if not (Path(config.pretrained) / "config.json").is_file():
        from model.huggingface import bert_format

        bert_format.read_config(config.pretrained)  # its error suggests other folders
    wordpiece = WordPiece.load(config.pretrained)
    kind = open_task_type(config, config.task, wordpiece)
    train, dev = read_sides(kind, config.task, config.maximum_rows)
    if config.submit:
        glue_submission.answered_tasks(config)

    import torch

    from model.finetuning import saved_model
    from model.huggingface import bert_format

    if config.threads is not None:
        torch.set_num_threads(config.threads)
    torch.set_flush_denormal(True)  # a matrix product takes 25 times longer with denormals on CPU
    size, weights, _ = bert_format.load(config.pretrained)
    if config.keep or config.submit:
        saved_model.check(size, config.pretrained)
    if config.sequence_length > size.positions:
        raise ConfigError(
            f"must be at most the model's {size.positions} positions", "sequence_length", config.sequence_length
        )
    if max(map(abs, config.layers)) > size.layers:
        raise ConfigError(f"must be layers of the model, which has {size.layers}", "layers", config.layers)
    also = others(config, wordpiece)
    return SearchContext(config, size, weights, kind, train, dev, also, wordpiece.coverage)


def others(config: EvaluateConfig, wordpiece: Any) -> dict[str, tuple[TaskType, Dataset]]:
    """Return the existing dev sets of `task.also` by task name."""
    from pipeline.evaluation import examples, table_files

    found = {}
    for name in config.task.also:
        task = examples.task_of(name)
        if task.dev and table_files.find(config.data, task.folder, task.dev) is not None:
            kind = open_task_type(config, task, wordpiece)
            found[name] = (kind, kind.read(task.dev))
    return found


def grid_of(config: EvaluateConfig) -> dict[Trial, str]:
    """Return every run of the grid with its key, the fingerprint of a stage of that run alone."""
    return {trial: fingerprints.fingerprint("evaluate", alone)[0] for trial, alone in _grid(config)}


def _grid(config: EvaluateConfig) -> Iterator[tuple[Trial, EvaluateConfig]]:
    """Yield every run of the grid with the configuration of a stage of that run alone."""
    if not config.task.trains:  # nothing to search: one process scores all models
        yield Trial(PRETRAINED, 0, 0.0, 0), config
        return
    starts = (PRETRAINED, RANDOM) if config.baseline else (PRETRAINED,)
    for start, batch_size, rate, seed in itertools.product(
        starts, config.batch_sizes, config.learning_rates, config.seeds
    ):
        alone = replace(
            config,
            batch_sizes=[batch_size],
            learning_rates=[rate],
            seeds=[seed],
            baseline=start == RANDOM,
            keep=False,
            submit=False,
        )
        yield Trial(start, batch_size, rate, seed), alone


def finished(config: EvaluateConfig, folder: Path, keys: dict[Trial, str]) -> dict[Trial, Record]:
    """Return the runs of `keys` that are done with the same inputs and settings."""
    done = {}
    for run, _ in _grid(config):
        path = folder / run.name
        if run not in keys or not path.exists():
            continue
        record = json.loads(path.read_text(encoding="utf-8"))
        if record.get("key") == keys[run]:
            done[run] = record
    return done


def batches_of(context: SearchContext, run: Trial) -> int:
    """Return the number of batches of a run."""
    from model.finetuning import loop
    from model.finetuning.features import batch_count

    scoring = [batch_count(part.samples, loop.EVALUATION_BATCH) for part in context.parts()]
    epochs = context.config.epochs
    training = batch_count(context.train.samples, run.batch_size)
    return epochs * (training + scoring[0]) + sum(scoring[1:])


def run_trials(context: SearchContext, folder: Path, keys: dict[Trial, str], done: dict[Trial, Record]) -> None:
    """Do the runs that are missing from `done`, and add them."""
    config = context.config
    todo = [run for run in keys if run not in done]
    metric = config.task.metrics[0]
    if (expected := expectation(context, len(todo))).worth_saying and todo:
        screen.say(f"{config.task.name}: {expected}")
    with (
        heartbeat.during("evaluate") as alive,
        tqdm(
            total=sum(batches_of(context, run) for run in todo), desc=config.task.name, unit="batch", disable=None
        ) as bar,
    ):

        def on_batch() -> None:
            bar.update()
            if alive is not None:
                alive.beat()

        for run, found in results(context, folder, todo, on_batch):
            record = {"key": keys[run], **asdict(run), **found}
            write_text(folder / run.name, json.dumps(record) + "\n")
            done[run] = record
            bar.set_postfix_str(f"{run.start} {metric} {record['scores'][metric]:.3f}")
            if config.keep or config.submit:
                delete_losing_models(folder, done, best_of(metric, keys, done))


def expectation(context: SearchContext, runs: int) -> Estimate:
    """Return what `runs` runs of the grid will take, by matrix products measured on this device."""
    from model.encoders.device import device_of
    from model.training import device_peak, estimate

    config, device = context.config, device_of()
    lengths = [np.fromiter(map(len, part.samples.ids), np.int64) for part in (context.train, context.dev)]
    work = estimate.tuning(context.size, config.epochs, runs, *lengths)
    if device.type == "cpu":
        speed = estimate.processor()
    else:
        speed = device_peak.tflops(device, config.precision) * 1e12
    rows = f"{len(context.train):,} + {len(context.dev):,} rows"
    about = f"{pluralize(runs, 'run')} of {pluralize(config.epochs, 'epoch')} on {rows}"
    seconds = work / (speed * estimate.REACHED)
    return Estimate(seconds, memory=estimate.memory_of(context.size), about=about)


def results(
    context: SearchContext, folder: Path, todo: list[Trial], on_batch: Callable[..., object]
) -> Iterator[tuple[Trial, Record]]:
    """Yield runs as they end; several at a time if the configuration has several processes."""
    config, count = context.config, min(context.config.processes, len(todo))
    if count < 2:
        for run in todo:
            yield run, fine_tune(context, folder, run, on_batch)
        return
    spawn = multiprocessing.get_context("spawn")  # a fork would take the threads' locks along
    if config.threads is None:
        config = replace(config, threads=max(1, cores.available() // count))
    with spawn.Manager() as manager, ProcessPoolExecutor(count, spawn) as pool:
        runs, events = manager.Queue(), manager.Queue()
        for run in todo:
            runs.put(run)
        workers = [pool.submit(run_in_worker, config, n, folder, runs, events) for n in range(count)]
        try:
            yield from _finished_runs(workers, events, len(todo), on_batch)
        finally:  # after an error the workers end with the run that they are at
            with contextlib.suppress(queue.Empty):
                while True:
                    runs.get_nowait()


def _finished_runs(
    workers: list[Future[None]], events: Any, count: int, on_batch: Callable[..., object]
) -> Iterator[tuple[Trial, Record]]:
    """Yield `count` runs from the events of workers, and raise what ends one of these."""
    while count:
        try:
            event = events.get(timeout=0.5)
        except queue.Empty:
            for worker in workers:
                if worker.done():
                    worker.result()
            continue
        if event is None:
            on_batch()
        else:
            count -= 1
            yield event


def run_in_worker(config: EvaluateConfig, number: int, folder: Path, runs: Any, events: Any) -> None:
    """Do runs until none is left, in a process of its own.

    It reads the files itself, which is less than sending them. An event is a finished run with its
    record, or None for a batch.
    """
    from model.encoders.device import device_of

    context, device = prepare(config), device_of(number)
    with contextlib.suppress(queue.Empty):
        while True:
            run = runs.get_nowait()
            events.put((run, fine_tune(context, folder, run, lambda: events.put(None), device)))


def head_of(context: SearchContext) -> "HeadConfig":
    """Return the configured head."""
    from model.finetuning.heads import HeadConfig

    config = context.config
    chunks = config.chunk_pooling if config.truncation == "chunks" else "mean"
    return HeadConfig(
        context.kind.head,
        context.kind.outputs,
        config.encoder == "frozen",
        list(config.layers),
        config.mix,
        config.pooling,
        chunks,
    )


def fine_tune(
    context: SearchContext,
    folder: Path,
    run: Trial,
    on_batch: Callable[..., object],
    device: "torch.device | None" = None,
) -> Record:
    """Do one run; return the loss and dev scores of each epoch, and the final predictions."""
    from model.encoders.device import device_of
    from model.finetuning import loop

    config, device = context.config, device or device_of()
    recipe = loop.Recipe(
        batch_size=run.batch_size,
        learning_rate=run.learning_rate,
        epochs=config.epochs,
        seed=run.seed,
        warmup_share=config.warmup_share,
        weight_decay=config.weight_decay,
        precision=config.precision,
    )
    weights = context.weights if run.start == PRETRAINED else None
    model = loop.build(context.size, weights, head_of(context), run.seed)
    epochs: list[Record] = []
    answers: list[Any] = []
    for loss in loop.train(model, context.train.samples, recipe, device, on_batch):
        answers = predict(model, context.kind, context.dev, device, on_batch)
        epochs.append({"train_loss": loss, "scores": context.kind.score(context.dev, answers)})
    also = {
        name: kind.score(part, predict(model, kind, part, device, on_batch))
        for name, (kind, part) in context.also.items()
    }
    if (config.keep or config.submit) and run.start == PRETRAINED:
        save_model(context, model, folder / run.stem)
    return {"scores": epochs[-1]["scores"], "also": also, "epochs": epochs, "predictions": answers}


def predict(
    model: "BertWithHead", kind: TaskType, part: Dataset, device: "torch.device", on_batch: Callable[..., object]
) -> list[Any]:
    """Return a model's answers to a dataset."""
    from model.finetuning import loop

    return kind.decode(part, loop.predict(model, part.samples, device, on_batch))


def save_model(context: SearchContext, model: "BertWithHead", folder: Path) -> None:
    """Write a run's model atomically."""
    from model.finetuning import saved_model

    task = context.config.task
    labels = getattr(context.kind, "tags", task.labels)
    texts = len(task.columns) if task.kind == "classification" else None
    config = context.config
    reading = saved_model.Reading(config.sequence_length, config.truncation, config.stride)
    with atomic_folder(folder) as temporary:
        source = Path(config.pretrained)
        saved_model.save(temporary, model, context.size, labels, source, texts, reading)


def best_of(metric: str, grid: Iterable[Trial], done: dict[Trial, Record]) -> Trial | None:
    """Return the pre-trained run with the highest score, or None if none is done.

    Ties go to the first in `grid`, so that the order in which runs end does not matter.
    """
    pretrained = [run for run in grid if run.start == PRETRAINED and run in done]
    return max(pretrained, key=lambda run: float(done[run]["scores"][metric]), default=None)


def delete_losing_models(folder: Path, done: dict[Trial, Record], best: Trial | None) -> None:
    """Delete the kept models of all these runs but the best; others may belong to a process."""
    for run in done:
        if run != best:
            shutil.rmtree(folder / run.stem, ignore_errors=True)
