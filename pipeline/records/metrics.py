"""What stages measured: records in `figures` of their manifests, and every number made of them.

Terminal lines, report, W&B, model card and tables read these. A record reads the figures of every
manifest that was ever written: what an earlier release did not note is missing, never an error.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Self

from pipeline.records.manifest import Manifest, manifest_of
from pipeline.storage.strict_json import Json

Counts = dict[str, int]
Values = dict[str, float]
BY_WORDS = "BM25"  # title of a system that no training changes
SCHEMA = 2  # 1 had no number, and `prepare` counted tokens of equal documents each time


def mean_of(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean of a sample and its standard deviation, None of a single value.

    Both are NaN where a value is; `statistics.stdev` raises.
    """
    mean, count = fmean(values), len(values)
    squares = sum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (count - 1)) if count > 1 else None


def empty(kind: type[Any]) -> Any:
    """Return a field that is an empty dict, counter or list where a manifest lacks it."""
    return field(default_factory=kind)


@dataclass(frozen=True, kw_only=True)
class Record:
    """The figures of a stage."""

    stage: ClassVar[str]

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return the record in a manifest, which has the time itself."""
        return cls.from_json(manifest.figures | {"seconds": manifest.seconds})

    @classmethod
    def from_json(cls, figures: Mapping[str, Any]) -> Self:
        """Return the record that any release wrote."""
        noted = {one.name: one for one in fields(cls) if figures.get(one.name) is not None}
        kinds: dict[str, Any] = {key: Counter if one.default_factory is Counter else dict for key, one in noted.items()}
        plain = {key: kinds[key](figures[key]) if isinstance(figures[key], dict) else figures[key] for key in noted}
        return cls(**plain)

    def to_json(self) -> Json:
        """Return the record for a manifest."""
        return {"schema": SCHEMA, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class ShardCounts(Record):
    """What is in a shard."""

    name: str
    rows: int = 0  # 0: not counted
    sha256: str = ""
    tokens: int = 0
    words: float | None = None  # of the text that its tokens are
    text_words: int | None = None  # of its documents, each once


OUTCOMES = ("empty", "short", "duplicate", "filtered", "written")
FEW_LOST = 0.02  # of the tokens
MIXED = (0.2, 0.8)  # the share of random pairs from which the next sentence can be learnt
BITS = "bits_per_byte"  # of masked tokens' loss, per byte of the text that they are: vocabularies can be compared
NAMED = 100  # single documents listed by name for a fault; further ones are only counted


@dataclass(frozen=True, kw_only=True)
class CorpusCounts(Record):
    """The account of a corpus in shards, or of a part of it; every document read ends in exactly one of `OUTCOMES`."""

    stage: ClassVar = "prepare"
    documents: Counter[str] = empty(Counter)  # read, and by outcome
    filtered: Counter[str] = empty(Counter)  # by filter
    skipped: Counter[str] = empty(Counter)  # by the reader, by reason
    notes: Counter[str] = empty(Counter)  # guesses and repairs
    totals: Counter[str] = empty(Counter)
    lost: Counter[str] = empty(Counter)  # tokens of documents that were read, by why they are in no shard
    packing: Counter[str] = empty(Counter)  # of pairs=none: how full, how cut
    contaminated: Counter[str] = empty(Counter)  # by evaluation file
    removed: Counter[str] = empty(Counter)  # by line of `filters.remove`
    named: dict[str, list[str]] = empty(dict)  # single documents, by fault
    dropped: int = 0  # rows of _dropped.feather
    lengths: Counter[int] = empty(Counter)  # instances by tokens
    shards: dict[str, ShardCounts] = empty(dict)  # by file name
    tokenizer: str = ""
    vocab_size: int = 0
    sequence_length: int = 0
    warnings: list[str] = empty(list)

    TITLES: ClassVar = {
        "characters": "characters read",
        "tokens_read": "tokens read",
        "tokens_used": "tokens in shards, each once",
        "train": "instances to train on",
        "validation": "instances held out",
        "validation_documents": "documents held out",
        "validation_random_next": "instances held out with a random next segment",
        "random_next": "instances with a random next segment",
        "repeats": "documents repeated",
    }

    @classmethod
    def from_json(cls, figures: Mapping[str, Any]) -> Self:
        """Return the record that any release wrote."""
        record = super().from_json(figures)
        packed: Any = record.packing.copy()
        if packed:
            packed["padding_share"] = 1 - packed["tokens"] / max(packed["places"], 1)
            packed["cut_share"] = packed["cut"] / max(packed["documents"], 1)
        return replace(
            record,
            documents=Counter({"read": 0, **record.documents}),
            packing=packed,
            lengths=Counter({int(length): count for length, count in record.lengths.items()}),
            shards={
                name: ShardCounts.from_json({"name": name, **shard})
                for name, shard in figures.get("shards", {}).items()
            },
            warnings=[text.removeprefix("warning: ") for text in record.warnings],
        )

    def to_json(self) -> Json:
        """Return the record for a manifest."""
        plain = {name: dict(one) if isinstance(one, Counter) else one for name, one in vars(self).items()}
        lengths = {str(length): count for length, count in sorted(self.lengths.items())}
        shards = {name: asdict(shard) for name, shard in self.shards.items()}
        return {"schema": SCHEMA, **plain, "lengths": lengths, "shards": shards}

    def merge(self, other: Self) -> None:
        """Add the counts of another part of the corpus."""
        for name, counter in vars(self).items():
            if isinstance(counter, Counter):
                counter.update(getattr(other, name))
        self.shards.update(other.shards)
        for reason, documents in other.named.items():
            self.name(reason, *documents)

    def name(self, reason: str, *documents: str) -> None:
        """List single documents by their fault, as long as the list is short."""
        self.named[reason] = [*self.named.get(reason, []), *documents][:NAMED]

    def balance(self) -> None:
        """Check that the outcomes add up to the documents read.

        Raises:
            RuntimeError: the engine lost or duplicated documents.
        """
        documents = self.documents
        listed = ", ".join(f"{documents[outcome]} {outcome}" for outcome in OUTCOMES)
        if documents["read"] != sum(documents[outcome] for outcome in OUTCOMES):
            raise RuntimeError(f"outcomes do not add up to the {documents['read']} documents read: {listed}")
        if documents["filtered"] != sum(self.filtered.values()):
            raise RuntimeError(f"{listed}; but by filter: {dict(self.filtered)}")
        read, used = (self.totals[name] for name in ("tokens_read", "tokens_used"))
        if read != used + sum(self.lost.values()):
            raise RuntimeError(f"{read} tokens read, but {used} in shards, and lost: {dict(self.lost)}")

    @property
    def written(self) -> int:
        """Return how many documents are in the shards."""
        return self.documents["written"]

    @property
    def found(self) -> int:
        """Return how many documents the corpus has, with those that the reader skipped."""
        return self.documents["read"] + sum(self.skipped.values())

    @property
    def tokens(self) -> int:
        """Return the tokens of the documents in the shards, each once."""
        return self.totals["tokens"]

    @property
    def lost_line(self) -> str:
        """Return which tokens of the documents in the shards are in none; nothing where they are few."""
        cut = {reason: self.lost[reason] for reason in ("truncated", "no pair") if self.lost[reason]}
        share = sum(cut.values()) / max(self.tokens, 1)
        listed = ", ".join(f"{count:,} {reason}" for reason, count in cut.items())
        return f"{share:.0%} of them in no shard ({listed})" if share > FEW_LOST else ""

    @property
    def one_kind(self) -> float | None:
        """Return the share of random pairs where it is surely not between the bounds of `MIXED`, else None."""
        n, z = self.instances, 2.0
        if not n or "random_next" not in self.totals:
            return None
        share = self.totals["random_next"] / n  # with bounds of Wilson's interval
        middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
        low, high = ((middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))
        return share if high < MIXED[0] or low > MIXED[1] else None

    @property
    def train(self) -> int:
        """Return how many instances there are to train on."""
        return self.totals["train"]

    @property
    def held_out(self) -> int:
        """Return how many instances are held out."""
        return self.totals["validation"]

    @property
    def held_documents(self) -> int:
        """Return how many documents are held out."""
        return self.totals["validation_documents"]

    @property
    def instances(self) -> int:
        """Return how many instances there are."""
        return self.train + self.held_out

    @property
    def words(self) -> int:
        """Return the words of the documents in the shards, each once; 0 if not counted."""
        return sum(shard.text_words or 0 for shard in self.shards.values())

    @property
    def train_words(self) -> float:
        """Return the words of the text of the instances to train on; 0 if not counted."""
        return sum(one.words or 0.0 for one in self.shards.values() if one.name.startswith("train"))

    @property
    def packing_line(self) -> str:
        """Return how full sequences are, and how many documents are in several of them."""
        packing = self.packing
        return f"padding {packing['padding_share']:.1%} if filled up, {packing['cut_share']:.1%} of the documents cut"

    @property
    def mean_length(self) -> float | None:
        """Return the tokens of an instance on average; None if there are none."""
        tokens = sum(length * count for length, count in self.lengths.items())
        return tokens / sum(self.lengths.values()) if self.lengths else None

    @property
    def lengths_line(self) -> str:
        """Return how long instances are."""
        full = self.lengths[self.sequence_length] / max(sum(self.lengths.values()), 1)
        mean = f"{self.mean_length or 0.0:.1f} tokens on average"
        return f"Lengths of instances: {mean}, {full:.1%} have all {self.sequence_length}"

    def rows(self) -> Iterator[tuple[str, int]]:
        """Yield every count with its title."""
        for outcome, count in self.documents.items():
            yield f"documents {outcome}", count
        for kind in ("filtered", "skipped", "notes"):
            for reason, count in getattr(self, kind).items():
                yield f"{kind}: {reason}", count
        for reason, count in self.lost.items():
            yield f"tokens in no shard: {reason}", count
        if self.words:
            yield "words", self.words
        for name, count in self.totals.items():
            if count or "random_next" not in name:
                yield self.TITLES.get(name, name), count


@dataclass(frozen=True, kw_only=True)
class TrainingSummary(Record):
    """What a training consumed and reached."""

    stage: ClassVar = "train"
    steps: int = 0
    planned_steps: int = 0
    samples: int = 0  # over all ranks and epochs
    samples_per_epoch: int | None = None
    tokens: int = 0  # of the samples, without padding
    words: float | None = None  # of the text; None: not known
    validation: Values = empty(dict)  # held-out loss and accuracies
    deviation: float | None = None  # of the accuracy, of a mean over seeds
    most_frequent_accuracy: float | None = None  # of always giving the most frequent answer
    most_frequent_pair_accuracy: float | None = None
    world_size: int = 1
    device: str | None = None
    checkpoint: str | None = None  # below the folder
    seconds: float = 0.0  # over all starts

    ACCURACY: ClassVar = "masked_lm_accuracy"

    def to_json(self) -> Json:
        """Return the record for a manifest."""
        return {key: value for key, value in super().to_json().items() if key != "seconds"}

    @property
    def accuracy(self) -> float | None:
        """Return the held-out masked-LM accuracy; None if it was not measured."""
        return self.validation.get(self.ACCURACY)

    @property
    def hours(self) -> float:
        """Return the hours of all starts."""
        return self.seconds / 3600

    @property
    def passes(self) -> float | None:
        """Return how often the text was read; None if not known."""
        return self.samples / self.samples_per_epoch if self.samples_per_epoch else None

    @property
    def line(self) -> str:
        """Return the summary line."""
        parts = [f"{self.steps:,} steps", f"{self.tokens:,} tokens"]
        if self.words is not None:
            parts.append(f"{self.words:,.0f} words")
        if self.passes is not None:
            parts.append(f"{self.passes:.1f} passes over the text")
        parts += [
            f"{title} {value:.3f}{f' ({what} {guess:.3f})' if guess is not None else ''}"
            for title, value, what, guess in (
                ("held-out masked-LM accuracy", self.accuracy, "most frequent token", self.most_frequent_accuracy),
                ("bits per byte", self.validation.get(BITS), "", None),
                (
                    "next sentence",
                    self.validation.get("next_sentence_accuracy"),
                    "more frequent class",
                    self.most_frequent_pair_accuracy,
                ),
            )
            if value is not None
        ]
        if self.accuracy is None:
            parts.append("held-out loss not finite")
        return ", ".join(parts)

    def of_seeds(self, others: "Sequence[TrainingSummary]") -> Self:
        """Return this training with the mean accuracy of all `others`, if all have one."""
        values = [one.accuracy for one in others if one.accuracy is not None]
        if len(values) < len(others):
            return self
        mean, deviation = mean_of(values)
        return replace(self, validation=self.validation | {self.ACCURACY: mean}, deviation=deviation)


@dataclass(frozen=True, kw_only=True)
class Score(Record):
    """The score of a model on a dev set, with its baselines.

    `score` and `baseline`, of the same network with random weights, are means over seeds of the
    task's first metric after the last epoch, at the best point of the grid; `majority` is that of
    always giving the most frequent class (or the mean) of train. `best` is the best single run of
    the grid, a biased estimate, as it is a maximum over noise.
    """

    stage: ClassVar = "evaluate"
    task: str
    title: str = ""
    sample: bool = False
    kind: str | None = None
    metric: str = ""
    positive: str | None = None  # the label that precision, recall and F1 of two classes are of
    rows: Counts = empty(dict)  # of train and dev
    score: float = 0.0
    scores: Values = empty(dict)  # by metric
    deviation: float | None = None
    best: float | None = None
    point: Json = empty(dict)  # of the grid
    baseline: float | None = None
    baseline_scores: Values = empty(dict)
    baseline_deviation: float | None = None
    baseline_best: float | None = None
    baseline_point: Json = empty(dict)
    majority: float | None = None
    majority_scores: Values = empty(dict)
    also: dict[str, "Score"] = empty(dict)  # the same model on other dev sets
    runs: list[Json] = empty(list)  # of the grid
    malformed: int = 0  # rows left out
    faults: list[str] = empty(list)  # the first of these
    coverage: Counts = empty(dict)  # characters, and unknown ones
    remarks: list[str] = empty(list)  # what makes the score doubtful
    submission: list[str] = empty(list)  # test sets that were answered
    confusion: dict[str, Counts] = empty(dict)  # answers of the best run, by class
    wrong: list[Json] = empty(list)  # the first of them: texts, label, answer

    @classmethod
    def from_json(cls, figures: Mapping[str, Any]) -> Self:
        """Return the record that any release wrote."""
        if cls is Score and "tables" in figures:
            return PairScore.from_json(figures)  # type: ignore[return-value]
        if cls is Score and "systems" in figures:
            return SystemScore.from_json(figures)  # type: ignore[return-value]
        record = super().from_json(figures)
        shared = {"sample": record.sample, "rows": {"train": record.rows.get("train", 0)}}
        also = {
            name: Score.from_json({"task": name, **shared, **part}) for name, part in figures.get("also", {}).items()
        }
        return replace(record, title=record.title or record.task, also=also)

    @property
    def metric_title(self) -> str:
        """Return the metric, with the label that it is of."""
        of_label = self.positive is not None and self.metric in ("f1", "precision", "recall")
        return f"{self.metric} of {self.positive}" if of_label else self.metric

    def parts(self) -> "Iterator[Score]":
        """Yield the score, and those of the same model on other dev sets."""
        yield self
        yield from self.also.values()

    def of_seeds(self, others: "Sequence[Score]") -> Self:
        """Return the mean over seeds, of which `others` are all, with what this one has alone."""
        mean, deviation = mean_of([one.score for one in others])
        also = {
            name: part.of_seeds([one.also[name] for one in others])
            for name, part in self.also.items()
            if all(name in one.also for one in others)
        }
        return replace(self, score=mean, deviation=deviation, also=self.also | also)


@dataclass(frozen=True, kw_only=True)
class TableScore(Score):
    """A score with a table of one seed."""

    interval: list[float] = empty(list)  # of 95 %

    def of_seeds(self, others: Sequence[Score]) -> Self:
        """Return the score itself: its table is of one seed."""
        return self


@dataclass(frozen=True, kw_only=True)
class PairScore(TableScore):
    """The score on minimal pairs: the mean accuracy of paradigms."""

    ties: int = 0  # counted as right
    tables: Json = empty(dict)  # by paradigm, phenomenon, category
    baseline_tables: Json = empty(dict)
    other_files: list[str] = empty(list)  # without pairs
    model: str = ""
    method: str = ""
    checkpoints: list[Json] = empty(list)  # points of the learning curve


@dataclass(frozen=True, kw_only=True)
class SystemScore(TableScore):
    """The score of a model's vectors, and of other systems."""

    systems: Json = empty(dict)  # by title: scores, intervals, ties at the cut


@dataclass(frozen=True, kw_only=True)
class Conversion(Record):
    """A model in Hugging Face's format, or several of one training, by name."""

    stage: ClassVar = "convert"
    model: str = ""
    parameters: int = 0
    step: int | None = None
    tokens: int | None = None
    words: float | None = None
    averaged: list[int] = empty(list)  # steps of the checkpoints
    learnt: int | None = None  # tokens of the longest sequences; None: not noted
    dtype: str = "fp32"
    added_entries: int = 0
    notes: list[str] = empty(list)
    samples: list[Json] = empty(list)  # masks that it filled in
    largest_logit_difference: float | None = None
    largest_onnx_difference: float | None = None
    int8: Json = empty(dict)  # how near it is to fp32
    checkpoints: dict[str, "Conversion"] = empty(dict)

    @classmethod
    def from_json(cls, figures: Mapping[str, Any]) -> Self:
        """Return the record that any release wrote."""
        record = super().from_json(figures)
        checkpoints = figures.get("checkpoints", {}).items()
        return replace(record, checkpoints={name: Conversion.from_json(one) for name, one in checkpoints})


def conversion_of(model: Path | str) -> Conversion | None:
    """Return what `convert` noted about a model's folder, its own if that made one of several."""
    return noted_of(manifest_of(model), model)


def noted_of(manifest: Manifest | None, model: Path | str) -> Conversion | None:
    """Return what the `manifest` of a model's folder says of it; None if it is not of `convert`."""
    if manifest is None or manifest.stage != Conversion.stage:
        return None
    whole = Conversion.of(manifest)
    return whole.checkpoints.get(Path(model).name, whole)


def record_of(manifest: Manifest) -> Record | None:
    """Return the record of a stage that has one."""
    kinds: tuple[type[Record], ...] = (CorpusCounts, TrainingSummary, Score, Conversion)
    return next((kind.of(manifest) for kind in kinds if kind.stage == manifest.stage), None)
