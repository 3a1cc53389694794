"""The schemas from a checkpoint to answers: `convert`, `evaluate`, `submit`, `predict`, `embed`."""

import re
from dataclasses import dataclass, field

from omegaconf import MISSING

from pipeline.common.schema import StageConfig, check, check_choice, input_path, runtime_option


@dataclass(kw_only=True)
class ConvertConfig(StageConfig):
    """`python -m pipeline.convert`."""

    # a folder that `train` made, one checkpoint of it, or anybody's BERT in Hugging Face's format
    train: str = input_path()
    vocab: str | None = input_path()  # null: the one beside the weights
    average: int = 1  # mean of the weights of so many checkpoints, the last ones
    # marked: those of save_at_words, each in a folder of its own: chck_1M after a million words
    checkpoints: str | None = None
    dtype: str = "fp32"  # of the stored weights: fp32, bf16, fp16
    shard_bytes: int | None = None  # largest file of weights; null: one file
    license: str | None = None  # of the model card
    onnx: bool = False  # also model.onnx, checked with onnxruntime
    push: str | None = runtime_option(None)  # OWNER/NAME on the hub
    check: bool = runtime_option(True)  # open the result with transformers and compare the logits

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_choice("dtype", self.dtype, ("fp32", "bf16", "fp16"))
        check(self.average >= 1, f"average={self.average}: at least 1")
        check(
            self.checkpoints in (None, "marked"),
            f"checkpoints={self.checkpoints}: marked, or null for the last one",
        )
        check(
            self.checkpoints is None or (self.average == 1 and self.push is None),
            "checkpoints=marked: a model each; average and push are for one",
        )
        check(
            self.shard_bytes is None or self.shard_bytes >= 1,
            f"shard_bytes={self.shard_bytes}: at least 1",
        )


TASK_METRICS = {  # of tasks: what they may be measured by
    "classification": ("accuracy", "matthews", "f1", "pearson", "spearman"),
    "choice": ("accuracy",),
    "tagging": ("f1", "precision", "recall", "accuracy"),
    "answers": ("f1", "exact"),
    "minimal_pairs": ("accuracy",),
}
MINIMAL_PAIRS = "minimal_pairs"  # the kind of task that needs no training


@dataclass(kw_only=True)
class TaskConfig:
    """One task: its files, which columns hold what, and how it is measured."""

    name: str = MISSING
    kind: str = "classification"
    folder: str = ""  # in the data folder; empty: itself
    columns: list[str] = field(default_factory=list)  # the sentences: names, or indices from 0
    choices: list[str] = field(default_factory=list)  # of kind choice: the columns of the endings
    label: str = "label"
    header: bool = True  # whether train and dev begin with the columns' names
    key: str | None = None  # of a JSON file: where in its object the rows are
    labels: list[str] = field(default_factory=list)  # label words in class order; empty: regression
    metrics: list[str] = field(default_factory=list)  # the first is the score
    train: str = "train.tsv"
    dev: str = "dev.tsv"
    dev_share: float = 0.0  # of train, kept out of it to be dev; then there is no file `dev`
    test: str | None = None  # without labels: for a submission
    test_columns: list[str] = field(default_factory=list)  # where they are others than `columns`
    test_rows: int | None = None  # that the server expects
    submission: str | None = None  # name of the file that the server takes
    also: list[str] = field(default_factory=list)  # tasks on whose sets the model is scored too
    sample: bool = False  # made by `pipeline.tasks`, not a published benchmark
    # Of minimal_pairs, whose files are those in `folder` that match `dev`, and whose `columns` are
    # the good and the bad sentence:
    contexts: list[str] = field(default_factory=list)  # columns read before them, not scored: 1, 2
    paradigm: str = ""  # column; empty, or not in a file: the file's name
    phenomenon: str = ""  # column that groups paradigms, if it is there
    category: str = ""  # column that groups phenomena, if it is there
    quoted: bool = False  # fields of TSV may be in quotation marks, as pandas writes them

    def __post_init__(self) -> None:
        """Check that the columns can be found and the score is known."""
        check_choice("task.kind", self.kind, tuple(TASK_METRICS))
        known = TASK_METRICS[self.kind]
        if self.kind in ("classification", "choice"):
            check(
                len(self.columns) in (1, 2),
                f"task.columns={self.columns}: one sentence, or two of a pair",
            )
            check(
                self.header or all(place.isdecimal() for place in (*self.columns, self.label)),
                "task.columns, task.label: without a header they are numbers, from 0",
            )
        if self.kind == "classification":
            check(len(self.labels) != 1, "task.labels: two or more; none for a score")
            known = known[:3] if self.labels else known[3:]
            known = known[:2] if len(self.labels) > 2 else known
        if self.kind == MINIMAL_PAIRS:
            check(len(self.columns) == 2, f"task.columns={self.columns}: the good and the bad one")
            check(len(self.contexts) <= 2, f"task.contexts={self.contexts}: one of both, or two")
        if self.kind == "choice":
            check(len(self.choices) >= 2, f"task.choices={self.choices}: two columns or more")
        if self.kind == "tagging":
            check(
                all(re.fullmatch(r"-?\d+", place) for place in (*self.columns, self.label)),
                f"task.columns={self.columns}, task.label={self.label}: of tagging they are "
                "numbers, from 0, or from the end: -1",
            )
        check(bool(self.metrics), "task.metrics=[]: at least one")
        for metric in self.metrics:
            check_choice("task.metrics", metric, known)
        check(0 <= self.dev_share < 1, f"task.dev_share={self.dev_share}: from 0 to below 1")


@dataclass(kw_only=True)
class EvaluateConfig(StageConfig):
    """`python -m pipeline.evaluate`."""

    task: TaskConfig = MISSING
    data: str = input_path()  # folder in the official GLUE layout, of folders or zip files
    # a Hugging Face folder, or `model` of an evaluation with keep; with `checkpoints` many of them
    pretrained: str = input_path()
    epochs: int = 3
    batch_sizes: list[int] = field(default_factory=lambda: [32])
    learning_rates: list[float] = field(default_factory=lambda: [5e-5])
    seeds: list[int] = field(default_factory=lambda: [0])
    sequence_length: int = 128
    truncation: str = "head"  # what is left of a long text: head, tail, head_tail, or all in chunks
    chunks: int = 8  # at most, of one text
    chunk_pooling: str = "mean"  # mean, max or attention
    stride: int = 128  # of answers: tokens from one window of a passage to the next
    encoder: str = "tuned"  # or frozen: only the head is trained, on `layers`
    layers: list[int] = field(default_factory=lambda: [-1])  # of a frozen encoder; 0: embeddings
    mix: str = "concat"  # of these layers: concat, mean, weighted
    pooling: str = "cls"  # of a frozen encoder's tokens: cls, mean, max
    precision: str = "fp32"  # or bf16: of the passes, weights and moments stay fp32
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    baseline: bool = True  # the same runs from random initialisation
    keep: bool = False  # the best model, in `model`: for predict, or as the start of another task
    submit: bool = False  # its answers to the test sets, in `submission`
    maximum_rows: int | None = None  # of train, to try things out
    processes: int = runtime_option(1)  # runs side by side
    threads: int | None = runtime_option(None)  # on CPU; null: PyTorch's choice
    # Of minimal_pairs: pll, each token masked in turn, or word_l2r, with the rest of its word
    score: str = "pll"
    # Of minimal_pairs: all, those of the `train` folder, or the models, in `pretrained`
    checkpoints: str | None = None
    part: list[int] | None = runtime_option(
        None
    )  # [i, n]: every n-th run of the grid, from the i-th

    def __post_init__(self) -> None:
        """Check the ranges."""
        check(
            self.part is None or (len(self.part) == 2 and 0 <= self.part[0] < self.part[1]),
            f"part={self.part}: [i, n], i from 0 to below n",
        )
        check(
            self.part is None or not self.force,
            f"force=true, part={self.part}: no part can know what the others have made anew; "
            f"remove {self.out} instead",
        )
        self._check_zero_shot()
        check(
            bool(self.task.train) or self.task.kind == MINIMAL_PAIRS,
            f"task {self.task.name} has no training set: the model of another task answers it",
        )
        check(self.epochs >= 1, f"epochs={self.epochs}: at least 1")
        for key in ("batch_sizes", "learning_rates", "seeds", "layers"):
            values = getattr(self, key)
            check(bool(values), f"{key}=[]: at least one")
            check(len(set(values)) == len(values), f"{key}={values}: a value is there twice")
        check(min(self.batch_sizes) >= 1, f"batch_sizes={self.batch_sizes}: at least 1 each")
        check(min(self.learning_rates) > 0, f"learning_rates={self.learning_rates}: above 0 each")
        for key in ("maximum_rows", "threads", "processes", "chunks", "stride"):
            value = getattr(self, key)
            check(value is None or value >= 1, f"{key}={value}: at least 1")
        check(0 <= self.warmup_share <= 1, f"warmup_share={self.warmup_share}: from 0 to 1")
        check(self.weight_decay >= 0, f"weight_decay={self.weight_decay}: at least 0")
        check(self.sequence_length >= 8, f"sequence_length={self.sequence_length}: at least 8")
        for key, choices in (
            ("truncation", ("head", "tail", "head_tail", "chunks")),
            ("chunk_pooling", ("mean", "max", "attention")),
            ("encoder", ("tuned", "frozen")),
            ("precision", ("fp32", "bf16")),
            ("mix", ("concat", "mean", "weighted")),
            ("pooling", ("cls", "mean", "max")),
            ("score", ("pll", "word_l2r")),
        ):
            check_choice(key, getattr(self, key), choices)
        check(
            self.encoder == "tuned" or not (self.keep or self.submit),
            "keep, submit: only with encoder=tuned",
        )
        check(
            not self.keep or self.truncation != "chunks",
            "keep: a model of chunks has no Hugging Face form; take another truncation",
        )

    def _check_zero_shot(self) -> None:
        """Check what belongs to minimal pairs, or not."""
        pairs = self.task.kind == MINIMAL_PAIRS
        check(
            self.checkpoints is None or (self.checkpoints == "all" and pairs),
            f"checkpoints={self.checkpoints}: all, and for tasks of kind minimal_pairs, or null",
        )
        check(not pairs or not (self.keep or self.submit), "keep, submit: no model is trained here")


@dataclass(kw_only=True)
class SubmitConfig(StageConfig):
    """`python -m pipeline.submit`."""

    # folders of evaluations; empty: all of the run's
    evaluations: list[str] = field(default_factory=list, metadata={"role": "input"})
    fill: bool = False  # constant answers to tasks that were not evaluated


@dataclass(kw_only=True)
class PredictConfig:
    """`python -m pipeline.predict`."""

    pretrained: str = MISSING  # a Hugging Face folder, perhaps fine-tuned since
    input: str | None = None  # a text file; null: standard input
    top: int = 5  # words for a mask
    sequence_length: int | None = None  # null: the model's

    def __post_init__(self) -> None:
        """Check the ranges."""
        check(self.top >= 1, f"top={self.top}: at least 1")
        length = self.sequence_length
        check(length is None or length >= 8, f"sequence_length={length}: at least 8")


@dataclass(kw_only=True)
class EmbedConfig:
    """`python -m pipeline.embed`."""

    pretrained: str = MISSING  # a Hugging Face folder
    input: str | None = None  # a text file, one text per line; null: standard input
    out: str = MISSING  # NAME.npy or NAME.arrow
    layers: list[int] = field(default_factory=lambda: [-1])  # 0: embeddings; -1: the last
    mix: str = "mean"  # of several layers: concat or mean
    pooling: str = "mean"  # of a text's tokens: cls, mean, max; tokens: all of them, to .arrow
    sequence_length: int | None = None  # null: the model's; longer texts are cut
    truncation: str = "head"  # head, tail or head_tail

    def __post_init__(self) -> None:
        """Check the choices."""
        check_choice("mix", self.mix, ("concat", "mean"))
        check_choice("pooling", self.pooling, ("cls", "mean", "max", "tokens"))
        check_choice("truncation", self.truncation, ("head", "tail", "head_tail"))
        check(bool(self.layers), "layers=[]: at least one")
        length = self.sequence_length
        check(length is None or length >= 8, f"sequence_length={length}: at least 8")
        ends = (".arrow",) if self.pooling == "tokens" else (".arrow", ".npy")
        check(self.out.endswith(ends), f"out={self.out}: give it the ending {' or '.join(ends)}")
