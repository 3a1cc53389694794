"""Fine-tuning on a task: every point of the grid, from each start, with each seed.

Each finished run is a file, so that an interrupted or extended grid resumes. With `processes`, runs
are shared out over several processes.
"""

import copy
import itertools
import json
import math
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from model.distributed.gpus import require_gpus
from model.training import provenance
from pipeline.common import cores, heartbeat
from pipeline.common.schema import check
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.console import terminal
from pipeline.console.bars import Bar
from pipeline.console.formatting import pluralize
from pipeline.errors import Diverged, Exit, InputError
from pipeline.evaluation import answers, examples, significance, table_files
from pipeline.evaluation.task_types import Dataset, Given, TaskType, faults_of, open_task_type, read_sides, remarks_of
from pipeline.records.estimate import Estimate
from pipeline.records.metrics import Score, mean_of
from pipeline.stages import fingerprints
from pipeline.stages.fetch_inputs import local_place, localise
from pipeline.stages.output_folder import output_folder
from pipeline.storage import strict_json
from pipeline.storage.atomic import atomic_folder, write_text
from pipeline.tokenization.coverage import Coverage
from pipeline.tokenization.wordpiece import WordPiece

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from model.config import ModelConfig
    from model.finetuning.heads import BertWithHead, HeadConfig

Record = dict[str, Any]  # of a finished run: its trial, epochs, scores and predictions

Records = list[Record]
Evaluation = tuple[Score, str, dict[str, str]]  # with its summary line, and other files by name
PRETRAINED, RANDOM = "pretrained", "random"  # initial weights of a run
POINT = ("batch_size", "learning_rate", "seed")  # of a grid
RUNS, PREDICTIONS, MODEL = "runs", "predictions.tsv", "model"
FINEST = 1e5  # deviations: scores whose mean is farther from 0 lose digits in fp32
FAULTS = 20  # malformed rows that are listed; all are counted


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


Keys = dict[Trial, str]  # the key of each run of a grid, which determines its result
Done = dict[Trial, Record]


@dataclass(frozen=True)
class SearchContext:
    """The configuration, weights and data that all runs share."""

    config: EvaluateConfig
    size: "ModelConfig"
    weights: "dict[str, Tensor]"
    kind: TaskType
    train: Dataset
    dev: Dataset
    also: dict[str, tuple[TaskConfig, TaskType, Dataset]]  # other sets of the task, and other tasks' dev sets
    coverage: Coverage  # of all of their texts
    beyond: list[str]  # a line if sequences are longer than the model has learnt

    @property
    def sets(self) -> dict[str, Dataset]:
        """Return what is scored, by name."""
        return {"dev": self.dev, **{name: part for name, (*_, part) in self.also.items()}}


def prepare(config: EvaluateConfig) -> SearchContext:
    """Load weights and tokenized samples.

    The files of the task are read first, so that mistakes in them do not wait for PyTorch.

    Raises:
        ConfigError: `sequence_length` or `layers` exceeds the model, or `submit` has no test sets.
        InputError: the model's folder or a file of the task is incomplete or malformed, or `keep`
            or `submit` cannot save the model.
    """
    if not (Path(config.pretrained) / "config.json").is_file():
        from model.huggingface import bert_format

        bert_format.read_config(config.pretrained)  # its error suggests other folders
    learnt = provenance.learnt(config.pretrained)
    config = replace(config, sequence_length=config.sequence_length or min(config.longest, learnt))
    wordpiece = WordPiece.load(config.pretrained)
    kind = open_task_type(config, config.task, wordpiece)
    train, dev = read_sides(kind, config.task, config.data, config.maximum_rows)
    if config.submit:
        answers.answered_tasks(config)

    import torch

    from model.finetuning import saved_model
    from model.huggingface import bert_format

    if config.threads is not None:
        torch.set_num_threads(config.threads)
    torch.set_flush_denormal(True)  # a matrix product takes 25 times longer with denormals on CPU
    size, weights, _, rest = bert_format.load(config.pretrained)
    if config.encoder == "tuned":
        weights |= saved_model.head_of(config.pretrained, size, rest, kind.head, kind.names)
    if config.saves:
        saved_model.check(size, config.pretrained)
    most, longest = f"must be at most the model's {size.positions} positions", config.longest
    check(longest <= size.positions, most, "sequence_length", longest)
    known = max(map(abs, config.layers)) <= size.layers
    check(known, f"must be layers of the model, which has {size.layers}", "layers", config.layers)
    devs = examples.dev_files(config.data, config.task)
    more = filter(None, (*devs[1:], examples.own_test(config.data, config.task)))
    also = {name: (replace(config.task, name=name, submission=None), kind, kind.read(name)) for name in more}
    also |= other_tasks(replace(config, task=replace(config.task, labels=kind.names)), wordpiece)
    beyond = provenance.beyond(config.longest, learnt)
    return SearchContext(config, size, weights, kind, train, dev, also, wordpiece.coverage, beyond)


def other_tasks(config: EvaluateConfig, wordpiece: WordPiece) -> dict[str, tuple[TaskConfig, TaskType, Dataset]]:
    """Return the existing dev sets of `task.also` by task name."""
    sets = {}
    for name, task in examples.also_of(config).items():
        kind = open_task_type(config, task, wordpiece)
        for number, dev in enumerate(examples.dev_files(config.data, task)):
            if table_files.find(config.data, task.folder, dev) is not None:
                sets[f"{name} {dev}" if number else name] = (task, kind, kind.read(dev))
    return sets


def grid_of(config: EvaluateConfig) -> Keys:
    """Return every run of the grid with its key, the fingerprint of a stage of that run alone."""
    starts = (PRETRAINED, RANDOM) if config.baseline else (PRETRAINED,)
    trials = {}
    for point in itertools.product(starts, config.batch_sizes, config.learning_rates, config.seeds):
        one: Any = {f"{name}s": [value] for name, value in zip(POINT, point[1:], strict=True)}
        alone = replace(config, **one, baseline=point[0] == RANDOM, keep=False, submit=False)
        trials[Trial(*point)] = fingerprints.fingerprint("evaluate", alone)[0]
    return trials


def run_count(config: EvaluateConfig) -> int:
    """Return how many runs there are to share out."""
    return len(grid_of(config))


def run_part(config: EvaluateConfig, index: int, parts: int) -> bool:
    """Do every `parts`-th run from `index` on; return whether to write the results now.

    The worker that completes the grid writes them.
    """
    keys = grid_of(config)
    mine = dict(list(keys.items())[index::parts])
    with output_folder("evaluate", config).part(f"{RUNS}/*.json"):
        folder = local_place(config.out, config.mirror) / RUNS
        folder.mkdir(parents=True, exist_ok=True)
        done = finished(folder, mine)
        if len(done) < len(mine):
            require_gpus()
            run_trials(prepare(localise("evaluate", config)), folder, mine, done)
    print(f"{config.task.name}: part {index} of {parts}, {len(mine)} of {len(keys)} runs done")
    return len(finished(folder, keys)) == len(keys)


def evaluate(config: EvaluateConfig, out: Path) -> Evaluation:
    """Do the missing runs; return the score, the summary line, and other files by name.

    The best model is in `model` with `keep`.

    Raises:
        ConfigError, InputError: raised by `prepare`, or a test set for `submit` is missing.
        Diverged: raised by `best_run`.
    """
    folder, context = out / RUNS, prepare(config)
    folder.mkdir(exist_ok=True)
    remarks = [*context.beyond, *remarks_of(config, context.train, context.sets)]
    if cut := context.coverage.shortened:
        remarks.append(f"{pluralize(cut, 'text')} read in part, being longer than {context.config.longest} tokens")
    if "head.weight" in context.weights:
        names = ", classes by name" if context.kind.names else ""
        terminal.say(f"{config.task.name}: continues with the head of {config.pretrained}{names}")
    for remark in remarks:
        terminal.say(f"{config.task.name}: {remark}")
    keys = grid_of(config)
    done = finished(folder, keys)
    clean_output(out, folder, {f"{run.stem}.json" for run in done} | {run.stem for run in done if config.saves})
    best = best_run(context, folder, keys, done)
    counting = counted(keys, done)
    if lost := [run.stem for run in keys if run not in counting]:
        remarks.append(f"{len(lost)} of {len(keys)} runs do not count, as their point of the grid diverged: {lost[0]}")
    predictions = done[best]["predictions"]
    score = replace(
        score_of(context, [done[run] for run in counting]),
        coverage=context.coverage.counts(),
        remarks=remarks,
        **answers.by_class(config.task, context.dev, predictions),
    )
    if config.saves:
        from model.huggingface import vocabulary

        vocabulary.check_ids(folder / best.stem)
    if config.submit:
        score.submission.extend(answers.submit(config, folder / best.stem, out))
    if config.keep:
        shutil.copytree(folder / best.stem, out / MODEL)
        write_card(out / MODEL, context, done[best])
    files = {PREDICTIONS: answers.dev_rows(config.task, context.dev, predictions)}
    files |= context.kind.export(context.dev, predictions)
    return score, describe(score, config.pretrained), files


def finished(folder: Path, keys: Keys) -> Done:
    """Return the runs of `keys` that are done with the same inputs and settings."""
    records = {run: strict_json.own(folder / f"{run.stem}.json") for run in keys}
    return {run: record for run, record in records.items() if record.get("key") == keys[run]}


def batches_of(context: SearchContext, run: Trial) -> int:
    """Return the number of batches of a run."""
    from model.finetuning import loop
    from model.finetuning.features import batch_count

    counts = {name: batch_count(part.samples, loop.EVALUATION_BATCH) for name, part in context.sets.items()}
    each = batch_count(context.train.samples, run.batch_size) + counts.pop("dev")
    return context.config.epochs * each + sum(counts.values())


def run_trials(context: SearchContext, folder: Path, keys: Keys, done: Done) -> Trial | None:
    """Do the runs that are missing from `done`, and add them; with `processes` side by side. Return the best."""
    config = context.config
    todo = {run: key for run, key in keys.items() if run not in done}
    if todo and (expected := expectation(context, len(todo))).worth_saying:
        terminal.say(f"{config.task.name}: {expected}")
    count = min(config.processes, len(todo))
    if count < 2:
        do(context, folder, todo)
    else:
        side_by_side(config, folder, [dict(list(todo.items())[n::count]) for n in range(count)])
    done |= finished(folder, todo)
    return only_best(config, folder, keys, done)


def side_by_side(config: EvaluateConfig, folder: Path, shares: list[Keys]) -> None:
    """Do each share of the runs in a process of its own; an error in one ends all."""
    if config.threads is None:
        config = replace(config, threads=max(1, cores.available() // len(shares)))
    spawn = multiprocessing.get_context("spawn")  # a fork would take the threads' locks along
    with ProcessPoolExecutor(len(shares), spawn) as pool:
        work = [pool.submit(do_share, config, folder, share, number) for number, share in enumerate(shares)]
        try:
            for one in as_completed(work):
                one.result()
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def do_share(config: EvaluateConfig, folder: Path, share: Keys, number: int) -> None:
    """Do some runs in a process, which reads the files itself: that is less than sending them."""
    do(prepare(config), folder, share, number)


def do(context: SearchContext, folder: Path, runs: Keys, number: int = 0) -> None:
    """Do runs, and write a file of each; of several processes, `number` 0 shows its progress."""
    from model.encoders.device import device_of

    config, metric, done = context.config, context.config.task.metrics[0], Done()
    parent = multiprocessing.parent_process()
    with (
        heartbeat.during(f"evaluate{number or ''}") as alive,
        Bar(config.task.name, sum(batches_of(context, run) for run in runs), "batches", silent=number > 0) as bar,
    ):

        def on_batch() -> None:
            bar.update()
            alive.beat()
            if parent is not None and not parent.is_alive():  # no one waits for these runs any more
                os._exit(Exit.RESTART)

        for run, key in runs.items():
            done[run] = {"key": key, **asdict(run), **fine_tune(context, folder, run, on_batch, device_of(number))}
            write_text(folder / f"{run.stem}.json", json.dumps(done[run]) + "\n")
            bar.move(bar.state.done, f"{run.start} {metric} {done[run]['scores'].get(metric, math.nan):.3f}")
            only_best(config, folder, runs, done)


def expectation(context: SearchContext, runs: int) -> Estimate:
    """Return what `runs` runs of the grid will take, by matrix products measured on this device."""
    from model.encoders.device import device_of
    from model.training import device_peak, estimate

    config = context.config
    lengths = [np.fromiter(map(len, part.samples.ids), np.int64) for part in (context.train, context.dev)]
    work = estimate.tuning_flops(context.size, config.epochs, runs, *lengths)
    speed = device_peak.tflops(device_of(), config.precision) * 1e12
    rows = f"{len(context.train):,} + {len(context.dev):,} rows"
    about = f"{pluralize(runs, 'run')} of {pluralize(config.epochs, 'epoch')} on {rows}"
    seconds = work / (speed * estimate.REACHED)
    return Estimate(seconds, memory=estimate.memory_of(context.size), about=about)


def head_of(context: SearchContext) -> "HeadConfig":
    """Return the configured head."""
    from model.finetuning.heads import HeadConfig

    config, labels = context.config, context.train.samples.labels
    return HeadConfig(
        context.kind.head,
        context.kind.outputs,
        config.encoder == "frozen",
        config.layers,
        config.mix,
        config.pooling,
        config.chunk_pooling if config.truncation == "chunks" else "mean",
        config.task.multilabel,
        balanced(labels, context.kind.outputs) if config.class_weights == "balanced" else config.class_weights,
        scale_of(labels, config.task) if context.kind.outputs == 1 else HeadConfig.scale,
    )


def scale_of(labels: Any, task: TaskConfig) -> tuple[float, float]:
    """Return mean and deviation of scores `(N,)`.

    Raises:
        InputError: they differ by less than fp32, in which models answer, can tell.
    """
    mean, deviation = float(labels.mean()), float(labels.std()) if np.ptp(labels) else 1.0
    if abs(mean) > FINEST * deviation:
        problem = f"its scores, {labels.min():.16g} to {labels.max():.16g}, differ too little; subtract {mean:.16g}"
        raise InputError(problem, path=task.train)
    return mean, deviation


def balanced(labels: Any, classes: int) -> list[float]:
    """Return the weights of classes by which all count alike, as scikit-learn's; of several, of their presence."""
    if isinstance(labels, np.ndarray) and labels.ndim == 2:  # (N, C) of 0 and 1
        there, others = labels.sum(0), len(labels) - labels.sum(0)
        return [float(value) for value in np.where(there * others, others / np.maximum(there, 1), 1)]
    every = np.concatenate(labels) if isinstance(labels, list) else labels
    counts = np.bincount(every[every >= 0].astype(np.int64), minlength=classes)
    return [float(value) for value in counts.sum() / (classes * np.maximum(counts, 1))]


def fine_tune(
    context: SearchContext, folder: Path, run: Trial, on_batch: Callable[..., object], device: "torch.device"
) -> Record:
    """Do one run; return the loss and dev scores of each epoch, and the final predictions; no scores if it diverged."""
    from model.finetuning import loop

    config = context.config
    recipe = loop.FineTuningConfig(
        **{key: getattr(run, key) for key in POINT},
        **{key: getattr(config, key) for key in ("epochs", "warmup_share", "weight_decay", "precision")},
    )
    weights = context.weights if run.start == PRETRAINED else None
    model = loop.build(context.size, weights, head_of(context), run.seed)
    epochs: Records = []
    given: Given = []

    def answered(kind: TaskType, part: Dataset) -> Given:
        return kind.decode(part, loop.predict(model, part.samples, device, on_batch))

    try:
        for loss in loop.train(model, context.train.samples, recipe, device, on_batch):
            given = answered(context.kind, context.dev)
            epochs.append({"train_loss": loss, "scores": context.kind.score(context.dev, given)})
            scores = [one["scores"][config.task.metrics[0]] for one in epochs]
            if config.best_epoch and scores.index(max(scores)) == len(scores) - 1:
                best, answers_then = copy.deepcopy(model.state_dict()), given
    except Diverged:
        return {"scores": {}, "also": {}, "epochs": epochs, "predictions": []}
    epoch = scores.index(max(scores)) if config.best_epoch else len(epochs) - 1
    if config.best_epoch:
        model.load_state_dict(best)
        given = answers_then
    also = {name: kind.score(part, answered(kind, part)) for name, (_, kind, part) in context.also.items()}
    if config.saves and run.start == PRETRAINED:
        save_model(context, model, folder / run.stem)
    return {"scores": epochs[epoch]["scores"], "epoch": epoch + 1, "also": also, "epochs": epochs, "predictions": given}


def save_model(context: SearchContext, model: "BertWithHead", folder: Path) -> None:
    """Write a run's model atomically."""
    from model.finetuning import saved_model

    config, kind = context.config, context.kind
    reading = saved_model.Reading(config.longest, config.truncation, config.stride, **kind.marks(context.train))
    with atomic_folder(folder) as temporary:
        source = Path(config.pretrained)
        saved = saved_model.SavedModel(model, kind.names, kind.texts, reading)
        saved_model.save(temporary, saved, context.size, source)


def counted(grid: Iterable[Trial], done: Done) -> list[Trial]:
    """Return the runs that are done, without those of a point at which one diverged."""
    lost = {replace(run, seed=0) for run, record in done.items() if not record["scores"]}
    return [run for run in grid if run in done and replace(run, seed=0) not in lost]


def only_best(config: EvaluateConfig, folder: Path, grid: Iterable[Trial], done: Done) -> Trial | None:
    """Return the pre-trained run with the highest score, or None if none of those that count is done.

    Ties go to the first in `grid`, so that the order in which runs end does not matter. The models of the others that
    are `done` are deleted; more may belong to a process.
    """
    metric, pretrained = config.task.metrics[0], [run for run in counted(grid, done) if run.start == PRETRAINED]
    best = max(pretrained, key=lambda run: float(done[run]["scores"][metric]), default=None)
    for run in done if config.saves else ():
        if run != best:
            shutil.rmtree(folder / run.stem, ignore_errors=True)
    return best


def best_run(context: SearchContext, folder: Path, keys: Keys, done: Done) -> Trial:
    """Do the missing runs, and return the best; it is repeated if its model has to be kept.

    Raises:
        Diverged: no point of the grid is left.
    """
    while True:
        best = run_trials(context, folder, keys, done)
        if best is None:
            tried = context.config.learning_rates
            raise Diverged(
                "with each of them the loss or a weight became not finite; set lower ones", "learning_rates", tried
            )
        if (folder / best.stem).is_dir() or not context.config.saves:
            return best
        done.pop(best)  # its model was not kept then; it may score less now than another


def clean_output(out: Path, folder: Path, kept: set[str]) -> None:
    """Delete models and results of earlier runs that this one will not use."""
    spare = [path for path in folder.iterdir() if path.name not in kept]
    for path in (*spare, out / MODEL, out / answers.FOLDER):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def write_card(folder: Path, context: SearchContext, record: Record) -> None:
    """Write the model card of the run that is kept."""
    from model.huggingface import model_card

    config, task = context.config, context.config.task
    labels = ", ".join(context.kind.names)
    scores = {f"dev {name}": f"{record['scores'][name]:.4f}" for name in task.metrics}
    rows = {
        "labels": labels or None,
        "examples": f"{len(context.train):,} of train, {len(context.dev):,} of dev",
        **scores,
        "epochs": f"{record['epoch']} of {config.epochs}",
        **{name.replace("_", " "): record[name] for name in POINT},
        "longest sequence": f"{config.longest} tokens, {config.truncation}",
    }
    model_card.write_tuned(folder, context.size, context.kind.head, config.pretrained, task.name, rows)


def score_of(context: SearchContext, records: Records) -> Score:
    """Return the score of a task, with its baselines."""
    task = context.config.task
    constant = context.kind.majority_baseline(context.dev)
    (pretrained, seeds), (random, others) = (
        best_point(task, [record for record in records if record["start"] == start]) for start in (PRETRAINED, RANDOM)
    )
    faults = faults_of(task, context.train, context.sets)
    kept = ("start", *POINT, "scores", "epochs")
    return Score(
        task=task.name,
        title=task.submission or (task.folder if task.sample else task.name),
        sample=task.sample,
        metric=task.metrics[0],
        positive=task.positive,
        rows={"train": len(context.train), "dev": len(context.dev)},
        **pretrained,
        baseline=random.get("score"),
        **{f"baseline_{name}": value for name, value in random.items() if name != "score"},
        majority=constant[task.metrics[0]],
        majority_scores=constant,
        also={name: also_of(context, name, seeds, others) for name in context.also},
        runs=[{name: record[name] for name in kept} for record in records],
        malformed=len(faults),
        faults=faults[:FAULTS],
    )


def best_point(task: TaskConfig, records: Records) -> tuple[Record, Records]:
    """Return the best point of the grid by its mean over the seeds, with the best single run; and its runs."""
    if not records:
        return {}, []
    metric = task.metrics[0]
    points: dict[tuple[int, float], Records] = {}
    for record in records:
        points.setdefault((record["batch_size"], record["learning_rate"]), []).append(record)
    means = {point: mean_of([seed["scores"][metric] for seed in seeds]) for point, seeds in points.items()}
    point = max(means, key=lambda one: means[one][0])
    seeds = points[point]
    return {
        "score": means[point][0],
        "scores": {name: mean_of([seed["scores"][name] for seed in seeds])[0] for name in seeds[0]["scores"]},
        "deviation": means[point][1],
        "best": max(record["scores"][metric] for record in records),
        "point": {"batch_size": point[0], "learning_rate": point[1], "seeds": len(seeds)},
    }, seeds


def also_of(context: SearchContext, name: str, seeds: Records, random: Records) -> Score:
    """Return the score on another task's dev set of the runs at the best point, and of `random` ones if any."""
    task, kind, part = context.also[name]
    metric = task.metrics[0]

    def mean(runs: Records) -> float:
        return mean_of([one["also"][name][metric] for one in runs])[0]

    return Score(
        task=name,
        title=task.submission or name,
        sample=context.config.task.sample,
        metric=metric,
        positive=task.positive,
        rows={"train": len(context.train), "dev": len(part)},
        score=mean(seeds),
        baseline=mean(random) if random else None,
        majority=kind.majority_baseline(part)[metric],
    )


def describe(found: Score, pretrained: str) -> str:
    """Return the summary line: the score, its baselines, and the fine-tuned model."""
    sample = " (sample task)" if found.sample else ""
    random = "" if found.baseline is None else f"random initialisation {found.baseline:.3f}, "
    remark = significance.verdict(found)
    remarks = "".join(f", {one}" for one in found.remarks)
    others = "".join(f", {one.title} {one.score:.3f}" for one in found.also.values())
    return (
        f"{found.title}{sample} {found.metric_title} {found.score:.3f}{others} "
        f"({random}majority {found.majority:.3f}{f'; {remark}' if remark else ''}) "
        f"with {pretrained}{remarks}; {Coverage.of(found.coverage).line}"
    )
