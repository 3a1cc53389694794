"""Minimal pairs scored by models as they are: one, or all checkpoints of a training.

Of two sentences, a model is to find the good one more likely: BLiMP (Warstadt et al. 2020) and sets
like it. Nothing is trained. Each model's scores are a file as soon as they are there, so an evaluation
that was cut off, or a training that has new checkpoints, continues from them.

Shapes: N pairs, P paradigms, R resamples.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from model.finetuning.features import Ids, frame, texts
from pipeline.common import counter_rng
from pipeline.common.counter_rng import Bools, Floats, Ints
from pipeline.config import EvaluateConfig, TaskConfig
from pipeline.console import terminal
from pipeline.console.bars import Bar
from pipeline.console.formatting import pluralize
from pipeline.errors import InputError, named
from pipeline.evaluation import table_files
from pipeline.evaluation.examples import pair_files, texts_of
from pipeline.evaluation.grid_search import FAULTS, PRETRAINED, RANDOM, RUNS, Evaluation, Record
from pipeline.evaluation.table_files import Table
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Manifest
from pipeline.records.metrics import Conversion, PairScore, conversion_of
from pipeline.stages import fingerprints
from pipeline.storage import strict_json
from pipeline.storage.atomic import write_text
from pipeline.text.clean import clean
from pipeline.tokenization.coverage import Coverage
from pipeline.tokenization.wordpiece import WordPiece

if TYPE_CHECKING:
    from model.training.initial_weights import InitialWeights

SCORES, PREDICTIONS = "scores.tsv", "predictions.json"
CHANCE = 0.5
RESAMPLES = 1000  # of the bootstrap
COVERAGE = 0.95  # of its intervals


@dataclass(frozen=True)
class Pairs:
    """The pairs of a task, N of them, in the order of the files."""

    good: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    contexts: list[tuple[str, str]] = field(default_factory=list)  # of each; "": none
    paradigms: list[str] = field(default_factory=list)
    groups: dict[str, tuple[str, str]] = field(default_factory=dict)  # of a paradigm: its phenomenon and its category
    malformed: list[str] = field(default_factory=list)  # rows left out: where and why
    other_files: list[str] = field(default_factory=list)  # files that hold no pairs
    counts: Counter[str] = field(default_factory=Counter)  # of good rows, by paradigm

    def __len__(self) -> int:
        return len(self.good)


def read_pairs(data: str, task: TaskConfig, rows: int | None = None) -> Pairs:
    """Read the pairs of a task, or the first `rows` of each paradigm; files without its columns are left out.

    Raises:
        InputError: no file matches, one is broken, or has only some of the columns.
    """
    files = pair_files(data, task)
    pairs = Pairs()
    wanted = [name for each in (*task.columns, *task.contexts) for name in table_files.FIELD.findall(each) or [each]]
    seen: dict[str, str] = {}
    for place, content in files:
        table = table_files.parse(place, content, task.header, task.key, wanted)
        if {*wanted}.isdisjoint(table.known):
            pairs.other_files.append(place)
            seen[place] = ", ".join(table.known)
        else:
            _add(pairs, table, task, rows)
    if not len(pairs):
        fault = pairs.malformed or [f"{place}: columns {names}" for place, names in seen.items()]
        raise InputError(f"no pair in {task.dev}, columns {', '.join(wanted)}; {fault[0]}", "data", data)
    return pairs


def _add(pairs: Pairs, table: Table, task: TaskConfig, most: int | None) -> None:
    """Add the rows of a file, up to `most` of a paradigm; those without one of the two sentences are malformed."""

    def column(name: str) -> list[str]:
        return [text.strip() for text in texts_of(table, name)]

    def optional(name: str) -> list[str]:
        known = name and name in table.known  # pandas leaves the name of its index empty
        return column(name) if known else [""] * len(table.rows)

    stem = PurePosixPath(table.place.rpartition(":")[2]).stem
    good, bad = (column(name) for name in task.columns)
    before = [column(name) for name in [*task.contexts, *task.contexts][:2]]
    contexts = zip(*before, strict=True) if before else [("", "")] * len(table.rows)
    paradigms = [name or stem for name in optional(task.paradigm)]
    groups = zip(optional(task.phenomenon), optional(task.category), strict=True)
    pairs.malformed.extend(table.malformed)
    rows = zip(good, bad, contexts, paradigms, groups, table.lines, strict=True)
    for one, other, context, paradigm, group, line in rows:
        if not clean(one) or not clean(other):
            pairs.malformed.append(f"{table.place}, line {line}: a sentence is empty")
            continue
        pairs.counts[paradigm] += 1
        if most is not None and pairs.counts[paradigm] > most:
            continue
        pairs.good.append(one)
        pairs.bad.append(other)
        pairs.contexts.append(context)
        pairs.paradigms.append(paradigm)
        pairs.groups.setdefault(paradigm, group)


@dataclass(frozen=True)
class Candidate:
    """A model to score, and what says how much it had been trained."""

    folder: Path
    about: Conversion | checkpoint_folder.State

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return self.folder.name


def candidates(config: EvaluateConfig) -> list[Candidate]:
    """Return the models of `config.pretrained`, in the order of their training.

    Raises:
        InputError: there is none.
    """
    from model.huggingface import bert_format

    place = Path(config.pretrained)
    if config.checkpoints is None:
        bert_format.read_config(place)  # says where a model may be instead
        return [_converted(place)]
    folders = [path.parent for path in sorted(place.glob("*/config.json"))]
    models = [_converted(folder) for folder in folders] or _checkpoints(place)
    if not models:
        raise InputError(
            "neither a train folder with checkpoints nor a folder of models, each in a folder of its own; "
            f"{named('checkpoints')}=null takes one model",
            "pretrained",
            place,
        )
    return sorted(models, key=lambda one: (one.about.words or 0, one.about.step or 0, _number(one.name)))


def _converted(folder: Path) -> Candidate:
    """Return the model in a Hugging Face folder; `convert` has written how much it was trained."""
    return Candidate(folder, conversion_of(folder) or Conversion())


def _checkpoints(place: Path) -> list[Candidate]:
    """Return the checkpoints of a train folder; of several trainings there, the finished one's."""
    if not (place / checkpoint_folder.RUNS).is_dir():
        return []
    newest, _ = checkpoint_folder.locate(place)
    folders = checkpoint_folder.steps(newest.parent).values()
    return [Candidate(folder, checkpoint_folder.read_state(folder)) for folder in folders]


def _number(name: str) -> float:
    """Return the last number in a name, as it is in chck_0.5M; 0 where there is none."""
    numbers = re.findall(r"\d+(?:\.\d+)?", name)
    return float(numbers[-1]) if numbers else 0


def vocabulary_of(config: EvaluateConfig, folder: Path) -> WordPiece:
    """Return the tokenizer of a model; of a checkpoint that of the training.

    Raises:
        InputError: it is not there.
    """
    if (folder / "config.json").is_file():
        return WordPiece.load(folder)
    made = Manifest.read(config.pretrained, of_input=True)
    known = made.config["data"]["vocab"] if made is not None and made.stage == "train" else None
    vocab = Path(known or Path(config.pretrained).parent / "vocab")
    if not vocab.exists():
        raise InputError(
            f"the vocabulary of this training is not in {vocab}; convert the checkpoints and set pretrained to the "
            "folder of the results",
            "pretrained",
            config.pretrained,
            path=vocab,
        )
    return WordPiece.load(vocab)


def evaluate(config: EvaluateConfig, out: Path) -> Evaluation:
    """Score the models; return the score, the summary line, and other files by name.

    The files are for others: each pair's scores by the last model, and the sentences that it finds
    more likely, as the BabyLM pipeline collects them.

    Raises:
        InputError: a file of the task or a model lacks something.
    """
    folder = out / RUNS
    folder.mkdir(exist_ok=True)
    models = candidates(config)
    pairs = read_pairs(config.data, config.task, config.maximum_rows)
    with Bar(config.task.name, 2 * len(pairs) * (len(models) + config.baseline), "sentences") as bar:
        done = {}
        for model in models:
            try:
                done[model.name] = _scored(config, model, PRETRAINED, pairs, folder, bar)
            except InputError:
                if model.folder.exists() or model is models[-1]:
                    raise
                terminal.say(f"{model.name}: left out; the training has removed it since")
        models = [model for model in models if model.name in done]
        last = models[-1]
        baseline = _scored(config, last, RANDOM, pairs, folder, bar) if config.baseline else None
    keep = {file_of(folder, one, PRETRAINED) for one in models}
    keep |= {file_of(folder, last, RANDOM)} if config.baseline else set()
    for path in folder.iterdir():
        if path.with_suffix("") not in keep:
            path.unlink()
    found, scores = account(config, models, pairs, done, baseline), done[last.name]
    files = {SCORES: scores_table(pairs, scores), PREDICTIONS: predictions(config.task, pairs, scores)}
    return found, describe(found, config.pretrained), files


def scores_table(pairs: Pairs, scores: Floats) -> str:
    """Return the log-likelihoods of each pair as TSV, in the order of the files."""
    rows = zip(pairs.paradigms, scores.tolist(), strict=True)
    lines = (f"{' '.join(name.split())}\t{good:.6f}\t{bad:.6f}" for name, (good, bad) in rows)
    return "\n".join(("paradigm\tgood\tbad", *lines, ""))


def predictions(task: TaskConfig, pairs: Pairs, scores: Floats) -> str:
    """Return the sentence chosen of each pair as JSON, by paradigm, as the BabyLM pipeline does."""
    sentences: dict[str, dict[str, list[dict[str, str]]]] = {}
    right = is_right(scores)
    rows = zip(pairs.paradigms, pairs.good, pairs.bad, pairs.contexts, right, strict=True)
    for paradigm, good, bad, contexts, chosen in rows:
        name = paradigm
        if task.name == "comps":  # its files are named otherwise there
            name = paradigm.removeprefix("comps_").replace("-", "_")
        listed = sentences.setdefault(name, {"predictions": []})["predictions"]
        text, context = (good, contexts[0]) if chosen else (bad, contexts[1])
        if any(contexts):  # what was scored continues the context; if these differ, it is needed
            text = f"{context if len(task.contexts) > 1 else ''} {text}"
        listed.append({"id": f"{name}_{len(listed)}", "pred": text})
    return json.dumps(sentences, ensure_ascii=False) + "\n"


def describe(found: PairScore, pretrained: str) -> str:
    """Return one line: the score, what to compare it with, and which model was scored."""
    random = "" if found.baseline is None else f"random initialisation {found.baseline:.3f}, "
    low, high = found.interval
    parts = [
        f"{found.title} {found.metric} {found.score:.3f} [{low:.3f}, {high:.3f}] of "
        f"{pluralize(len(found.tables['paradigms']), 'paradigm')} ({random}chance {CHANCE}) of "
        f"{pretrained}"
    ]
    if found.checkpoints:
        parts.append(f"{pluralize(len(found.checkpoints), 'checkpoint')}, last {found.model}")
    if found.ties:
        parts.append(f"{pluralize(found.ties, 'tie')} counted as right")
    if found.malformed:
        parts.append(f"{found.malformed} malformed rows left out, {found.faults[0]}")
    if found.other_files:
        parts.append(f"{pluralize(len(found.other_files), 'file')} without pairs left out")
    return f"{', '.join(parts)}; {Coverage.of(found.coverage).line}"


def method_of(config: EvaluateConfig, model: Candidate) -> str:
    """Return how a model scores sentences: `score`, unless it is causal."""
    from model.training import initial_weights

    return "likelihood" if initial_weights.size_of(model.folder).causal else config.score


def file_of(folder: Path, model: Candidate, start: str) -> Path:
    """Return where the scores of a model are, without the ending."""
    return folder / (RANDOM if start == RANDOM else f"{PRETRAINED}-{model.name}".replace(".", "_"))


def _scored(config: EvaluateConfig, model: Candidate, start: str, pairs: Pairs, folder: Path, bar: Any) -> Floats:
    """Return the scores `(N, 2)` of the good and the bad sentences by one model."""
    alone = replace(config, pretrained=str(model.folder), checkpoints=None, baseline=start == RANDOM)
    key = fingerprints.fingerprint("evaluate", alone)[0]
    path = file_of(folder, model, start)
    known, scores = path.with_suffix(".json"), path.with_suffix(".npy")
    if scores.is_file() and strict_json.own(known).get("key") == key:
        with scores.open("rb") as file:
            done = np.asarray(np.lib.format.read_array(file, allow_pickle=False))
        if len(done) == len(pairs):  # another release may take another row for malformed
            bar.update(2 * len(pairs))
            return done
    known.unlink(missing_ok=True)
    values = scores_of(config, model, start, pairs, bar.update)
    np.save(scores, values)
    write_text(known, json.dumps({"key": key, "model": model.name, "start": start}) + "\n")
    return values


def scores_of(config: EvaluateConfig, model: Candidate, start: str, pairs: Pairs, on_sentences: Any) -> Floats:
    """Return the scores `(N, 2)` of one model, or of one like it with random weights.

    Raises:
        InputError: it has no masked-LM head, or a sentence is longer than it can read.
    """
    import torch

    from model.encoders.architectures import build_model
    from model.encoders.device import device_of
    from model.finetuning.sentence_scores import SentenceScorer
    from model.training import initial_weights, provenance

    if config.threads is not None:
        torch.set_num_threads(config.threads)
    torch.set_flush_denormal(True)
    wordpiece = vocabulary_of(config, model.folder)
    source = initial_weights.read(model.folder)
    _check(source, wordpiece, model)
    torch.manual_seed(int(counter_rng.key(config.seeds[0], "initialise") >> np.uint64(1)))
    network = build_model(source.config)
    if start == PRETRAINED:
        network.load_state_dict(source.state)
    sequences, first = framed(wordpiece, pairs)
    longest = max(map(len, sequences))
    known, positions = source.learnt, source.config.positions
    if longest > min(max(config.sequence_length or 0, known), positions):
        cure = "take another model" if longest > positions else f"set {named('sequence_length')}={longest} to go beyond"
        problem = f"a sentence of {config.task.name} has {longest} tokens, the model has learnt {known} of {positions}"
        raise InputError(f"{problem}; {cure}", "pretrained", path=model.folder)
    for line in provenance.beyond(longest, known) if start == PRETRAINED else ():
        terminal.say(f"{model.name}: {line}")
    scorer = SentenceScorer(network, wordpiece.mask, device_of())
    goes_on = None
    if config.score == "word_l2r" and not source.config.causal:
        goes_on = continuations(wordpiece, pairs, first)
    return scorer.scores(sequences, first, goes_on, on_sentences).reshape(2, -1).T


def framed(wordpiece: WordPiece, pairs: Pairs) -> tuple[list[Ids], Ids]:
    """Return [CLS] context sentence [SEP] of all good, then all bad sentences; where these start.

    A space divides context and sentence. No token spans both, but in a byte-level BPE the space is
    part of the sentence's first token, as it is within a text.
    """
    sides = _sides(pairs)
    parts = texts(wordpiece, _in_context(wordpiece, pairs))
    before = texts(wordpiece, sides) if any(sides) else [np.zeros(0, np.int64)] * len(parts)
    first = 1 + np.array([len(part) for part in before], np.int64)
    whole = [np.concatenate([a, b]) for a, b in zip(before, parts, strict=True)]
    return [frame(wordpiece, ids, None)[0] for ids in whole], first


def continuations(wordpiece: WordPiece, pairs: Pairs, first: Ids) -> list[Bools]:
    """Return whether the tokens of each sequence of `framed` continue a word.

    Raises:
        InputError: the tokenizer has no words.
    """
    if not wordpiece.divides_words:
        problem = "the tokenizer of this model does not divide text into words before it divides these into tokens"
        raise InputError(f"{problem}; set score=pll", "score", "word_l2r")
    parts = wordpiece.word_marks(_in_context(wordpiece, pairs))
    return [np.pad(part, (start, 1)) for part, start in zip(parts, first.tolist(), strict=True)]


def _sides(pairs: Pairs) -> list[str]:
    """Return the contexts of all good, then all bad sentences."""
    return [side for pair in zip(*pairs.contexts, strict=True) for side in pair]


def _in_context(wordpiece: WordPiece, pairs: Pairs) -> list[str]:
    """Return all good, then all bad sentences as they are after their contexts."""
    return wordpiece.within_text([*pairs.good, *pairs.bad], map(bool, _sides(pairs)))


def _check(source: "InitialWeights", wordpiece: WordPiece, model: Candidate) -> None:
    """Raise where a model cannot say how likely a token is, or has another vocabulary."""
    from model.huggingface import bert_format

    if "masked_head" in bert_format.initialised_parts(source.notes):
        problem = "it has no masked-LM head, which scores sentences; take a pre-trained model, not a fine-tuned one"
        raise InputError(problem, "pretrained", path=model.folder)
    if source.tokenizer not in (None, wordpiece.sha256):
        problem = "trained with another vocabulary than that which is there now"
        raise InputError(problem, "pretrained", path=model.folder)


def account(
    config: EvaluateConfig, models: list[Candidate], pairs: Pairs, done: dict[str, Floats], baseline: Floats | None
) -> PairScore:
    """Return the account of a task, by the last of the models, and the learning curve of all."""
    task, last = config.task, models[-1]
    every = {name: accuracies(pairs, is_right(scores), config.seeds[0]) for name, scores in done.items()}
    tables, scores = every[last.name], done[last.name]
    random = {} if baseline is None else accuracies(pairs, is_right(baseline), config.seeds[0])
    wordpiece = vocabulary_of(config, last.folder)
    wordpiece.encode([*pairs.good, *pairs.bad])
    return PairScore(
        task=task.name,
        title=task.submission or task.folder or task.name,
        kind=task.kind,
        sample=task.sample,
        metric=task.metrics[0],
        rows={"dev": len(pairs)},
        score=tables["macro"]["accuracy"],
        interval=tables["macro"]["interval"],
        scores={name: tables[name]["accuracy"] for name in ("macro", "micro")},
        ties=int((scores[:, 0] == scores[:, 1]).sum()),
        tables=tables,
        baseline=random["macro"]["accuracy"] if random else None,
        baseline_tables=random,
        majority=CHANCE,
        malformed=len(pairs.malformed),
        faults=pairs.malformed[:FAULTS],
        other_files=pairs.other_files,
        coverage=wordpiece.coverage.counts(),
        model=last.name,
        method=method_of(config, last),
        checkpoints=[] if config.checkpoints is None else [_point(one, every[one.name]) for one in models],
    )


def _point(model: Candidate, tables: Record) -> Record:
    """Return what the learning curve shows of a checkpoint."""
    return {
        "name": model.name,
        "step": model.about.step,
        "tokens": model.about.tokens,
        "words": model.about.words,
        "score": tables["macro"]["accuracy"],
        "interval": tables["macro"]["interval"],
        "phenomena": {name: one["accuracy"] for name, one in tables["phenomena"].items()},
    }


def is_right(scores: Floats) -> Bools:
    """Return whether the good sentence wins `(N,)`, by scores `(N, 2)` of the good and the bad one.

    A tie counts as right, as in the official BabyLM pipeline, which takes the first of the
    sentences with the greatest score, and has the good one first. How many there are is counted.
    """
    return np.asarray(scores[:, 0] >= scores[:, 1])


def accuracies(pairs: Pairs, right: Bools, seed: int) -> dict[str, Any]:
    """Return the accuracy of each paradigm, phenomenon and category, and over all, as JSON.

    Groups of paradigms, and `macro`, are means over paradigms; `micro` is over pairs. Intervals
    are percentiles of a bootstrap of pairs within paradigms.
    """
    names = list(dict.fromkeys(pairs.paradigms))
    index = {name: number for number, name in enumerate(names)}
    paradigm = np.array([index[name] for name in pairs.paradigms])
    counts = np.bincount(paradigm)
    draws = np.stack([_resampled(right[paradigm == number], seed, name) for name, number in index.items()])  # (P, R)
    means = np.bincount(paradigm, right) / counts
    groups = {"paradigms": {name: [number] for name, number in index.items()}}
    groups |= {kind: _members(names, pairs, place) for place, kind in enumerate(("phenomena", "categories"))}
    tables = {
        kind: {group: _entry(means[members], draws[members], counts[members]) for group, members in found.items()}
        for kind, found in groups.items()
    }
    for name, entry in tables["paradigms"].items():
        entry["phenomenon"], entry["category"] = pairs.groups[name]
    micro = counts @ draws / counts.sum()
    return {
        "macro": _entry(means, draws, counts),
        "micro": {"accuracy": float(right.mean()), "interval": percentile_interval(micro), "pairs": len(right)},
        **tables,
    }


def _members(names: list[str], pairs: Pairs, place: int) -> dict[str, list[int]]:
    """Return the numbers of the paradigms in each group, by its name."""
    members: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        if group := pairs.groups[name][place]:
            members.setdefault(group, []).append(number)
    return dict(sorted(members.items()))


def _resampled(right: Bools, seed: int, name: str) -> Floats:
    """Return the accuracies `(R,)` of resamples of the pairs of a paradigm."""
    key = counter_rng.key(seed, "bootstrap", name)
    return np.concatenate([right[chosen].mean(1) for chosen in resamples(key, len(right))])


def resamples(key: np.uint64, count: int) -> Iterator[Ints]:
    """Yield the places of `count` values in resamples of them `(r, count)`, as many resamples as are drawn at once."""
    block = max(1, 2**20 // count)
    for start in range(0, RESAMPLES, block):
        stop = min(start + block, RESAMPLES)
        yield counter_rng.integers(key, np.arange(start * count, stop * count), count).reshape(-1, count)


def _entry(means: Floats, draws: Floats, counts: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return the mean over some paradigms, with its interval, as JSON."""
    return {"accuracy": float(means.mean()), "interval": percentile_interval(draws.mean(0)), "pairs": int(counts.sum())}


def percentile_interval(draws: Floats | list[float]) -> list[float]:
    """Return the percentiles of resamples between which `COVERAGE` of them lie."""
    side = (1 - COVERAGE) / 2
    return [float(value) for value in np.quantile(draws, (side, 1 - side))]
