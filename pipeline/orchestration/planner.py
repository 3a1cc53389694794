"""`hours=2`: the words of a command line that a law of the records, the text and this machine choose.

They are settings like those that a user types, of the recipe `planned`, and what a user types counts before them. The
folder of the run keeps them: the same command line has the same plan, also in a later release.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from model.training import cost, law, probe
from pipeline.cli.hydra_patches import NUMBER
from pipeline.cli.overrides import Words
from pipeline.common import cores
from pipeline.config import PrepareConfig, RunConfig
from pipeline.console import terminal
from pipeline.console.formatting import WARNING
from pipeline.errors import ConfigError
from pipeline.preparation.documents import DocumentCounts, DocumentReader
from pipeline.records.estimate import HOUR, rounded
from pipeline.storage import strict_json
from pipeline.storage.atomic import write_text

TITLES = "  size  parameters  entries      steps    tokens  readings  bits per byte (interval)"
FILE = "hours.json"  # in the folder of a run: what was chosen
RECIPE, STEP = "planned", probe.LENGTH * probe.BATCH  # tokens of a step: as in the records
EVALUATIONS, EVALUATED = 5, 1000  # and the samples of each
REST = 35.0  # seconds of starting the run and its training, of conversion and report
PREPARED = 3.0  # time of the stages before training, in that of counting the words
READ_UP = 0.99  # of the most readings of the records: as often as they
LEAST = 0.3  # of the hours: what training has at least
PART = 2**26  # bytes of a file range
REPEATED = 0.3  # least density, as of text that repeats itself
SHOWN = (0.5, 1.0, 2.0, 4.0, 8.0)  # hours of the table


class Text(NamedTuple):
    """What is known of a corpus."""

    words: int
    bytes: int  # of UTF-8, without white space
    dense: float  # how much a byte says, next to one of the law's usual text
    whole: bool  # False: the hours do not suffice to read more
    seconds: float  # of counting


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
    chosen = next((key for key in ("recipe", "model") if key in typed), None)
    if chosen is not None:
        raise ConfigError("is chosen by hours; leave one of both out", chosen, typed[chosen])
    usual = [word for word in words if word.partition("=")[0] != "hours"]
    config = compose([f"recipe={RECIPE}", *usual])
    hours = float_of(typed["hours"])
    if not config.executor.here or "://" in config.workdir or cores.gpus_present():
        raise ConfigError(
            "plans for the processors of this machine alone, whose steps it measures; choose a recipe", "hours", hours
        )
    kept = Path(config.workdir, FILE)
    asked = {"hours": hours, "corpus": json.loads(json.dumps(asdict(config.corpus)))}
    found = strict_json.own(kept)
    if found.get("asked") != asked:
        made, text = plan(hours, config)
        found = {"asked": asked, "words": made, "said": text, "law": law.table()}
        if not config.dry_run:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_text(kept, json.dumps(found, indent=1) + "\n")
    terminal.say(found["said"])
    typed |= {"steps": ""} if {"train.epochs", "train.words"} & typed.keys() else {}  # they say how many
    return [*(word for word in found["words"] if word.partition("=")[0] not in typed), *words]


def float_of(value: str) -> float:
    """Return the hours; ConfigError where they are none."""
    hours = float(value) if NUMBER.fullmatch(value) else 0.0
    if not 0 < hours < float("inf"):
        raise ConfigError("must be a number above 0, such as 2 or 0.5", "hours", value)
    return hours


def plan(hours: float, config: RunConfig) -> tuple[Words, str]:
    """Return what is chosen as words, and as text with its reasons."""
    DocumentReader(config.stages["prepare"]).reader.splits(PART)  # fails at once where there is nothing to read
    rates = probe.measured_rates(config.cores or cores.available())
    fastest = max(rate for _, rate in rates)
    most = max(hours, *SHOWN) * HOUR * fastest  # words are no shorter than tokens
    text = count(config.stages["prepare"], most)
    share = 1 - config.stages["prepare"].validation_share
    choices = sorted(candidates(hours, text, rates, share), key=lambda each: each.expected.bits)
    best = choices[0]
    sizes = {one.size: one for one in reversed(choices)}  # the best of each
    lines = [
        f"hours={hours:g}: {probe.ARCHITECTURE} {best.size}; {text.words:,} words{'' if text.whole else ' and more'}, "
        f"counted; {rounded(training_seconds(hours, text))} of training at this machine's measured rate",
        f"{'':9}{TITLES}",
        f"{'chosen':9}{best}",
        *(f"{'instead':9}{other}" for size, other in sizes.items() if size != best.size),
    ]
    for each in SHOWN if config.dry_run else ():
        then = min(candidates(each, text, rates, share), key=lambda one: one.expected.bits)
        lines.append(f"{f'{each:g} h':9}{then}")
    warnings = "".join(f"{WARNING}{one}" for one in doubts(best, text))
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
    known = law.table()
    if best.tokens < known["least_tokens"]:
        yield (
            f"{best.tokens / 1e6:.2f} million tokens teach how frequent tokens are, and hardly more: the law begins at "
            f"{known['least_tokens'] / 1e6:g}; give it more hours"
        )
    if best.expected.beyond > 2:
        yield f"it reads {best.expected.beyond:.0f} times as much text as any record of the law, or as little"
    if best.size == known["sizes"][-1]:
        yield f"{best.size} is the largest size of the records; a larger one may be better"
    if best.readings > READ_UP * known["range"]["readings"]:
        yield "the text is read as often as in any record of the law, and the hours are not used up; more text helps"


def training_seconds(hours: float, text: Text) -> float:
    """Return the seconds that training has."""
    return max(LEAST * hours * HOUR, hours * HOUR - REST - PREPARED * text.seconds)


def candidates(hours: float, text: Text, rates: probe.Rates, share: float) -> Iterator[Choice]:
    """Yield what each size reaches of a text, of which `share` is trained on, with vocabularies tried on as little."""
    known = law.table()
    least = known["text_of_entries"]
    tried = [entries for entries in least if entries == min(least) or least[entries] <= text.bytes]
    for size in known["sizes"]:
        for entries in tried:
            bytes_a_token = known["bytes_a_token"][entries] / text.dense
            layers, hidden = map(int, size.split("x"))
            model = probe.model_of(layers, hidden, entries)
            rate = probe.rate_at(rates, probe.operations(model, probe.LENGTH))
            spent = EVALUATIONS * EVALUATED * probe.LENGTH * known["fill"] / 3  # forward passes alone
            once = text.bytes * share
            most = known["range"]["readings"] * once / bytes_a_token  # more were not measured
            tokens = min(most, max(rate * training_seconds(hours, text) - spent, STEP * 20))
            readings, parameters = tokens * bytes_a_token / once, cost.parameters(model)
            steps = max(1, round(tokens / STEP / known["fill"]))
            inner = law.outside_embeddings(parameters, entries, hidden)
            expected = law.expect(inner, once, readings, entries, text.dense)
            yield Choice(size, entries, parameters, steps, tokens, readings, expected)


def count(config: PrepareConfig, most: float) -> Text:
    """Count the words of a corpus as `prepare` does, each document once, up to about `most`.

    Raises:
        InputError: it cannot be read, or has none.
    """
    began = time.perf_counter()
    words, size, sample = 0, 0, law.Sample()
    for document in DocumentReader(config).distinct(PART, DocumentCounts()):
        parts = document.text.split()
        words += len(parts)
        size += sum(len(part.encode(errors="replace")) for part in parts)
        sample.add(document.text)
        if words > most:
            break
    if not words:
        raise ConfigError("has no words to plan for", "corpus.path", config.corpus.path)
    dense = min(max(sample.density() / law.table()["density"], REPEATED), 1 / REPEATED)
    return Text(words, size, dense, words <= most, time.perf_counter() - began)
