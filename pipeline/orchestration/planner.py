"""`hours=2`: the words of a command line that a law of the records, the text and this machine choose.

They are settings like those that a user types, of the recipe `planned`, and what a user types counts before them. The
folder of the run keeps them: the same command line has the same plan, also in a later release.
"""

import contextlib
import io
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from model.training import cost, law, probe
from model.training.density import Density, Sample
from pipeline.cli.hydra_patches import NUMBER
from pipeline.cli.overrides import Words, separate_options
from pipeline.common import cores
from pipeline.common.schema import walk_fields
from pipeline.config import PrepareConfig, RunConfig
from pipeline.console import terminal
from pipeline.console.formatting import WARNING
from pipeline.errors import ConfigError
from pipeline.preparation import estimate
from pipeline.preparation.documents import DocumentCounts, DocumentReader
from pipeline.records.estimate import HOUR, rounded
from pipeline.stages import fingerprints
from pipeline.storage import strict_json
from pipeline.storage.atomic import write_text
from pipeline.tokenization import existing_vocabulary

TITLES = "  size  parameters  entries      steps    tokens  readings  bits per byte (interval)"
FILE = "hours.json"  # in the folder of a run: what was chosen
RECIPE, SHAPE = "planned", tuple(probe.shape(1, 1))  # keys of a model's size
# Typed keys of which a plan takes account, or that change nothing; and others that change what a step takes or does.
PLANNED = {"train.steps", "train.batch_size", "train.micro_batch", "train.seed", "train.keep_best"}
PLANNED |= {f"train.model.{key}" for key in ("name", "positions", *SHAPE)}
UNKNOWN = {"processes", "train.processes", "train.start", "prepare.pairs", "prepare.duplicates"}
EVALUATIONS, EVALUATED = 5, 1000  # and the samples of each
REST = 35.0  # seconds of starting the run and its training, of conversion and report
PREPARED = 3.0  # time of the stages before training, in that of counting the words
READ_UP = 0.99  # of the most readings of the records: as often as they
LEAST, LEAST_STEPS = 0.3, 20  # of the hours: what training has at least
LATE = 1.1  # times the hours after which a run ends late
PART = 2**26  # bytes of a file range
LONGEST = 16  # bytes of a token, at most
SHOWN = (0.5, 1.0, 2.0, 4.0, 8.0)  # hours of the table


class Text(NamedTuple):
    """What is known of a corpus."""

    words: int
    bytes: int  # of UTF-8, without white space
    density: Density | None
    whole: bool  # False: the hours do not suffice to read more
    seconds: float  # of counting all of it


@dataclass(frozen=True)
class Typed:
    """What a user has typed of what is chosen, and of what a step takes."""

    sizes: dict[str, Any] = field(default_factory=dict)  # of the model, by key
    entries: int | None = None
    steps: int | None = None
    length: int = probe.LENGTH
    batch: int = probe.BATCH
    trainings: int = 1

    @classmethod
    def of(cls, config: RunConfig, keys: set[str]) -> "Typed":
        """Return what the `keys` of a command line have set in a run."""
        train, prepare, vocab = (config.stages[name] for name in ("train", "prepare", "vocab"))
        shape = (key for key in SHAPE if keys & {f"model.{key}", f"train.model.{key}"})
        return cls(
            sizes={key: getattr(train.model, key) for key in shape},
            entries=existing_vocabulary.count_entries(vocab) if keys & {"vocab.size", "vocab.existing"} else None,
            steps=train.steps if keys & {"steps", "train.steps"} else None,
            length=prepare.sequence_length,
            batch=train.batch_size,
            trainings=max(1, len(config.seeds)),
        )


@dataclass(frozen=True)
class Choice:
    """A size and a vocabulary with what they reach."""

    size: str  # layers x hidden
    entries: int
    parameters: int
    steps: int
    tokens: float
    readings: float
    expected: law.Expected
    share: float = 1.0  # of the time that training has

    def __str__(self) -> str:
        """Return it as a row of `TITLES`."""
        read = f"{self.tokens / 1e6:,.2f} M  {self.readings:8.1f}"
        sizes = f"{self.size:>6}  {self.parameters / 1e6:8.1f} M  {self.entries:7,}"
        return f"{sizes}  {self.steps:9,}  {read:>18}  {self.expected}"


def add_plan(words: Words, compose: Callable[[Words], RunConfig]) -> Words:
    """Return the words of a run with what `hours` chooses before them; the same without `hours`.

    Raises:
        ConfigError: it is not a number, is combined with what it chooses, or cannot be planned here.
        InputError: the corpus cannot be read.
    """
    typed = {word.partition("=")[0].lstrip("+"): word.partition("=")[2] for word in words}
    if typed.get("hours", "null") == "null":
        return words
    chosen = next((key for key in ("recipe", "model", "train.model") if key in typed), None)
    if chosen is not None:
        raise ConfigError("is chosen by hours; leave one of both out", chosen, typed[chosen])
    usual = [word for word in separate_options(words)[1] if word.partition("=")[0].lstrip("+") != "hours"]
    with contextlib.redirect_stderr(io.StringIO()):  # the run itself will say it
        config = compose([f"recipe={RECIPE}", f"model={probe.MODEL}", *usual])
    hours = float_of(typed["hours"])
    if not config.executor.here or "://" in config.workdir or cores.gpus_present():
        raise ConfigError(
            "plans for the processors of this machine alone, whose steps it measures; choose a recipe",
            "hours",
            typed["hours"],
        )
    path = Path(config.workdir, FILE)
    limits, record = Typed.of(config, {*typed}), strict_json.own(path)
    request = {"hours": hours, "corpus": asdict(config.corpus), "typed": asdict(limits), "text": text_of(config)}
    request = json.loads(json.dumps(request))
    before = {key: request[key] for key in ("typed", "text")} | record.get("asked", {})  # earlier releases have neither
    if before != request:
        planned, text = plan(hours, config, limits)
        record = {"asked": request, "words": planned, "said": text, "law": law.table()}
        if not config.dry_run:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(record, indent=1) + "\n")
    terminal.say(record["said"])
    if unknown := list_unplanned(config, {*typed}):
        rate = "train.optimizer" in unknown and "train.optimizer.learning_rate" not in typed
        hint = "; its learning rate is Muon's, set train.optimizer.learning_rate" if rate else ""
        terminal.say(f"warning: bits and hours of a plan are those without {', '.join(unknown)}{hint}", sys.stderr)
    return [*(word for word in record["words"] if word.partition("=")[0] not in typed), *words]


def text_of(config: RunConfig) -> dict[str, str]:
    """Return the fingerprints of a run's corpus, by key."""
    _, sources = fingerprints.fingerprint("prepare", config.stages["prepare"])
    return {key: digest for key, digest in sources.items() if key == "source" or key.startswith("corpus.")}


def list_unplanned(config: RunConfig, keys: set[str]) -> list[str]:
    """Return those of the `keys` of a command line that change the training in a way that no record has."""
    every = [f"train.{key}." for key, role, _ in walk_fields(config.stages["train"]) if role == "setting"]
    typed = {f"train.{key}" if key.startswith("model.") else key for key in keys} - PLANNED
    changing = {one for one in typed if any(key.startswith(f"{one}.") for key in every)}
    return sorted(changing | keys & UNKNOWN)


def float_of(value: str) -> float:
    """Return the hours; ConfigError where they are none."""
    hours = float(value) if NUMBER.fullmatch(value) else 0.0
    if not 0 < hours < float("inf"):
        raise ConfigError("must be a number above 0, such as 2 or 0.5", "hours", value)
    return hours


def plan(hours: float, config: RunConfig, typed: Typed) -> tuple[Words, str]:
    """Return what is chosen as words, and as text with its reasons."""
    prepare = config.stages["prepare"]
    DocumentReader(prepare).reader.splits(PART)  # fails at once where there is nothing to read
    rates = probe.measured_rates(config.cores or cores.available())
    shown = SHOWN if config.dry_run else ()
    most = max((hours, *shown)) * HOUR * max(rate for _, rate in rates)  # words are no shorter than tokens
    text = count(prepare, most)
    best, *others = best_of_sizes(hours, text, rates, 1 - prepare.validation_share, typed)
    seconds = training_seconds(hours, text) * best.share
    lines = [
        f"hours={hours:g}: {probe.ARCHITECTURE} {best.size}; {text.words:,} words{'' if text.whole else ' and more'}, "
        f"counted; {rounded(seconds)} of training at this machine's measured rate",
        f"{'':9}{TITLES}",
        f"{'chosen':9}{best}",
        *(f"{'instead':9}{other}" for other in others),
    ]
    for each in shown:
        then, *_ = best_of_sizes(each, text, rates, 1 - prepare.validation_share, typed)
        lines.append(f"{f'{each:g} h':9}{then}")
    whole = REST + PREPARED * text.seconds + seconds
    late = [f"the run takes about {rounded(whole)}"] if whole > LATE * hours * HOUR else []
    warnings = "".join(f"{WARNING}{one}" for one in (*doubts(best, text), *late))
    layers, hidden = map(int, best.size.split("x"))
    settings: dict[str, Any] = {
        "recipe": RECIPE,
        "model": probe.MODEL,
        "model.name": best.size,
        **{f"model.{key}": value for key, value in probe.shape(layers, hidden).items()},
        "vocab.size": best.entries,
        "steps": best.steps,
        "train.optimizer.learning_rate": round(law.near("rate", hidden), 5),
        "train.evaluate_every": max(1, best.steps // EVALUATIONS),
        "train.save_every": max(1, best.steps // EVALUATIONS),
    }
    return [f"{key}={value}" for key, value in settings.items()], "\n".join(lines) + warnings


def doubts(best: Choice, text: Text) -> Iterator[str]:
    """Yield what the law does not know of a plan."""
    coefficients = law.table()
    if best.tokens < coefficients["least_tokens"]:
        yield (
            f"{best.tokens / 1e6:.2f} million tokens teach how frequent tokens are, and hardly more: the law begins at "
            f"{coefficients['least_tokens'] / 1e6:g}; give it more hours"
        )
    if best.expected.beyond > 2:
        yield f"it reads {best.expected.beyond:.0f} times as much text as any record of the law, or as little"
    if best.size not in coefficients["sizes"]:
        yield f"{best.size} has no record"
    elif best.size == coefficients["sizes"][-1]:
        yield f"{best.size} is the largest size of the records; a larger one may be better"
    if best.readings > READ_UP * coefficients["range"]["readings"]:
        yield "the text is read as often as in any record of the law, and the hours are not used up; more text helps"


def training_seconds(hours: float, text: Text) -> float:
    """Return the seconds that training has."""
    return max(LEAST * hours * HOUR, hours * HOUR - REST - PREPARED * text.seconds)


def best_of_sizes(hours: float, text: Text, rates: probe.Rates, share: float, typed: Typed) -> list[Choice]:
    """Return the best vocabulary of each size, the best size first."""

    def order(one: Choice) -> tuple[float, float]:
        return max(1.0, one.share), one.expected.unbound

    choices = sorted(candidates(hours, text, rates, share, typed), key=order, reverse=True)
    return sorted({one.size: one for one in choices}.values(), key=order)


def candidates(hours: float, text: Text, rates: probe.Rates, share: float, typed: Typed = Typed()) -> Iterator[Choice]:
    """Yield what each size reaches of a text, of which `share` is trained on, with vocabularies tried on as little."""
    coefficients = law.table()
    least = coefficients["text_of_entries"]
    tried = [entries for entries in least if entries == min(least) or least[entries] <= text.bytes]
    shapes = (map(int, size.split("x")) for size in coefficients["sizes"])
    sizes = [(typed.sizes.get("layers", layers), typed.sizes.get("hidden", hidden)) for layers, hidden in shapes]
    step, passes = typed.length * typed.batch, EVALUATIONS * EVALUATED * typed.length / 3  # forward passes alone
    for layers, hidden in dict.fromkeys(sizes):
        for entries in tried if typed.entries is None else [typed.entries]:
            bytes_a_token = law.bytes_a_token(entries, text.density)
            model = replace(probe.model_of(layers, hidden, entries), **typed.sizes)
            rate = probe.rate_at(rates, probe.operations(model, typed.length))
            once = text.bytes * share
            most = coefficients["range"]["readings"] * once / bytes_a_token  # more were not measured
            room = max(rate * training_seconds(hours, text) / typed.trainings - passes * coefficients["fill"], 1.0)
            tokens = (typed.steps or 0) * step * coefficients["fill"] or min(most, max(room, step * LEAST_STEPS))
            steps = typed.steps or max(1, round(tokens / step / coefficients["fill"]))
            readings, parameters = tokens * bytes_a_token / once, cost.parameters(model)
            inner = law.outside_embeddings(parameters, entries, hidden)
            expected = law.expect(inner, once, readings, entries, text.density)
            yield Choice(f"{layers}x{hidden}", entries, parameters, steps, tokens, readings, expected, tokens / room)


def count(config: PrepareConfig, most: float) -> Text:
    """Count the words of a corpus as `prepare` does, each document once, up to about `most`.

    Raises:
        InputError: it cannot be read, or has none.
    """
    began = time.perf_counter()
    words, size, sample, whole = 0, 0, Sample(), True
    for document in DocumentReader(config).distinct(PART, DocumentCounts()):
        parts = document.text.split()
        words += len(parts)
        size += sum(len(part.encode(errors="replace")) for part in parts)
        sample.add(document.text, document.hash)
        if not (whole := max(words, size / LONGEST) <= most):
            break
    if not words:
        raise ConfigError("has no words to plan for", "corpus.path", config.corpus.path)
    seconds = math.ceil(time.perf_counter() - began)  # the same of the same text, if it is small
    expected = None if whole else estimate.estimate_preparation(config)
    if expected and expected.seconds:  # of all of the text
        seconds = max(seconds, math.ceil(expected.seconds / PREPARED))
    return Text(words, size, sample.density(), whole, seconds)
