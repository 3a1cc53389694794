"""The schema of training: sizes, optimizer, schedule, objective, data. No torch in here."""

from dataclasses import dataclass, field, replace
from typing import Any

from omegaconf import MISSING

from pipeline.common.schema import StageConfig, check, check_choice, input_path, runtime_option

# Layers, hidden size, heads and feed-forward size of the published models (as in conf/model).
PUBLISHED = {
    "tiny": (2, 128, 2, 512),
    "mini": (4, 256, 4, 1024),
    "small": (4, 512, 8, 2048),
    "medium": (8, 512, 8, 2048),
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
}
SHAPE = ("layers", "hidden", "heads", "feed_forward")
AUTO = "auto"  # the name of a size whose zeros are still to be filled


@dataclass(kw_only=True)
class ModelConfig:
    """The encoder's size: Devlin et al. 2019, section 3; Turc et al. 2019 for the small ones.

    The keys that only ModernBERT (Warner et al. 2024) has say so; BERT leaves them alone.
    """

    name: str = MISSING
    architecture: str = "bert"  # bert or modernbert
    layers: int = MISSING  # 0: as many as the model in `start` has, or base
    hidden: int = MISSING  # width of a token's vector; 0: likewise
    heads: int = MISSING  # of attention, in each layer; 0: likewise
    feed_forward: int = MISSING  # width within a layer; 0: likewise
    positions: int = 512  # longest sequence; 0: likewise
    vocab_size: int | None = None  # null: the tokenizer's
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    layer_norm_epsilon: float = 1e-12
    attention: str = "auto"  # each, padded, flash; auto: what fits
    causal: bool = False  # tokens see those before them only
    local_window: int = 128  # modernbert: tokens around each that a local layer sees, both sides
    global_every: int = 3  # modernbert: of so many layers the first sees whole sequences
    rotary_local: float = 10_000.0  # modernbert: base of the rotary positions, local layers
    rotary_global: float = 160_000.0  # modernbert: likewise, the layers that see all
    classifier_pooling: str = "cls"  # modernbert: what fine-tuned heads read, cls or mean

    def __post_init__(self) -> None:
        """Check the ranges and what fits what."""
        check_choice("model.architecture", self.architecture, ("bert", "modernbert"))
        check_choice("model.classifier_pooling", self.classifier_pooling, ("cls", "mean"))
        least = 0 if self.name == AUTO else 1
        for key in (*SHAPE, "positions"):
            check(getattr(self, key) >= least, f"model.{key}={getattr(self, key)}: at least 1")
        check(self.global_every >= 1, f"model.global_every={self.global_every}: at least 1")
        check(self.local_window >= 2, f"model.local_window={self.local_window}: at least 2")
        check(
            0 in (self.hidden, self.heads) or self.hidden % self.heads == 0,
            f"model.heads={self.heads} does not divide model.hidden={self.hidden}",
        )
        for key in ("dropout", "attention_dropout"):
            value = getattr(self, key)
            check(0 <= value < 1, f"model.{key}={value}: from 0 to below 1")
        for key in ("initializer_range", "layer_norm_epsilon", "rotary_local", "rotary_global"):
            check(getattr(self, key) > 0, f"model.{key}={getattr(self, key)}: above 0")
        if self.architecture == "modernbert" and self.heads:
            check(not self.causal, "model.causal=true: modernbert sees both sides; take bert")
            check(
                self.hidden // self.heads % 2 == 0,
                f"model.heads={self.heads}: rotary positions need heads of an even width, not "
                f"{self.hidden // self.heads}",
            )

    @property
    def size_name(self) -> str:
        """The name of the size: a published one's only where it is of that size."""
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
class ObjectiveConfig:
    """What is predicted: Devlin et al. 2019, section 3.1."""

    name: str = MISSING
    predict: str = "masked"  # tokens: masked, or next, from those before them
    next_sentence: bool = True  # the sentence-pair loss, beside that of tokens
    pairs: str = "nsp"  # which pairs it judges, as `prepare` made them: nsp or sop
    mask_share: float = 0.15  # of the tokens: chosen to be predicted
    mask_token_share: float = 0.8  # of the chosen: replaced by [MASK]
    random_token_share: float = 0.1  # of the chosen: replaced by a random token; the rest is kept
    whole_word: bool = False  # all tokens of a word are hidden, or none
    span: int = 1  # most tokens, or whole words, that are hidden as one run
    span_stop: float = 0.2  # the chance that a run ends after each of them

    def __post_init__(self) -> None:
        """Check the shares."""
        check_choice("objective.predict", self.predict, ("masked", "next"))
        check_choice("objective.pairs", self.pairs, ("nsp", "sop"))
        check(self.span >= 1, f"objective.span={self.span}: at least 1")
        check(0 < self.span_stop <= 1, f"objective.span_stop={self.span_stop}: above 0, at most 1")
        check(0 < self.mask_share < 1, f"objective.mask_share={self.mask_share}: between 0 and 1")
        shares = (self.mask_token_share, self.random_token_share)
        check(
            min(shares) >= 0 and sum(shares) <= 1,
            f"objective.mask_token_share={shares[0]}, objective.random_token_share={shares[1]}: "
            "at least 0 each, at most 1 together",
        )


@dataclass(kw_only=True)
class OptimizerConfig:
    """Adam with decoupled weight decay, plain or with its updates clipped, or LAMB.

    There is no decay on biases and layer norms.
    """

    name: str = MISSING
    learning_rate: float = 1e-4  # at the peak of the schedule
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    epsilon: float = 1e-6
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_choice("optimizer.name", self.name, ("adamw", "lamb", "stable_adamw"))
        for key in ("learning_rate", "epsilon"):
            check(getattr(self, key) > 0, f"optimizer.{key}={getattr(self, key)}: above 0")
        check(self.weight_decay >= 0, f"optimizer.weight_decay={self.weight_decay}: at least 0")
        check(
            len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas),
            f"optimizer.betas={self.betas}: two numbers from 0 to below 1",
        )


@dataclass(kw_only=True)
class ScheduleConfig:
    """The learning rate over the steps, as a share of the peak, and the batch size.

    Warm-up, then decay to `final_share`. A run may be a part of a longer schedule: the second of
    two phases begins at `first_step` where the first one ended, of `total_steps` of both.
    """

    name: str = MISSING
    warmup_share: float = 0.01  # of all steps
    final_share: float = 0.0  # of the peak, at the end
    power: float = 1.0  # of what is left of the way: polynomial and wsd
    decay_share: float = 0.1  # of all steps, the last ones, in which wsd decays
    decay: str = "power"  # of wsd: by `power`, or sqrt: one minus the root of what is done
    first_step: int = 0  # of the schedule, where this run begins
    total_steps: int | None = None  # of the schedule; null: it ends with this run
    first_batch: int | None = None  # samples of the first step; null: as many as of all others
    batch_share: float = 0.1  # of all steps, the first ones, in which it rises to batch_size

    def __post_init__(self) -> None:
        """Check the ranges."""
        names = ("linear", "polynomial", "constant", "cosine", "wsd")
        check_choice("schedule.name", self.name, names)
        check_choice("schedule.decay", self.decay, ("power", "sqrt"))
        for key in ("warmup_share", "final_share", "decay_share", "batch_share"):
            value = getattr(self, key)
            check(0 <= value <= 1, f"schedule.{key}={value}: from 0 to 1")
        check(self.power > 0, f"schedule.power={self.power}: above 0")
        check(self.first_step >= 0, f"schedule.first_step={self.first_step}: at least 0")
        check(
            self.first_batch is None or self.first_batch >= 1,
            f"schedule.first_batch={self.first_batch}: at least 1, or null",
        )

    def check_steps(self, steps: int, batch_size: int) -> None:
        """Check what a run of `steps` updates makes of it."""
        check(
            self.total_steps is None or self.first_step + steps <= self.total_steps,
            f"schedule.total_steps={self.total_steps}: {steps} steps from "
            f"schedule.first_step={self.first_step} on are more",
        )
        check(
            (self.first_batch or 1) <= batch_size,
            f"schedule.first_batch={self.first_batch}: more than batch_size={batch_size}",
        )


@dataclass(kw_only=True)
class ComputeConfig:
    """How the same numbers are computed."""

    name: str = "plain"
    recompute: bool = False  # activations, in the backward pass, instead of keeping them
    compile: bool | None = None  # with torch.compile; null: on a GPU, up to ZeRO stage 2


@dataclass(kw_only=True)
class TrackingConfig:
    """Where the figures go, beside metrics.jsonl."""

    name: str = MISSING  # wandb or none
    project: str = "bert-pipeline"
    mode: str = "auto"  # auto: online where a key is there, else offline
    prometheus_port: int | None = None  # rank 0 serves its figures here; null: nowhere

    def __post_init__(self) -> None:
        """Check the choices."""
        check_choice("tracking.name", self.name, ("wandb", "none"))
        check_choice("tracking.mode", self.mode, ("auto", "online", "offline"))


@dataclass(kw_only=True)
class DataConfig:
    """The shards and how they are read.

    With `weights` each folder gives that share of the samples, however large it is; without, all
    shards of all folders are read as if they lay in one.
    """

    dir: str = input_path()  # a folder that `prepare` made
    more: list[str] = input_path([])  # further ones
    weights: list[float] = field(default_factory=list)  # of `dir` and of each of `more`
    vocab: str = input_path()  # the vocabulary it was made with
    verify: bool = runtime_option(
        True
    )  # compare all shards with their checksums before the first step
    window_rows: int = 1_000_000  # rows shuffled together; shards of a window are read side by side

    def __post_init__(self) -> None:
        """Check that there are as many weights as folders."""
        check(
            len(self.weights) in (0, len(self.folders)),
            f"data.weights={self.weights}: one for each of {', '.join(self.folders)}, or none",
        )
        check(min(self.weights, default=1) > 0, f"data.weights={self.weights}: above 0 each")
        check(self.window_rows >= 1, f"data.window_rows={self.window_rows}: at least 1")

    @property
    def folders(self) -> list[str]:
        """All of them."""
        return [self.dir, *self.more]


@dataclass(kw_only=True)
class TrainConfig(StageConfig):
    """`python -m pipeline.train`."""

    data: DataConfig = MISSING
    model: ModelConfig = MISSING
    objective: ObjectiveConfig = MISSING
    optimizer: OptimizerConfig = MISSING
    schedule: ScheduleConfig = MISSING
    tracking: TrackingConfig = runtime_option(MISSING)
    compute: ComputeConfig = field(default_factory=ComputeConfig, metadata={"role": "runtime"})
    deepspeed: dict[str, Any] = runtime_option({})  # any key of a DeepSpeed configuration
    start: str | None = input_path(None)  # weights to start from: a `train` or Hugging Face folder
    start_optimizer: bool = False  # with `start`, a `train` folder: its optimizer's state too
    precision: str = "fp32"  # bf16, fp16: of the passes; the optimizer keeps weights in fp32
    batch_size: int = 256  # samples a step, over all ranks
    # samples at a time on one rank, on average; auto: as many as fit into its memory
    micro_batch: Any = runtime_option(32)
    # the same in tokens, for samples of full length; null: as micro_batch says
    micro_tokens: int | None = runtime_option(None)
    steps: int = 1000
    clip: float | None = 1.0  # largest gradient norm; null: any
    seed: int = 0
    log_every: int = runtime_option(10)  # steps from one row of metrics.jsonl to the next
    evaluate_every: int = runtime_option(200)  # steps
    evaluate_samples: int = 2000  # of the validation shards, always the same
    save_every: int = runtime_option(200)  # steps from one checkpoint to the next
    keep: int = runtime_option(2)  # the last checkpoints
    keep_every: int | None = runtime_option(
        None
    )  # and for good, those of multiples of so many steps
    start_timeout: float = runtime_option(
        1800.0
    )  # seconds until all ranks are there, and a step done
    timeout: float = runtime_option(900.0)  # seconds that a rank may wait for another
    watchdog: float = runtime_option(
        600.0
    )  # seconds without progress after which a rank ends itself
    heartbeat: str | None = runtime_option(
        None
    )  # folder of this node where ranks show that they live
    bad_steps: int = runtime_option(
        10
    )  # in a row with a loss or gradient not finite: training ends
    peak_tflops: float | None = runtime_option(
        None
    )  # of a device, for MFU; null: known or measured
    threads: int | None = runtime_option(None)  # a rank, on CPU; null: the cores shared out
    # that `python -m pipeline.train` starts on this machine; null: one per GPU, or one on a CPU
    processes: int | None = runtime_option(None)

    def __post_init__(self) -> None:
        """Check the ranges and what fits what."""
        check_choice("precision", self.precision, ("fp32", "bf16", "fp16"))
        if self.micro_batch != AUTO:
            check(
                isinstance(self.micro_batch, int) and self.micro_batch >= 1,
                f"micro_batch={self.micro_batch}: at least 1, or auto",
            )
        for key in ("batch_size", "steps", "log_every", "evaluate_every",
                    "evaluate_samples", "save_every", "keep", "bad_steps"):  # fmt: skip
            check(getattr(self, key) >= 1, f"{key}={getattr(self, key)}: at least 1")
        for key in ("keep_every", "threads", "processes", "micro_tokens"):
            value = getattr(self, key)
            check(value is None or value >= 1, f"{key}={value}: at least 1, or null")
        if isinstance(self.schedule, ScheduleConfig):  # in a part of a config it may be missing
            self.schedule.check_steps(self.steps, self.batch_size)
        if isinstance(self.objective, ObjectiveConfig) and isinstance(self.model, ModelConfig):
            check(
                self.model.causal == (self.objective.predict == "next"),
                f"objective.predict={self.objective.predict}, model.causal="
                f"{str(self.model.causal).lower()}: who sees a token need not predict it; "
                "attention=causal sets both",
            )
            check(
                not self.objective.next_sentence or self.model.architecture == "bert",
                f"objective.next_sentence=true: model={self.model.name} judges no pairs of "
                "sentences; add objective=modern (or mlm), or objective.next_sentence=false",
            )
        if isinstance(self.model, ModelConfig) and self.model.name == AUTO and self.start is None:
            layers, hidden, heads, width = PUBLISHED["base"]
            base = ModelConfig(
                name="base", layers=layers, hidden=hidden, heads=heads, feed_forward=width
            )
            self.model = replace(self.model.filled(base), name="base")
        peak = self.peak_tflops
        check(peak is None or peak > 0, f"peak_tflops={peak}: above 0, or null")
        check(
            not self.start_optimizer or self.start is not None,
            "start_optimizer=true: of which run? set start=FOLDER too",
        )
        check(self.clip is None or self.clip > 0, f"clip={self.clip}: above 0, or null")
        for key in ("start_timeout", "timeout", "watchdog"):
            check(getattr(self, key) > 0, f"{key}={getattr(self, key)}: above 0")
