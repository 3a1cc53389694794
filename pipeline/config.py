"""The schema of every pipeline configuration: names, types, defaults, ranges, cross-field rules.

`conf/NAME.yaml` holds the values of `python -m pipeline.NAME`; this file says what may stand there.
A field made by `input_path` names a folder or file that the stage reads: its content is part of the
stage's fingerprint and it draws an edge of the DAG. A field made by `incidental` cannot change what
the stage makes, so it stays out of the fingerprint.
"""

import codecs
from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from pipeline.errors import ConfigError


def input_path(default: Any = MISSING) -> Any:
    """A field that names something the stage reads."""
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata={"role": "input"})
    return field(default=default, metadata={"role": "input"})


def incidental(default: Any = MISSING) -> Any:
    """A field that changes how a stage runs, never what it makes."""
    if isinstance(default, dict | list):
        return field(default_factory=lambda: default.copy(), metadata={"role": "incidental"})
    return field(default=default, metadata={"role": "incidental"})


def check(rule: bool, message: str) -> None:
    """Raise `ConfigError(message)` unless `rule` holds."""
    if not rule:
        raise ConfigError(message)


def check_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise `ConfigError` unless `value` is one of `choices`."""
    check(value in choices, f"{key}={value}: choose one of {', '.join(choices)}")


@dataclass(kw_only=True)
class StageConfig:
    """What every stage has."""

    workdir: str = incidental("work")  # folder of the run: every stage has its folder in it
    out: str = incidental()  # folder that the stage makes
    force: bool = incidental(False)  # make it again though it is there


@dataclass(kw_only=True)
class DownloadFile:
    """One file with an address, and the publisher's list of checksums that names it."""

    url: str = MISSING
    sums: str | None = None  # address of a file of lines `DIGEST  NAME`
    digest: str | None = None  # or the digest itself; md5, sha1 or sha256 by its length


@dataclass(kw_only=True)
class CorpusConfig:
    """Where text comes from and how it is read."""

    name: str = MISSING
    reader: str = MISSING  # a module of pipeline.corpora
    language: str = "en"
    path: str | None = None  # file, folder or glob; null: the files that `download` fetched
    files: list[DownloadFile] = field(default_factory=list)  # what `download` fetches
    encoding: str | None = None  # of text files; null: found out file by file
    mend: bool = False  # put right what was once decoded in a wrong encoding, with ftfy
    on_error: str = "fail"  # a single document that is broken: fail, or skip and name it
    parts: dict[str, Any] = field(default_factory=dict)  # of a mix: corpora, each with a weight
    options: dict[str, Any] = field(default_factory=dict)  # the reader's own options

    def __post_init__(self) -> None:
        """Check the choices."""
        check_choice("corpus.on_error", self.on_error, ("fail", "skip"))
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError as error:
                raise ConfigError(f"corpus.encoding={self.encoding}: no such encoding") from error


@dataclass(kw_only=True)
class FiltersConfig:
    """Which documents `prepare` leaves out, beside those that are empty, short or equal."""

    maximum_characters: int | None = None  # of a document
    maximum_non_letters: float | None = None  # share of its characters, spaces apart
    banned: list[str] = field(default_factory=list)  # regular expressions
    banned_file: str | None = input_path(None)  # or a file of them, one a line
    decontaminate: list[str] = field(  # evaluation files, folders of them, globs
        default_factory=list, metadata={"role": "input"}
    )
    ngram: int = 13  # words in a row that a document may not share with an evaluation file
    near_duplicates: float | None = None  # Jaccard similarity from which the second one goes
    shingle: int = 5  # words in a row that are compared for it
    permutations: int = 128  # of a MinHash signature: more are more exact, and cost more

    def __post_init__(self) -> None:
        """Check the ranges."""
        for key in ("maximum_characters", "ngram", "shingle", "permutations"):
            value = getattr(self, key)
            check(value is None or value >= 1, f"filters.{key}={value}: at least 1")
        share, near = self.maximum_non_letters, self.near_duplicates
        check(share is None or 0 <= share <= 1, "filters.maximum_non_letters: from 0 to 1")
        check(near is None or 0 < near <= 1, "filters.near_duplicates: above 0, up to 1")


@dataclass(kw_only=True)
class RunnerConfig:
    """The engine that runs the Beam graph."""

    name: str = "local"
    workers: int = 1  # processes that local, portable and a Dask cluster of our own have
    options: dict[str, Any] = field(default_factory=dict)  # further Beam pipeline options

    def __post_init__(self) -> None:
        """Check the name and the range."""
        engines = ("local", "dask", "portable", "flink", "spark", "dataflow")
        check_choice("runner.name", self.name, engines)
        check(self.workers >= 1, f"runner.workers={self.workers}: at least 1")


@dataclass(kw_only=True)
class DownloadConfig(StageConfig):
    """`python -m pipeline.download`."""

    corpus: CorpusConfig = MISSING
    timeout: float = incidental(60.0)  # seconds without a byte before a try is given up
    tries: int = incidental(8)  # per file; a try goes on where the last one broke off

    def __post_init__(self) -> None:
        """Check the ranges."""
        check(self.timeout > 0, f"timeout={self.timeout}: above 0 seconds")
        check(self.tries >= 1, f"tries={self.tries}: at least 1")


@dataclass(kw_only=True)
class VocabConfig(StageConfig):
    """`python -m pipeline.vocab`."""

    corpus: CorpusConfig = MISSING
    source: str = input_path()  # the download folder, read where corpus.path is null
    existing: str | None = input_path(None)  # a vocab.txt or tokenizer.json to take as it is
    additions: str | None = input_path(None)  # a file of entries, one a line, to put after those
    learn: int = 0  # so many entries learnt from the corpus, to put after those
    size: int = 30522
    lowercase: bool | None = None  # null: true; of an existing vocab.txt, as its entries say
    strip_accents: bool | None = None  # null: as lowercase says
    split_chinese: bool = True  # every CJK character a word of its own
    sample_bytes: int = 100_000_000  # text to learn from, spread over the corpus
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check(self.size >= 100, f"size={self.size}: at least 100 entries")
        check(self.sample_bytes >= 1, f"sample_bytes={self.sample_bytes}: at least 1")
        check(self.learn >= 0, f"learn={self.learn}: at least 0")
        check(
            self.existing is not None or (self.additions is None and not self.learn),
            "additions, learn: only to a vocabulary that is there, existing=FOLDER",
        )


@dataclass(kw_only=True)
class PrepareConfig(StageConfig):
    """`python -m pipeline.prepare`."""

    corpus: CorpusConfig = MISSING
    filters: FiltersConfig = field(default_factory=FiltersConfig)
    runner: RunnerConfig = incidental(MISSING)
    source: str = input_path()  # the download folder, read where corpus.path is null
    vocab: str = input_path()  # the vocabulary folder
    pairs: str = "nsp"  # B next or random; sop: next or swapped with A; none: full sentences
    cross_documents: bool = True  # of none: a sequence may hold the end of one and the next one
    sequence_length: int = 128  # with [CLS] and two [SEP]
    short_sequence_probability: float = 0.1  # of nsp and sop
    duplicates: int = 1  # times each document is cut into pairs anew
    validation_share: float = 0.01  # of documents, by the hash of their text
    words: str | None = None  # of text without spaces, marked for masks of whole words: jieba
    minimum_sentences: int = 1  # documents with fewer are counted as short; of sop at least 2
    minimum_characters: int = 50  # likewise
    split_bytes: int = 64 * 2**20  # of an input file that one phase-1 task reads
    shard_bytes: int = 64 * 2**20  # of input text that one shard holds, about
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_choice("pairs", self.pairs, ("nsp", "sop", "none"))
        check_choice("words", self.words or "jieba", ("jieba",))
        check(8 <= self.sequence_length <= 65535, "sequence_length: from 8 to 65535")
        for key in ("short_sequence_probability", "validation_share"):
            value = getattr(self, key)
            check(0 <= value < 1, f"{key}={value}: from 0 to below 1")
        for key in ("duplicates", "split_bytes", "shard_bytes", "minimum_sentences"):
            value = getattr(self, key)
            check(value >= 1, f"{key}={value}: at least 1")


@dataclass(kw_only=True)
class TasksConfig(StageConfig):
    """`python -m pipeline.tasks`: sample tasks in the GLUE layout, from held-out documents."""

    corpus: CorpusConfig = MISSING
    source: str = input_path()
    validation_share: float = 0.01  # as `prepare` has it: the documents that training never sees
    train_rows: int = 4000
    dev_rows: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check(0 < self.validation_share < 1, "validation_share: between 0 and 1")
        check(self.train_rows >= 2, f"train_rows={self.train_rows}: at least 2")
        check(self.dev_rows >= 2, f"dev_rows={self.dev_rows}: at least 2")


@dataclass(kw_only=True)
class ConvertConfig(StageConfig):
    """`python -m pipeline.convert`."""

    # a folder that `train` made, one checkpoint of it, or anybody's BERT in Hugging Face's format
    train: str = input_path()
    vocab: str | None = input_path()  # null: the one beside the weights
    average: int = 1  # mean of the weights of so many checkpoints, the last ones
    dtype: str = "fp32"
    shard_bytes: int | None = None  # largest file of weights; null: one file
    license: str | None = None  # of the model card
    onnx: bool = False  # also model.onnx, checked with onnxruntime
    push: str | None = incidental(None)  # OWNER/NAME on the hub
    check: bool = incidental(True)  # open the result with transformers and compare the logits

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_choice("dtype", self.dtype, ("fp32", "bf16", "fp16"))
        check(self.average >= 1, f"average={self.average}: at least 1")
        check(
            self.shard_bytes is None or self.shard_bytes >= 1,
            f"shard_bytes={self.shard_bytes}: at least 1",
        )


KINDS = {  # of tasks: what they may be measured by
    "classification": ("accuracy", "matthews", "f1", "pearson", "spearman"),
    "choice": ("accuracy",),
    "tagging": ("f1", "precision", "recall", "accuracy"),
    "answers": ("f1", "exact"),
}


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

    def __post_init__(self) -> None:
        """Check that the columns can be found and the score is known."""
        check_choice("task.kind", self.kind, tuple(KINDS))
        known = KINDS[self.kind]
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
        if self.kind == "choice":
            check(len(self.choices) >= 2, f"task.choices={self.choices}: two columns or more")
        check(bool(self.metrics), "task.metrics=[]: at least one")
        for metric in self.metrics:
            check_choice("task.metrics", metric, known)
        check(0 <= self.dev_share < 1, f"task.dev_share={self.dev_share}: from 0 to below 1")


@dataclass(kw_only=True)
class EvaluateConfig(StageConfig):
    """`python -m pipeline.evaluate`."""

    task: TaskConfig = MISSING
    data: str = input_path()  # folder in the official GLUE layout, of folders or zip files
    pretrained: str = input_path()  # a Hugging Face folder, or `model` of an evaluation with keep
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
    processes: int = incidental(1)  # runs side by side
    threads: int | None = incidental(None)  # on CPU; null: PyTorch's choice
    part: list[int] | None = incidental(None)  # [i, n]: every n-th run of the grid, from the i-th

    def __post_init__(self) -> None:
        """Check the ranges."""
        check(
            self.part is None or (len(self.part) == 2 and 0 <= self.part[0] < self.part[1]),
            f"part={self.part}: [i, n], i from 0 to below n",
        )
        check(
            bool(self.task.train),
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
    input: str = MISSING  # a text file, a text a line
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


@dataclass(kw_only=True)
class ReportConfig(StageConfig):
    """`python -m pipeline.report`."""

    stages: list[str] = field(default_factory=list, metadata={"role": "input"})


@dataclass(kw_only=True)
class RecipeConfig:
    """A graph of stages: for each name, what its configuration says differently."""

    name: str = MISSING
    stages: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class ExecutorConfig:
    """Where the stages of a run become processes."""

    name: str = "local"
    namespace: str | None = None  # of Kubernetes; null: the pod's own, or the context's
    part_of: str = "bert-pretrain"  # label app.kubernetes.io/part-of of the stages' Jobs
    poll: float = 5.0  # seconds between looks at the Jobs
    patience: float = 600.0  # seconds without an answer of the API server before the driver leaves
    queue: str | None = None  # hand Jobs to this Kueue LocalQueue instead of resuming them

    def __post_init__(self) -> None:
        """Check the choice and the ranges."""
        check_choice("executor.name", self.name, ("local", "kubernetes"))
        check(self.poll > 0, f"executor.poll={self.poll}: above 0 seconds")
        check(self.patience > 0, f"executor.patience={self.patience}: above 0 seconds")


@dataclass(kw_only=True)
class RunConfig:
    """`python -m pipeline.run`."""

    workdir: str = MISSING
    corpus: CorpusConfig = MISSING
    recipe: RecipeConfig = MISSING
    model: dict[str, Any] = field(default_factory=dict)  # a size of conf/model
    tasks: list[str] = field(default_factory=list)  # of conf/task
    glue: str | None = None  # folder of the official GLUE files, for tasks that are not samples
    seed: int = 0
    dry_run: bool = False  # draw the graph, and say what would run and why
    force: list[str] = field(default_factory=list)  # stages to make again (also --force STAGE)
    processes: int | None = None  # of training; null: one a GPU, or one on a CPU
    cores: int | None = None  # to share out among stages; null: all
    executor: ExecutorConfig = MISSING

    def __post_init__(self) -> None:
        """Check the ranges."""
        for key in ("processes", "cores"):
            value = getattr(self, key)
            check(value is None or value >= 1, f"{key}={value}: at least 1")
