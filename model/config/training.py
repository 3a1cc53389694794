"""Schema of a training run: data, tracking, how it is computed, and all of it."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model.config import deepspeed_keys
from model.config.learning import ObjectiveConfig, OptimizerConfig, ScheduleConfig
from model.config.sizes import AUTO, PUBLISHED, SHAPE, ModelConfig
from pipeline.common.schema import Section, StageConfig, TrackerConfig, check, group, input_path, option, runtime_option
from pipeline.console.formatting import byte_count
from pipeline.errors import ConfigError, named

SMALL = 256  # hidden size up to which a rank on a CPU has one thread
SHARE = 8  # samples per batch that a rank on a CPU should have


@dataclass(kw_only=True)
class ComputeConfig:
    """How the same numbers are computed."""

    name: str = option("plain", "Name of the choice.")
    recompute: bool = option(False, "Compute activations again in the backward pass instead of storing them.")
    compile: bool | None = option(None, "Use torch.compile; null: on a GPU, up to ZeRO stage 2, not on a CPU.")


@dataclass(kw_only=True)
class TrackingConfig(TrackerConfig):
    """Where metrics are sent, in addition to metrics.jsonl."""

    _only = dict.fromkeys(("project", "mode"), ("name", "wandb")) | {"prometheus_host": ("prometheus_port",)}

    mode: str = option(
        "auto",
        "Mode of wandb; auto: WANDB_MODE, or else online if a key is found.",
        choices=("auto", "online", "offline"),
    )
    prometheus_port: int | None = option(
        None, "Port on which rank 0 serves its metrics; null: none.", at_least=1, at_most=65535
    )
    prometheus_host: str = option(
        "127.0.0.1", "Address of that port; 0.0.0.0: all, for a Prometheus on another machine."
    )


@dataclass(kw_only=True)
class DataConfig(Section, key="data"):
    """The shards and how they are read.

    With `weights` each folder provides that share of the samples, whatever its size; without, the
    shards of all folders are read as if they were in one.
    """

    dir: str = input_path(help="Folder of `prepare`.")
    more: list[str] = input_path([], "Further folders of `prepare`.")
    weights: list[float] = option([], "Weights of `dir` and of each of `more`.", above=0)
    validation: list[str] = input_path(
        [], "Folders of `prepare` whose held-out shards are evaluated; empty: those of `dir` and `more`."
    )
    vocab: str = input_path(help="Vocabulary that the shards were made with.")
    verify: bool = runtime_option(True, "Compare all shards with their checksums before the first step.")
    window_rows: int = option(1_000_000, "Rows shuffled together; shards of a window are read in parallel.", at_least=1)

    cache: str | None = runtime_option(
        None,
        "Local folder through which the shards of an object store are read, fetched ahead in "
        "the order of training; null: all of them are fetched first, into `mirror`.",
    )
    cache_size: str | None = runtime_option(None, "Most bytes of shards in `cache`: 200GB, 1.5TB; null: no limit.")

    def check_rules(self) -> None:
        """Check the number of weights and the cache."""
        self.require(self.cache is None or "://" not in self.cache, "must be a local folder", "cache")
        self.require(
            self.cache_size is None or (self.cache is not None and byte_count(self.cache_size) > 0),
            "must be a number of bytes above 0, such as 200GB, and goes with data.cache",
            "cache_size",
        )
        for key, folders in {"more": self.folders, "validation": self.validation}.items():
            twice = next((folder for folder in folders if folders.count(folder) > 1), None)
            self.require(twice is None, f"has {twice} twice; for more of its samples set data.weights", key)
        self.require(
            len(self.weights) in (0, len(self.folders)),
            f"must be empty, or one for each of {', '.join(self.folders)}",
            "weights",
        )

    @property
    def folders(self) -> list[str]:
        """All folders."""
        return [self.dir, *self.more]

    def key_of(self, folder: str) -> str:
        """Return the key that has a folder."""
        return "data.dir" if folder == self.dir else "data.more" if folder in self.more else "data.validation"

    @property
    def held_out(self) -> "DataConfig":
        """Return the same with the folders that are evaluated."""
        return self._of(self.validation) if self.validation else self

    @property
    def held_out_parts(self) -> "dict[str, DataConfig]":
        """Return each of several folders of `validation`, by what its path has alone, else by its place."""
        paths = [Path(folder).parts[::-1] for folder in self.validation if len(self.validation) > 1]
        levels = ([re.sub(r"\W", "_", part) for part in level] for level in zip(*paths, strict=False))
        alone = (names for names in levels if len({"average", *names}) > len(paths))  # `ema` has figures of that name
        names = next(alone, [f"set_{place}" for place in range(len(paths))])
        return {name: self._of([folder]) for name, folder in zip(names, self.validation, strict=False)}

    def _of(self, folders: list[str]) -> "DataConfig":
        return replace(self, dir=folders[0], more=folders[1:], weights=[], validation=[])


def check_length(
    model: ModelConfig, length: int, data: DataConfig, key: str = "model.positions", start: int | None = None
) -> None:
    """Check that a model has a position for each token of a sequence, and a start whose positions are parameters.

    Raises:
        ConfigError: It has not.
    """
    folders = ", ".join(data.folders)
    most = min(model.positions, start or model.positions)
    problem = (
        f"must be at least {length}, the sequence length of {folders}; set it so, or prepare sequence_length={most}"
    )
    if start and length > start:  # a model of more positions would not fit
        problem = f"cannot be more than the {start} that the model in {named('start')} has learnt, but {folders} has "
        problem += f"sequences of {length}; prepare sequence_length={start}"
    check(length <= most, problem, key, model.positions)


def check_objective(objective: ObjectiveConfig, model: ModelConfig) -> None:
    """Check that a model can learn what is predicted.

    Raises:
        ConfigError: It cannot.
    """
    check(
        model.causal == (objective.predict == "next"),
        f"cannot be combined with {named('objective.predict')}={objective.predict}, as the next token is predicted "
        "only by causal attention; set objective=left_to_right and model.causal=true",
        "model.causal",
        model.causal,
    )
    check(
        not objective.next_sentence or model.traits.sentence_pairs,
        f"cannot be combined with model={model.name}; set {named('objective')}=modern (or mlm), or "
        f"{named('objective.next_sentence')}=false",
        "objective.next_sentence",
        True,
    )


def check_pairs(objective: ObjectiveConfig, pairs: str, folder: str) -> None:
    """Check that the shards in a folder have the pairs of sentences that are classified.

    Raises:
        ConfigError: They have not.
    """
    actual = "no sentence pairs" if pairs == "none" else f"{pairs} pairs"
    if objective.next_sentence and pairs != objective.pairs:
        raise ConfigError(
            f"requires {objective.pairs} pairs, but the shards in {folder} have {actual}; rerun prepare with "
            f"pairs={objective.pairs}, or set {named('objective.next_sentence')}=false",
            "objective",
            objective.name,
            path=folder,
        )


@dataclass(kw_only=True)
class TrainConfig(StageConfig):
    """`python -m pipeline.train`."""

    _yields = dict.fromkeys(["steps"], ("epochs", "words")) | {"epochs": ("data.weights",)}
    _together = ("steps",)  # it is a limit, too

    data: DataConfig = option()
    model: ModelConfig = option()
    objective: ObjectiveConfig = option()
    optimizer: OptimizerConfig = option()
    schedule: ScheduleConfig = option()
    tracking: TrackingConfig = runtime_option()
    compute: ComputeConfig = group(ComputeConfig, role="runtime")
    deepspeed: dict[str, Any] = option({}, "Keys of a DeepSpeed configuration.", counts=deepspeed_keys.output_keys)
    start: str | None = input_path(None, "Weights to start from: a folder of `train` or in Hugging Face's format.")
    start_optimizer: bool = option(False, "Load the optimizer's state too, from a `start` that `train` made.")
    freeze: int | None = option(
        None,
        "Layers, from the first, that stay as in `start`, as do the embeddings, which predict words too; null: none.",
        at_least=0,
    )
    precision: str = option(
        "fp32", "Precision of the passes; the optimizer keeps weights in fp32.", choices=("fp32", "bf16", "fp16")
    )
    batch_size: int = option(256, "Samples per step, over all ranks.", at_least=1)
    micro_batch: Any = runtime_option(
        32, "Samples per pass of a rank, on average; auto: as many as fit into its memory."
    )
    steps: int | None = option(
        1000, "Steps of this run, with `words` or `epochs` at most; null, or these alone: all they allow.", at_least=1
    )
    words: int | None = option(
        None,
        "Words of the text, counted each time that they are read, that the run may not exceed; null: no limit.",
        at_least=1,
    )
    epochs: int | None = option(None, "Epochs over all shards that the run may not exceed; null: no limit.", at_least=1)
    ema: float | None = option(
        None,
        "Decay of a moving average of the weights, as 0.999, which checkpoints have and "
        "`convert ema=true` exports; null: none.",
        above=0,
        below=1,
    )
    clip: float | None = option(1.0, "Largest norm of the gradient; null: any.", above=0)
    seed: int = option(0, "Seed of weights, order and masks.")
    log_every: int = runtime_option(10, "Steps per row of metrics.jsonl.", at_least=1)
    evaluate_every: int = option(200, "Steps per evaluation.", role="keep_best", at_least=1)
    evaluate_samples: int = option(
        2000, "Samples of the validation shards per evaluation, always the same.", at_least=1
    )
    save_every: int = runtime_option(200, "Steps per checkpoint.", at_least=1)
    keep: int = runtime_option(2, "Checkpoints that are kept, the last ones.", at_least=1)
    keep_best: bool = option(
        False, "Also save and keep the checkpoint of the fewest held-out bits per byte; it is the result."
    )
    keep_every: int | None = runtime_option(
        None, "Also save and keep checkpoints at multiples of this number of steps.", at_least=1
    )
    save_at_words: list[float] = runtime_option(
        [],
        "Words seen at which a checkpoint is kept for good; adds one before the first step. "
        "The last step reaches marks up to 2 % above it.",
        at_least=1,
    )
    start_timeout: float = runtime_option(1800.0, "Seconds until all ranks have started and finished a step.", above=0)
    timeout: float = runtime_option(900.0, "Seconds that a rank waits for another, at most.", above=0)
    watchdog: float = runtime_option(600.0, "Seconds without progress after which a rank exits.", above=0)
    heartbeat: str | None = runtime_option(None, "Folder of this node where ranks show that they are alive.")
    bad_steps: int = runtime_option(
        10, "Non-finite steps in a row (loss or gradient) after which training ends.", at_least=1
    )
    threads: int | None = runtime_option(
        None, "Threads per rank on a CPU; null: an equal share of the cores.", at_least=1
    )
    processes: int | None = runtime_option(
        None,
        "Ranks that `python -m pipeline.train` starts on this machine; null: one per GPU; on a CPU "
        "one, or one per core for models as small as mini.",
        at_least=1,
    )

    def ranks(self, gpus: bool, cores: int) -> int | None:
        """Return the ranks to start on this machine; None: one per GPU, which the launcher counts.

        Matrices of small models gain little from a second thread: on two cores two ranks of one
        thread train `tiny` 1.26 times as fast as one rank of two.
        """
        if gpus or self.processes is not None:
            return self.processes
        is_small = 0 < self.model.hidden <= SMALL  # 0: the size is that of `start`
        return max(1, min(cores, self.batch_size // SHARE)) if is_small else 1

    def check_stage(self, stage: Any) -> None:
        """Check the stage of ZeRO, with which DeepSpeed accepts what it trains incorrectly."""
        check(stage in (0, 1, 2, 3), "must be 0 to 3", "deepspeed.zero_optimization.stage", stage)
        # Without stages DeepSpeed uses another optimizer wrapper, which trains measurably worse.
        cure = f"requires ZeRO stage 1 or above; add {named('deepspeed')}=zero1"
        self.require(self.precision == "fp32" or stage != 0, cure, "precision")
        # Stage 3 gathers parameters in hooks that a compiled layer does not call.
        compiled = isinstance(self.compute, ComputeConfig) and self.compute.compile and stage == 3
        cure = f"requires ZeRO stage 0, 1 or 2; add {named('deepspeed')}=zero2"
        check(not compiled, cure, "compute", "compile")

    def check_rules(self) -> None:
        """Check what fits what."""
        deepspeed_keys.check(self.deepspeed, deepspeed_keys.derive_keys(self.precision, self.clip))
        self.check_stage(dict(self.deepspeed.get("zero_optimization") or {}).get("stage", 0))
        self.require(
            self.micro_batch == AUTO or (isinstance(self.micro_batch, int) and self.micro_batch >= 1),
            "must be at least 1, or auto",
            "micro_batch",
        )
        if isinstance(self.data, DataConfig):
            mixed = "cannot be combined with data.weights; set null, and steps"
            self.require(self.epochs is None or not self.data.weights, mixed, "epochs")
            near = next((folder for folder in self.data.folders if "://" not in folder), "")
            stored = f"is for shards in an object store, and {near} is a local folder; remove data.cache"
            check(not (near and self.data.cache), stored, "data.cache", self.data.cache)
        limits = (self.steps, self.epochs, self.words)
        self.require(any(limits), "needs a limit; set epochs or words", "steps")
        marks = self.save_at_words
        self.require(sorted(set(marks)) == list(marks), "must be increasing", "save_at_words")
        if isinstance(self.schedule, ScheduleConfig):  # in a part of a config it may be missing
            self.schedule.check_steps(self.steps, self.batch_size)
        if isinstance(self.objective, ObjectiveConfig) and isinstance(self.model, ModelConfig):
            check_objective(self.objective, self.model)
        if isinstance(self.model, ModelConfig) and self.model.name == AUTO and self.start is None:
            shape: dict[str, Any] = dict(zip(SHAPE, PUBLISHED["base"], strict=True))
            base = ModelConfig(name="base", **shape)
            self.model = replace(self.model.filled(base), name="base")
        self.require(
            not self.start_optimizer or self.start is not None,
            f"needs the run to load it from; set {named('start')}=FOLDER",
            "start_optimizer",
        )
        cure = f"needs weights to keep; set {named('start')}=FOLDER"
        self.require(self.freeze is None or self.start is not None, cure, "freeze")
