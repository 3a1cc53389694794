"""The schemas from a checkpoint to answers: `convert`, `evaluate`, `submit`, `predict`, `embed`."""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple
from unicodedata import normalize

from pipeline.common.schema import Section, StageConfig, check, input_path, option, runtime_option
from pipeline.errors import named

MINIMAL_PAIRS, RETRIEVAL, SIMILARITY = "minimal_pairs", "retrieval", "similarity"
USUAL_LENGTH = 128  # tokens of a sequence in fine-tuning
# Names of columns, and labels: in NFC, as in tables, as a letter can be encoded in two ways.
IN_TABLES = ("columns", "choices", "label", "labels", "test_columns", "contexts", "paradigm", "phenomenon", "category")


def composed(value: str | list[str]) -> str | list[str]:
    """Return a text, or all texts of a list, in NFC."""
    return normalize("NFC", value) if isinstance(value, str) else [normalize("NFC", v) for v in value]


class TaskKind(NamedTuple):
    """What a type of task can be scored by, what not every type has, and how many columns of texts; (): any."""

    metrics: tuple[str, ...]
    has: tuple[str, ...]  # examples: rows of texts with a class, a score or a right ending
    texts: tuple[int, ...] = ()


TASK_KINDS = {
    "classification": TaskKind(
        ("accuracy", "matthews", "f1", "macro_f1", "micro_f1", "pearson", "spearman"),
        ("training", "examples", "classes", "weights"),
        (1, 2),
    ),
    "choice": TaskKind(("accuracy",), ("training", "examples", "endings"), (1, 2)),
    "tagging": TaskKind(("f1", "precision", "recall", "accuracy"), ("training", "weights")),
    "answers": TaskKind(("f1", "exact"), ("training",)),
    MINIMAL_PAIRS: TaskKind(("accuracy",), ("checkpoints",), (2,)),
    RETRIEVAL: TaskKind(("ndcg@10", "recall@1", "recall@10", "mrr@10"), ("before",)),
    SIMILARITY: TaskKind(("spearman", "pearson"), ("examples", "before"), (2,)),
}
TRAINED = tuple(name for name, kind in TASK_KINDS.items() if "training" in kind.has)
OF_SCORES, OF_ONE_CLASS = ("pearson", "spearman"), ("matthews", "f1")  # others are of classes, one or several


@dataclass(kw_only=True)
class ConvertConfig(StageConfig):
    """`python -m pipeline.convert`."""

    _yields = dict.fromkeys(["average"], ("ema",))

    train: str = input_path(help="Folder of `train`, one of its checkpoints, or any BERT in Hugging Face's format.")
    vocab: str | None = input_path(help="Vocabulary folder; null: the one next to the weights.")
    average: int = option(1, "Checkpoints, the last ones, whose weights are averaged.", at_least=1)
    ema: bool = option(False, "Write the moving average of the weights that `train ema=` kept.")
    checkpoints: str | None = option(
        None,
        "Null: the last ones; marked: those of save_at_words, each in its own folder, as chck_1M "
        "after a million words.",
    )
    dtype: str = option("fp32", "Type of the stored weights.", choices=("fp32", "bf16", "fp16"))
    shard_bytes: int | None = option(None, "Largest size of a weight file, in bytes; null: one file.", at_least=1)
    license: str | None = option(None, "Licence in the model card.")
    examples: list[str] = option(
        [], "Sentences with [MASK] that a run and its report show filled in; empty: three of held-out text."
    )
    onnx: bool = option(False, "Write onnx/model.onnx too, checked with onnxruntime.")
    quantize: str | None = option(
        None,
        "Write onnx/model_quantized.onnx too, and onnx/model.onnx; refused if it changes vectors or scores.",
        choices=("int8",),
    )
    push: str | None = runtime_option(None, "Repository of the hub to upload to: OWNER/NAME.")
    push_revisions: list[str] = runtime_option(
        [],
        "Checkpoints to upload too, each as a revision of `push`: their names, as step-1000 or "
        "chck_1M; marked: those of save_at_words; all.",
    )

    @property
    def exports(self) -> dict[str, Any]:
        """Return the key that asks for ONNX, with its value; nothing if none does."""
        return {"quantize": self.quantize} if self.quantize else {"onnx": True} if self.onnx else {}

    def check_rules(self) -> None:
        """Check the examples and what fits what."""
        problem = f"cannot be combined with {named('ema')}=true; set one of them"
        self.require(not self.ema or self.average == 1, problem, "average")
        for text in self.examples:
            check("[MASK]" in text, f"{text!r} has no [MASK]; add one", "examples")
        self.require(self.checkpoints in (None, "marked"), "must be null, or marked", "checkpoints")
        several = self.average == 1 and self.push is None
        fault = "cannot be combined with average and push, which are for one model; push_revisions uploads checkpoints"
        self.require(self.checkpoints is None or several, fault, "checkpoints")
        name = r"[\w-][\w.-]{0,95}"  # as the hub has them
        valid = self.push is None or re.fullmatch(f"{name}/{name}", self.push) is not None
        self.require(valid, "must be OWNER/NAME, as on the hub", "push")
        problem = f"goes with {named('push')}=OWNER/NAME; set it"
        self.require(not self.push_revisions or self.push is not None, problem, "push_revisions")


@dataclass(kw_only=True)
class TaskConfig(Section, key="task"):
    """One task: its files, which columns hold what, and how it is measured."""

    _only = dict.fromkeys(("contexts", "paradigm", "phenomenon", "category"), ("kind", MINIMAL_PAIRS)) | {
        "choices": ("kind", "choice"),
        **{key: [("kind", *TRAINED), ("test",)] for key in ("test_columns", "test_rows")},
        **dict.fromkeys(("test", "also", "dev_share"), ("kind", *TRAINED)),
        "dev": ("dev_share", 0.0),
        "columns": ("kind", *(name for name, kind in TASK_KINDS.items() if kind.texts or name == "tagging")),
        "label": ("kind", "classification", "choice", "tagging", SIMILARITY),
        "labels": ("kind", "classification", "tagging"),
        "header": ("kind", "classification", "choice", MINIMAL_PAIRS, SIMILARITY),
    }
    _yields = dict.fromkeys(["dev_share"], ("dev",))

    name: str = option(help="Name of the task.")
    kind: str = option("classification", "Type of task.", choices=tuple(TASK_KINDS))
    folder: str = option("", "Folder of the files within the data folder; empty: that folder.")
    columns: list[str] = option(
        [], "Columns of the sentences: names, or indices from 0, or a sentence with `{NAME}` in it."
    )
    choices: list[str] = option([], "Of kind choice: columns of the endings.")
    label: str = option("label", "Column of the label.")
    header: bool = option(True, "Whether train and dev begin with the names of the columns.")
    key: str | None = option(None, "Of a JSON file: key under which its object has the rows.")
    labels: list[str] = option([], "Labels in the order of the classes; empty: regression.")
    multilabel: bool = option(
        False, "Several labels a text, or none: lists of JSON or Parquet, or with `,`, `;` or `|` between."
    )
    metrics: list[str] = option([], "Metrics; the first is the score.")
    train: str = option("train.tsv", "File of the training set.")
    dev: Any = option(
        "dev.tsv", "File of the development set; a list, or a pattern, of several, of which the first chooses."
    )
    dev_share: float = option(
        0.0, "Share of train that is held out as dev; the file `dev` is not read.", at_least=0, below=1
    )
    test: str | None = option(None, "File of a test set, scored where it has labels; of a submission, without.")
    test_columns: list[str] = option([], "Columns of the test set; empty: as `columns`.")
    test_rows: int | None = option(None, "Rows of the test set that the server expects.")
    submission: str | None = option(None, "Name of the file that the server accepts.")
    also: list[str] = option([], "Tasks on whose sets the model is scored too.")
    sample: bool = option(False, "Made by `pipeline.tasks`, not a published benchmark.")
    contexts: list[str] = option([], "Of minimal_pairs: columns read before the sentences and not scored, one or two.")
    paradigm: str = option("", "Of minimal_pairs: column of the paradigm; empty: the file's name.")
    phenomenon: str = option("", "Of minimal_pairs: column that groups paradigms, if present.")
    category: str = option("", "Of minimal_pairs: column that groups phenomena, if present.")

    def check_rules(self) -> None:
        """Check that the columns can be found and the score is known."""
        several = [self.dev] if isinstance(self.dev, str) else self.dev
        texts = isinstance(several, list) and all(isinstance(name, str) for name in several)
        self.require(texts and (len(several) > 0), "must be a file, or a list of files", "dev")
        vars(self).update((name, composed(getattr(self, name))) for name in IN_TABLES)
        allowed, _, counts = TASK_KINDS[self.kind]
        each = "one column, or two for pairs of sentences" if 1 in counts else "two, of the sentences that are compared"
        count = len({*self.columns} if self.has("examples") else self.columns)
        self.require(not counts or count == len(self.columns) in counts, f"must be {each}", "columns")
        if self.has("examples"):
            leaked = any(self.label == column or f"{{{self.label}}}" in column for column in self.columns)
            self.require(not leaked, f"has the label's, {self.label}: the answer would be read", "columns")
            fits = self.header or all(place.isdecimal() for place in (*self.columns, self.label))
            self.require(fits, "must be indices from 0 in a file without a header, like task.label", "columns")
        fits = not self.multilabel or (self.has("classes") and bool(self.labels))
        self.require(fits, "is of kind classification, and needs task.labels=[A,B]", "multilabel")
        if self.has("classes"):
            once = len({*self.labels}) == len(self.labels) != 1
            self.require(once, "must be two or more, each once, or empty for regression", "labels")
            not_here = OF_ONE_CLASS if self.multilabel else ("f1",) if len(self.labels) > 2 else ()
            allowed = tuple(one for one in allowed if (one in OF_SCORES) != bool(self.labels) and one not in not_here)
        self.require(self.has("training") or isinstance(self.dev, str), "must be one file or pattern", "dev")
        self.require(len(self.contexts) <= 2, "must be one column for both, or two", "contexts")
        self.require(len(self.choices) > 1 or not self.has("endings"), "must be two columns or more", "choices")
        check(bool(self.metrics), f"must be at least one of {', '.join(allowed)}", "task.metrics", "[]")
        other = "[] for scores" if self.labels else "[A,B] for classes"
        cure = f"; or set task.labels={other}" * self.has("classes")
        for metric in self.metrics:
            check(metric in allowed, f"choose one of {', '.join(allowed)}{cure}", "task.metrics", metric)

    @property
    def dev_names(self) -> list[str]:
        """Return the files of development sets, or patterns; none where they are a part of train."""
        return [] if self.dev_share else self.dev if isinstance(self.dev, list) else [self.dev]

    def has(self, what: str) -> bool:
        """Return whether tasks of its type have something of `TaskKind.has`."""
        return what in TASK_KINDS[self.kind].has

    @property
    def positive(self) -> str | None:
        """Return the class that F1 is of, if there are two; that of other tasks is of no class."""
        two = self.has("classes") and len(self.labels) == 2 and not self.multilabel
        return self.labels[1] if two else None


@dataclass(kw_only=True)
class EvaluateConfig(StageConfig):
    """`python -m pipeline.evaluate`."""

    _of_training = ("epochs", "batch_sizes", "learning_rates", "encoder", "precision", "best_epoch", "processes")
    _only = dict.fromkeys((*_of_training, "warmup_share", "weight_decay"), ("task.kind", *TRAINED))
    _only |= {key: [("task.kind", *TRAINED), ("encoder", "frozen")] for key in ("layers", "mix", "pooling")}
    _of_texts = ("task.kind", "classification", "choice")
    _only |= {"chunks": [_of_texts, ("truncation", "chunks")], "chunk_pooling": [_of_texts, ("truncation", "chunks")]}
    _only |= {"maximum_rows": ("task.kind", *TRAINED, MINIMAL_PAIRS), "score": ("task.kind", MINIMAL_PAIRS)}
    _only |= {"stride": ("task.kind", "answers"), "truncation": _of_texts}

    task: TaskConfig = option()
    data: str = input_path(help="Folder in the official GLUE layout, of folders or zip files.")
    pretrained: str = input_path(
        help="Hugging Face folder, or the `model` of an evaluation with keep=true; with `checkpoints` a folder of many."
    )
    epochs: int = option(3, "Passes over the training set.", at_least=1)
    batch_sizes: list[int] = option([32], "Batch sizes of the grid.", at_least=1)
    learning_rates: list[float] = option([5e-5], "Learning rates of the grid.", above=0)
    seeds: list[int] = option([0], "Seeds of the grid.")
    sequence_length: int | None = option(
        None, "Tokens per sequence, at most; null: 128, or as many as were learnt.", formerly=USUAL_LENGTH, at_least=8
    )
    truncation: str = option(
        "head",
        "Of classification and choice: part of a long text that is kept; chunks, of "
        "classification: all of it, in several sequences.",
        choices=("head", "tail", "head_tail", "chunks"),
    )
    chunks: int = option(8, "Chunks per text, at most.", at_least=1)
    chunk_pooling: str = option("mean", "How the chunks of a text are combined.", choices=("mean", "max", "attention"))
    stride: int = option(128, "Of answers: tokens from one window of a passage to the next.", at_least=1)
    encoder: str = option(
        "tuned", "Train all weights; or, frozen, only the head, on `layers`.", choices=("tuned", "frozen")
    )
    layers: list[int] = option([-1], "Layers of a frozen encoder that are read; 0: embeddings.")
    mix: str = option("concat", "How these layers are combined.", choices=("concat", "mean", "weighted"))
    pooling: str = option("cls", "How the tokens of a frozen encoder are combined.", choices=("cls", "mean", "max"))
    precision: str = option(
        "fp32", "Precision of the passes; weights and moments stay in fp32.", choices=("fp32", "bf16")
    )
    warmup_share: float = option(0.1, "Share of steps for warm-up.", at_least=0, at_most=1)
    weight_decay: float = option(0.01, "Weight decay.", at_least=0)
    baseline: bool = option(True, "Do the same runs from random initialisation too.")
    keep: bool = option(False, "Keep the best model in `model`: for predict, or to start another task from.")
    submit: bool = option(False, "Write the best model's answers to the test sets: `submission`.")
    own_tasks: dict[str, TaskConfig] = option({}, "Of task.also: tasks of your own folder of YAML files; filled in.")
    class_weights: Any = option(
        None, "Of classes or tags: their weights in the loss, in the order of task.labels; or balanced, by frequency."
    )
    best_epoch: bool = option(False, "Take the epoch that scores best on dev, not the last.")
    maximum_rows: int | None = option(None, "Rows of train that are read, for trials; null: all.", at_least=1)
    processes: int = runtime_option(1, "Runs of the grid at a time.", at_least=1)
    threads: int | None = runtime_option(None, "Threads on a CPU; null: PyTorch's choice.", at_least=1)
    score: str = option(
        "pll",
        "Of minimal_pairs: pll masks each token in turn; word_l2r also the rest of its word.",
        choices=("pll", "word_l2r"),
    )
    checkpoints: str | None = option(
        None, "Of minimal_pairs: all, to score those of the `train` folder, or the models, in `pretrained`."
    )
    before: str | None = input_path(
        None, "Of retrieval and similarity: the model before its last training, scored too."
    )
    part: list[int] | None = runtime_option(None, "[i, n]: every n-th run of the grid, from the i-th; null: all.")

    def check_rules(self) -> None:
        """Check what cannot be combined."""
        task, part = self.task, self.part
        fits = part is None or (len(part) == 2 and 0 <= part[0] < part[1])
        self.require(fits, "must be [i, n], i from 0 to below n", "part")
        problem = f"cannot be combined, as no part knows what the others have made since; delete {self.out} instead"
        check(part is None or not self.force, problem, "force", f"true, part={part}")
        fits = self.checkpoints is None or (self.checkpoints == "all" and task.has("checkpoints"))
        self.require(fits, "must be null, or all for tasks of kind minimal_pairs", "checkpoints")
        self.require(self.before is None or task.has("before"), "is for retrieval and similarity", "before")
        trains = task.has("training")
        check(trains or not self.saves, "trains no model; remove keep and submit", "task", task.name)
        problem = f"task {task.name} chooses among endings, each of which is one sequence; set another truncation"
        self.require(self.truncation != "chunks" or not task.has("endings"), problem, "truncation")
        problem = "has no training set; evaluate the task that has it in `also`"
        check(bool(task.train) or not trains, problem, "task", task.name)
        weights, labels = self.class_weights, task.labels
        numbers = isinstance(weights, list) and all(isinstance(one, int | float) and one > 0 for one in weights)
        fits = weights in (None, "balanced") or (numbers and len(weights) == len(labels))
        count = len(labels) or "which is empty"
        problem = f"must be null, balanced, or as many numbers above 0 as task.labels has, {count}"
        self.require(fits, problem, "class_weights")
        fits = weights is None or (task.has("weights") and (bool(labels) or not task.has("classes")))
        self.require(fits, "is of classes and tags alone; set null", "class_weights")
        for key in ("batch_sizes", "learning_rates", "seeds", "layers"):
            values = getattr(self, key)
            self.require(bool(values), "must be at least one", key)
            self.require(len(set(values)) == len(values), "contains a value twice", key)
        self._check_saved()

    @property
    def longest(self) -> int:
        """Return the tokens of a sequence, at most, where it is not known what the model has learnt."""
        return self.sequence_length or USUAL_LENGTH

    @property
    def saves(self) -> bool:
        """Return whether the best model is saved."""
        return self.keep or self.submit

    def _check_saved(self) -> None:
        """Check that the best model can be saved, if it is."""
        problem = f"cannot be combined with keep and submit; set {named('encoder')}=tuned"
        self.require(self.encoder == "tuned" or not self.saves, problem, "encoder")
        problem = "has no Hugging Face form, which keep and submit need; set another truncation"
        self.require(self.truncation != "chunks" or not self.saves, problem, "truncation")
        task = self.task
        problem = (
            f"task {task.name} lacks a test set; set {named('submit')}=false, or set task.test and task.submission"
        )
        self.require(not self.submit or bool(task.test and task.submission) or bool(task.also), problem, "submit")


@dataclass(kw_only=True)
class SubmitConfig(StageConfig):
    """`python -m pipeline.submit`."""

    evaluations: list[str] = input_path([], "Folders of evaluations; empty: all of the run.")
    fill: bool = option(False, "Write constant answers to tasks that were not evaluated.")


@dataclass(kw_only=True)
class RowsConfig(Section):
    """What `predict` and `embed` read."""

    pretrained: str = option(help="Hugging Face folder.")
    input: str | None = option(None, "Text file, one text per line, or a table; null: standard input.")
    columns: list[str] = option(
        [], "Of CSV, TSV, JSON or JSON lines: columns of the texts; names, or indices from 0 where no line names them."
    )
    id: str | None = option(None, "Column that answers are named by; null: id, if there is one.")
    label: str | None = option(None, "Column of the right answers, to show next to them; null: label, if there is one.")
    quantize: str | None = option(
        None, "Run onnx/model_quantized.onnx of the folder, which `convert quantize=int8` writes.", choices=("int8",)
    )


@dataclass(kw_only=True)
class PredictConfig(RowsConfig):
    """`python -m pipeline.predict`."""

    pretrained: str = option(help="Hugging Face folder, pre-trained or fine-tuned.")
    top: int = option(5, "Words per mask.", at_least=1)
    sequence_length: int | None = option(
        None, "Tokens per sequence, at most; null: as many as were learnt or tuned.", at_least=8
    )


@dataclass(kw_only=True)
class EmbedConfig(RowsConfig):
    """`python -m pipeline.embed`."""

    out: str = option(help="File to write: NAME.npy or NAME.arrow.")
    layers: list[int] = option([-1], "Layers that are read; 0: embeddings, -1: the last.")
    mix: str = option("mean", "How several layers are combined.", choices=("concat", "mean"))
    pooling: str | None = option(
        None,
        "How the tokens of a text are combined; tokens: not at all, to .arrow; null: as a "
        "sentence-transformers model says, else mean.",
        choices=("cls", "mean", "max", "tokens"),
    )
    sequence_length: int | None = option(None, "Tokens per text, at most; null: as many as were learnt.", at_least=8)
    truncation: str = option("head", "Part of a long text that is kept.", choices=("head", "tail", "head_tail"))
    prompt: str | None = option(
        None, "Name of a prompt of a sentence-transformers model, such as query; null: its default."
    )
    dtype: str = option("float32", "Type of the vectors.", choices=("float32", "float16"))

    def check_rules(self) -> None:
        """Check the columns and the ending of the file."""
        check(bool(self.layers), "must be at least one", "layers", "[]")
        self.require(self.quantize is None or self.layers == [-1], "the graph has only layers=[-1]", "quantize")
        self.require(len(self.columns) < 2, "must be one column, or a text with {NAME} in it", "columns")
        ends = (".arrow",) if self.pooling == "tokens" else (".arrow", ".npy")
        self.require(self.out.endswith(ends), f"must end with {' or '.join(ends)}", "out")
        for key in ("id", "label"):
            self.require(getattr(self, key) is None or ends[0] in self.out, "goes with out=NAME.arrow alone", key)
