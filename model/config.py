"""The schema of training: sizes, optimizer, schedule, objective, data. No torch in here."""

from dataclasses import dataclass, replace
from typing import Any

from pipeline.common.schema import (
    Section,
    StageConfig,
    check,
    group,
    input_path,
    option,
    runtime_option,
)

# Layers, hidden size, heads and feed-forward size of the published models (as in conf/model).
PUBLISHED = {
    "tiny": (2, 128, 2, 512),
    "mini": (4, 256, 4, 1024),
    "small": (4, 512, 8, 2048),
    "medium": (8, 512, 8, 2048),
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
}
SMALL = 256  # hidden size up to which a rank on a CPU has one thread
SHARE = 8  # samples per batch that a rank on a CPU should have
SHAPE = ("layers", "hidden", "heads", "feed_forward")
AUTO = "auto"  # the name of a size whose zeros are still to be filled


@dataclass(kw_only=True)
class ModelConfig(Section, key="model"):
    """The encoder's size: Devlin et al. 2019, section 3; Turc et al. 2019 for the small ones.

    The help texts name the keys that only ModernBERT (Warner et al. 2024) reads.
    """

    name: str = option(help="Name of the size.")
    architecture: str = option("bert", "Architecture.", choices=("bert", "modernbert"))
    layers: int = option(help="Layers; 0: as the model in `start`, or as base.", at_least=0)
    hidden: int = option(help="Size of a token's vector; 0: as for layers.", at_least=0)
    heads: int = option(help="Attention heads per layer; 0: as for layers.", at_least=0)
    feed_forward: int = option(help="Width of the feed-forward part; 0: as for layers.", at_least=0)
    positions: int = option(512, "Longest sequence; 0: as for layers.", at_least=0)
    vocab_size: int | None = option(None, "Entries of the vocabulary; null: the tokenizer's.")
    dropout: float = option(0.1, "Dropout of hidden vectors.", at_least=0, below=1)
    attention_dropout: float = option(0.1, "Dropout of attention weights.", at_least=0, below=1)
    initializer_range: float = option(0.02, "Standard deviation of initial weights.", above=0)
    layer_norm_epsilon: float = option(1e-12, "Epsilon of layer norms.", above=0)
    attention: str = option(
        "auto",
        "Attention implementation: each, padded or flash; auto: the fastest one supported here.",
    )
    causal: bool = option(False, "Let each token attend only to those before it.")
    local_window: int = option(
        128,
        "modernbert: tokens on both sides together that a token of a local layer attends to.",
        at_least=2,
    )
    global_every: int = option(
        3, "modernbert: layers from one that attends to whole sequences to the next.", at_least=1
    )
    rotary_local: float = option(
        10_000.0, "modernbert: base of the rotary positions in local layers.", above=0
    )
    rotary_global: float = option(
        160_000.0, "modernbert: base of the rotary positions in the other layers.", above=0
    )
    classifier_pooling: str = option(
        "cls", "modernbert: what fine-tuned heads read.", choices=("cls", "mean")
    )

    def __post_init__(self) -> None:
        """Check the limits and what fits what."""
        super().__post_init__()
        for key in (*SHAPE, "positions"):
            check(
                self.name == AUTO or getattr(self, key) >= 1,
                f"model.{key}={getattr(self, key)}: must be at least 1",
                f"model.{key}",
            )
        check(
            0 in (self.hidden, self.heads) or self.hidden % self.heads == 0,
            f"model.heads={self.heads}: must divide model.hidden={self.hidden}",
            "model.heads",
        )
        if self.architecture == "modernbert" and self.heads:
            check(
                not self.causal,
                "model.causal=true: cannot be combined with modernbert; use bert",
                "model.causal",
            )
            check(
                self.hidden // self.heads % 2 == 0,
                f"model.heads={self.heads}: rotary positions need heads of an even width, not "
                f"{self.hidden // self.heads}",
                "model.heads",
            )

    @property
    def size_name(self) -> str:
        """Return the name of the size; a published name only if the sizes agree."""
        shape = tuple(getattr(self, key) for key in SHAPE)
        if self.name != AUTO and PUBLISHED.get(self.name, shape) == shape:
            return self.name
        known = (name for name, other in PUBLISHED.items() if other == shape)
        return next(known, f"{self.layers} x {self.hidden}")

    def filled(self, other: "ModelConfig") -> "ModelConfig":
        """Return this size with the values of `other` where it has zeros, under its true name."""
        zeros = {
            key: getattr(other, key) for key in (*SHAPE, "positions") if not getattr(self, key)
        }
        found = replace(self, **{key: getattr(other, key) for key in zeros})
        return replace(found, name=found.size_name)


@dataclass(kw_only=True)
class ObjectiveConfig(Section, key="objective"):
    """What is predicted: Devlin et al. 2019, section 3.1."""

    name: str = option(help="Name of the objective.")
    predict: str = option(
        "masked", "Tokens to predict: masked ones, or the next one from those before it.",
        choices=("masked", "next"),
    )  # fmt: skip
    next_sentence: bool = option(True, "Add the loss of sentence pairs to that of tokens.")
    pairs: str = option(
        "nsp", "Which pairs it classifies, as `prepare` made them.", choices=("nsp", "sop")
    )
    mask_share: float = option(0.15, "Share of tokens to predict.", above=0, below=1)
    mask_token_share: float = option(
        0.8, "Share of these that is replaced by [MASK].", at_least=0, at_most=1
    )
    random_token_share: float = option(
        0.1, "Share of these that is replaced by random tokens; the rest is kept.", at_least=0,
        at_most=1,
    )  # fmt: skip
    whole_word: bool = option(False, "Mask all tokens of a word, or none.")
    span: int = option(1, "Largest number of tokens, or whole words, masked in a row.", at_least=1)
    span_stop: float = option(
        0.2, "Probability that a run ends after each of them.", above=0, at_most=1
    )

    def __post_init__(self) -> None:
        """Check the shares."""
        super().__post_init__()
        shares = (self.mask_token_share, self.random_token_share)
        check(
            sum(shares) <= 1,
            f"objective.mask_token_share={shares[0]}, objective.random_token_share={shares[1]}: "
            "must be at most 1 together",
            "objective.mask_token_share",
        )


@dataclass(kw_only=True)
class OptimizerConfig(Section, key="optimizer"):
    """Adam with decoupled weight decay, plain or with clipped updates, or LAMB.

    Biases and layer norms have no decay.
    """

    name: str = option(help="Optimizer.", choices=("adamw", "lamb", "stable_adamw"))
    learning_rate: float = option(1e-4, "Learning rate at the peak of the schedule.", above=0)
    betas: list[float] = option([0.9, 0.999], "Decay rates of both moments.", at_least=0, below=1)
    epsilon: float = option(1e-6, "Term added to the denominator.", above=0)
    weight_decay: float = option(0.01, "Weight decay.", at_least=0)

    def __post_init__(self) -> None:
        """Check the limits and the number of betas."""
        super().__post_init__()
        check(
            len(self.betas) == 2,
            f"optimizer.betas={self.betas}: must be two numbers",
            "optimizer.betas",
        )


@dataclass(kw_only=True)
class ScheduleConfig(Section, key="schedule"):
    """The learning rate over the steps, as a share of the peak, and the batch size.

    Warm-up, then decay to `final_share`. A run may be a part of a longer schedule: the second of
    two phases begins at `first_step` where the first one ended, of `total_steps` of both.
    """

    name: str = option(
        help="Schedule.", choices=("linear", "polynomial", "constant", "cosine", "wsd")
    )
    warmup_share: float = option(0.01, "Share of all steps for warm-up.", at_least=0, at_most=1)
    final_share: float = option(
        0.0, "Share of the peak rate that is left at the end.", at_least=0, at_most=1
    )
    power: float = option(
        1.0, "Exponent of the remaining share of steps: polynomial and wsd.", above=0
    )
    decay_share: float = option(
        0.1, "Share of all steps, the last ones, in which wsd decays.", at_least=0, at_most=1
    )
    decay: str = option(
        "power", "Decay of wsd: by `power`, or sqrt: one minus the root of the share that is done.",
        choices=("power", "sqrt"),
    )  # fmt: skip
    first_step: int = option(0, "Step of the schedule at which this run begins.", at_least=0)
    total_steps: int | None = option(None, "Steps of the schedule; null: it ends with this run.")
    first_batch: int | None = option(
        None, "Samples of the first step; null: batch_size.", at_least=1
    )
    batch_share: float = option(
        0.1, "Share of all steps, the first ones, in which the batch grows to batch_size.",
        at_least=0, at_most=1,
    )  # fmt: skip

    def check_steps(self, steps: int, batch_size: int) -> None:
        """Check that a run of `steps` updates fits into the schedule."""
        check(
            self.total_steps is None or self.first_step + steps <= self.total_steps,
            f"schedule.total_steps={self.total_steps}: must be at least {self.first_step + steps}, "
            f"as steps={steps} follow schedule.first_step={self.first_step}",
            "schedule.total_steps",
        )
        check(
            (self.first_batch or 1) <= batch_size,
            f"schedule.first_batch={self.first_batch}: must be at most batch_size={batch_size}",
            "schedule.first_batch",
        )


@dataclass(kw_only=True)
class ComputeConfig:
    """How the same numbers are computed."""

    name: str = option("plain", "Name of the choice.")
    recompute: bool = option(
        False, "Compute activations again in the backward pass instead of storing them."
    )
    compile: bool | None = option(
        None, "Use torch.compile; null: on a GPU, up to ZeRO stage 2, not on a CPU."
    )


@dataclass(kw_only=True)
class TrackingConfig(Section, key="tracking"):
    """Where metrics are sent, in addition to metrics.jsonl."""

    name: str = option(help="Tracker.", choices=("wandb", "none"))
    project: str = option("bert-pipeline", "Project of the tracker.")
    mode: str = option(
        "auto", "Mode of wandb; auto: online if a key is found, else offline.",
        choices=("auto", "online", "offline"),
    )  # fmt: skip
    prometheus_port: int | None = option(
        None, "Port on which rank 0 serves its metrics; null: none."
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
    vocab: str = input_path(help="Vocabulary that the shards were made with.")
    verify: bool = runtime_option(
        True, "Compare all shards with their checksums before the first step."
    )
    window_rows: int = option(
        1_000_000, "Rows shuffled together; shards of a window are read in parallel.", at_least=1
    )

    def __post_init__(self) -> None:
        """Check the limits and the number of weights."""
        super().__post_init__()
        check(
            len(self.weights) in (0, len(self.folders)),
            f"data.weights={self.weights}: must be empty, or one for each of "
            f"{', '.join(self.folders)}",
            "data.weights",
        )

    @property
    def folders(self) -> list[str]:
        """All folders."""
        return [self.dir, *self.more]


@dataclass(kw_only=True)
class TrainConfig(StageConfig):
    """`python -m pipeline.train`."""

    data: DataConfig = option()
    model: ModelConfig = option()
    objective: ObjectiveConfig = option()
    optimizer: OptimizerConfig = option()
    schedule: ScheduleConfig = option()
    tracking: TrackingConfig = runtime_option()
    compute: ComputeConfig = group(ComputeConfig, role="runtime")
    deepspeed: dict[str, Any] = runtime_option({}, "Keys of a DeepSpeed configuration.")
    start: str | None = input_path(
        None, "Weights to start from: a folder of `train` or in Hugging Face's format."
    )
    start_optimizer: bool = option(
        False, "Load the optimizer's state too, from a `start` that `train` made."
    )
    precision: str = option(
        "fp32", "Precision of the passes; the optimizer keeps weights in fp32.",
        choices=("fp32", "bf16", "fp16"),
    )  # fmt: skip
    batch_size: int = option(256, "Samples per step, over all ranks.", at_least=1)
    micro_batch: Any = runtime_option(
        32, "Samples per pass of a rank, on average; auto: as many as fit into its memory."
    )
    micro_tokens: int | None = runtime_option(
        None, "The same in tokens, of samples of full length; null: as micro_batch.", at_least=1
    )
    steps: int = option(1000, "Steps of this run; with `words` or `epochs` at most.", at_least=1)
    words: int | None = option(
        None, "Words of the text, counted each time that they are read, that the run may not "
        "exceed; null: no limit.", at_least=1,
    )  # fmt: skip
    epochs: int | None = option(
        None, "Epochs over all shards that the run may not exceed; null: no limit.", at_least=1
    )
    clip: float | None = option(1.0, "Largest norm of the gradient; null: any.", above=0)
    seed: int = option(0, "Seed of weights, order and masks.")
    log_every: int = runtime_option(10, "Steps per row of metrics.jsonl.", at_least=1)
    evaluate_every: int = runtime_option(200, "Steps per evaluation.", at_least=1)
    evaluate_samples: int = option(
        2000, "Samples of the validation shards per evaluation, always the same.", at_least=1
    )
    save_every: int = runtime_option(200, "Steps per checkpoint.", at_least=1)
    keep: int = runtime_option(2, "Checkpoints that are kept, the last ones.", at_least=1)
    keep_every: int | None = runtime_option(
        None, "Also keep the checkpoints of multiples of this number of steps.", at_least=1
    )
    save_at_words: list[float] = runtime_option(
        [], "Words seen at which a checkpoint is kept for good; adds one before the first step.",
        at_least=1,
    )  # fmt: skip
    start_timeout: float = runtime_option(
        1800.0, "Seconds until all ranks have started and finished a step.", above=0
    )
    timeout: float = runtime_option(
        900.0, "Seconds that a rank waits for another, at most.", above=0
    )
    watchdog: float = runtime_option(
        600.0, "Seconds without progress after which a rank exits.", above=0
    )
    heartbeat: str | None = runtime_option(
        None, "Folder of this node where ranks show that they are alive."
    )
    bad_steps: int = runtime_option(
        10, "Steps in a row with a loss or gradient not finite until training ends.", at_least=1
    )
    peak_tflops: float | None = runtime_option(
        None, "Peak of a device, for MFU; null: known or measured.", above=0
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
        return max(1, min(cores, self.batch_size // SHARE)) if self.model.hidden <= SMALL else 1

    def __post_init__(self) -> None:
        """Check the limits and what fits what."""
        super().__post_init__()
        check(
            self.micro_batch == AUTO
            or (isinstance(self.micro_batch, int) and self.micro_batch >= 1),
            f"micro_batch={self.micro_batch}: must be at least 1, or auto",
            "micro_batch",
        )
        check(
            self.epochs is None or not (isinstance(self.data, DataConfig) and self.data.weights),
            f"epochs={self.epochs}: cannot be combined with data.weights; set steps",
            "epochs",
        )
        marks = self.save_at_words
        check(
            sorted(set(marks)) == list(marks),
            f"save_at_words={marks}: must be increasing",
            "save_at_words",
        )
        if isinstance(self.schedule, ScheduleConfig):  # in a part of a config it may be missing
            self.schedule.check_steps(self.steps, self.batch_size)
        if isinstance(self.objective, ObjectiveConfig) and isinstance(self.model, ModelConfig):
            check(
                self.model.causal == (self.objective.predict == "next"),
                f"objective.predict={self.objective.predict}, model.causal="
                f"{str(self.model.causal).lower()}: cannot be combined, as the next token is "
                "predicted only by causal attention; set attention=causal, which sets both",
                "model.causal",
            )
            check(
                not self.objective.next_sentence or self.model.architecture == "bert",
                f"objective.next_sentence=true: cannot be combined with model={self.model.name}; "
                "set objective=modern (or mlm), or objective.next_sentence=false",
                "objective.next_sentence",
            )
        if isinstance(self.model, ModelConfig) and self.model.name == AUTO and self.start is None:
            layers, hidden, heads, width = PUBLISHED["base"]
            base = ModelConfig(
                name="base", layers=layers, hidden=hidden, heads=heads, feed_forward=width
            )
            self.model = replace(self.model.filled(base), name="base")
        check(
            not self.start_optimizer or self.start is not None,
            "start_optimizer=true: needs the run to load it from; set start=FOLDER",
            "start",
        )
