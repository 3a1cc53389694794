"""Retrieval and similarity: vectors of a model as it is, next to BM25, its token vectors, and other models.

Nothing is trained. What a system has found is kept in `runs`, so that an interrupted evaluation resumes.
Intervals are of a bootstrap of queries, or of pairs of texts, the same draws for every system.

Shapes: N queries or pairs.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from model.huggingface import sentence_model
from pipeline.common import counter_rng
from pipeline.common.counter_rng import Floats, Ints
from pipeline.common.schema import check
from pipeline.config import RETRIEVAL, SIMILARITY, EmbedConfig, EvaluateConfig
from pipeline.console.bars import Bar
from pipeline.console.formatting import pluralize
from pipeline.evaluation import beir, exact_search, examples
from pipeline.evaluation.grid_search import FAULTS, RUNS, Evaluation
from pipeline.evaluation.sentence_encoder import SentenceEncoder
from pipeline.evaluation.zero_shot import percentile_interval, resamples
from pipeline.records.metrics import BY_WORDS, SystemScore
from pipeline.stages import fingerprints
from pipeline.storage import strict_json
from pipeline.storage.atomic import write_text
from pipeline.tokenization.coverage import Coverage

MODEL, BEFORE, RANDOM, BAG, BM25 = "model", "before", "random", "bag", "bm25"
TITLES = {MODEL: "this model", BEFORE: "before", RANDOM: "random initialisation", BAG: "mean of its token vectors"}
TITLES |= {BM25: BY_WORDS}
OWN = "without the document of its own id, as in BEIR"

Comparison = Callable[[exact_search.System, str], "Compared"]


@dataclass(frozen=True)
class Compared:
    """What one system made of a task: the metrics as a function of the rows that count, and what they are made of."""

    measure: Callable[[Ints], dict[str, float]]
    ties: int = 0  # at the cut
    rows: list[Any] = field(default_factory=list)  # of the file that says what was found

    def scores(self, count: int, seed: int) -> dict[str, Any]:
        """Return the metrics of all rows, with the interval of each by a bootstrap of the rows."""
        key = counter_rng.key(seed, "bootstrap")
        draws = [self.measure(rows) for block in resamples(key, count) for rows in block]
        intervals = {name: percentile_interval([one[name] for one in draws]) for name in draws[0]}
        return {"scores": self.measure(np.arange(count)), "ties": self.ties, "intervals": intervals}


def evaluate(config: EvaluateConfig, out: Path) -> Evaluation:
    """Score the model and what it is compared with; return the score, the summary line, and other files by name.

    Raises:
        ConfigError: BM25 is not installed, or a model makes vectors in a way that is not supported.
        InputError: a file of the task or a model is missing or malformed.
    """
    if config.threads is not None:
        import torch

        torch.set_num_threads(config.threads)
    compare, rows, remarks, faults = {RETRIEVAL: retrieval, SIMILARITY: similarity}[config.task.kind](config)
    made = measure_systems(config, compare, rows["dev"], out / RUNS)
    scores = {name: one["scores"] for name, one in made.items()}
    files = {f"{name}.json": json.dumps(one["rows"], ensure_ascii=False) + "\n" for name, one in made.items()}
    coverage = Coverage(**made[MODEL]["coverage"])
    task, metric, own = config.task, config.task.metrics[0], scores[MODEL]
    score = SystemScore(
        task=task.name,
        title=task.submission or task.name,
        kind=task.kind,
        metric=metric,
        rows=rows,
        score=own["scores"][metric],
        scores=own["scores"],
        interval=own["intervals"][metric],
        baseline=scores[RANDOM]["scores"][metric] if RANDOM in scores else None,
        systems={TITLES[name]: one for name, one in scores.items()},
        coverage=coverage.counts(),
        malformed=len(faults),
        faults=faults[:FAULTS],
        remarks=remarks,
    )
    return score, describe(score, config.pretrained, coverage), files


def measure_systems(config: EvaluateConfig, compare: Comparison, count: int, kept: Path) -> dict[str, Any]:
    """Return what each system made of the task, by name; what an interrupted evaluation kept is taken."""
    key, made = fingerprints.fingerprint("evaluate", config)[0], dict[str, Any]()
    kept.mkdir(parents=True, exist_ok=True)
    for name, open_system in systems(config).items():
        made[name] = strict_json.own(kept / f"{name}.json")
        if made[name].get("key") != key:
            system, known = open_system()
            one = compare(system, TITLES[name])
            scores = one.scores(count, config.seeds[0])
            made[name] = {"key": key, "scores": scores, "rows": one.rows, "coverage": asdict(known)}
            write_text(kept / f"{name}.json", json.dumps(made[name], ensure_ascii=False) + "\n")
    return made


def systems(config: EvaluateConfig) -> dict[str, Callable[[], tuple[exact_search.System, Coverage]]]:
    """Return how to open what is compared, with the counts of what it will have read, by name.

    Raises:
        ConfigError: BM25 is not installed.
    """

    def open_model(folder: str, seed: int | None = None) -> "SentenceEncoder":
        return SentenceEncoder(EmbedConfig(pretrained=folder, out=".npy", sequence_length=config.sequence_length), seed)

    def of_tokens() -> tuple[exact_search.System, Coverage]:
        return exact_search.ByVectors(open_model(config.pretrained).bag), Coverage()

    def of_vectors(pretrained: str, seed: int | None = None) -> tuple[exact_search.System, Coverage]:
        encoder = open_model(pretrained, seed)
        compared = encoder.similarity
        cure = f"set similarity_fn_name to cosine or dot in {sentence_model.MODEL}"
        check(compared in ("cosine", "dot"), f"compares vectors by {compared}; {cure}", "pretrained", pretrained)
        return exact_search.ByVectors(encoder.encode, compared == "dot"), encoder.wordpiece.coverage

    by_words = exact_search.ByWords()  # a missing library is said at once
    openers = {MODEL: partial(of_vectors, config.pretrained)}
    if config.before is not None:
        openers[BEFORE] = partial(of_vectors, config.before)
    if config.baseline:
        openers[RANDOM] = partial(of_vectors, config.pretrained, config.seeds[0])
    return openers | {BAG: of_tokens, BM25: lambda: (by_words, Coverage())}


def retrieval(config: EvaluateConfig) -> tuple[Comparison, dict[str, int], list[str], list[str]]:
    """Return how systems search a set, its queries and documents, and what makes it doubtful.

    Documents of equal scores are in the descending order of their ids, as in trec_eval. A document of the query's own
    id is never found, as in BEIR, unless it is judged. Equal texts are compared once: scores are the same in any batch.
    """
    judged = beir.read(config.data, config.task)
    holders: dict[str, list[str]] = {}
    for name in sorted(judged.documents, reverse=True):
        holders.setdefault(judged.documents[name], []).append(name)
    names_of, asked = list(holders.values()), list(dict.fromkeys(judged.queries.values()))
    wanted = beir.CUT + 2  # one that may be the query itself, and one below the cut

    def compare(system: exact_search.System, title: str) -> Compared:
        with Bar(f"{config.task.name}, {title}", len(holders), "documents") as bar:
            places, scores = exact_search.nearest(system, asked, holders, wanted, bar.update)
        ranked = dict(zip(asked, zip(places, scores, strict=True), strict=True))
        ties, runs, values = 0, dict[str, dict[str, float]](), []
        for query, text in judged.queries.items():
            hits = [
                (float(score), name)
                for place, score in zip(*ranked[text], strict=True)
                if np.isfinite(score)
                for name in names_of[place]
                if name != query or name in judged.judged[query]
            ]
            hits.sort(reverse=True)
            ties += len(hits) > beir.CUT and hits[beir.CUT - 1][0] == hits[beir.CUT][0]
            runs[query] = {name: score for score, name in hits[: beir.CUT]}
            values.append(beir.judge(list(runs[query]), judged.judged[query]))
        table = {metric: np.array([one[metric] for one in values]) for metric in values[0]}
        return Compared(lambda rows: {name: float(each[rows].mean()) for name, each in table.items()}, ties, [runs])

    return compare, {"dev": len(judged.queries), "documents": len(judged.documents)}, doubts_of(judged), []


def doubts_of(found: beir.RetrievalSet) -> list[str]:
    """Return what makes the scores of a set doubtful."""
    counts = [
        (found.unjudged, "query", "without judgement left out"),
        (found.unknown, "judged document", "not there"),
        (sum(max(one.values()) <= 0 for one in found.judged.values()), "query", "without a right document"),
        (sum(each in found.documents and each not in some for each, some in found.judged.items()), "query", OWN),
        ([*found.queries.values()].count(""), "query", "without text"),
        ([*found.documents.values()].count(""), "document", "without text"),
    ]
    return [f"{pluralize(count, noun)} {what}" for count, noun, what in counts if count]


def similarity(config: EvaluateConfig) -> tuple[Comparison, dict[str, int], list[str], list[str]]:
    """Return how systems compare the pairs of a file, how many there are, and rows that are malformed."""
    from pipeline.evaluation import metrics  # whose libraries take a second

    rows, malformed = examples.read_examples(config.data, config.task, config.task.dev)
    texts = list(dict.fromkeys(pair[side] for side in (0, 1) for pair, _ in rows))  # equal ones are read once
    places = {text: number for number, text in enumerate(texts)}
    first, second = ([places[pair[side]] for pair, _ in rows] for side in (0, 1))
    labels = np.array([label for _, label in rows], np.float64)

    def compare(system: exact_search.System, title: str) -> Compared:
        values: Floats = np.asarray(system.similarities(texts, first, second), np.float64)
        names = config.task.metrics
        return Compared(lambda chosen: metrics.score(names, labels[chosen], values[chosen]), rows=values.tolist())

    faults = [f"{pluralize(len(malformed), 'malformed row')} skipped, {malformed[0]}"] if malformed else []
    faults += ["all scores are equal, so that nothing correlates with them"] if len({*labels.tolist()}) < 2 else []
    empty = sum(not texts[place].strip() for place in [*first, *second])
    faults += [f"{pluralize(empty, 'text')} empty"] if empty else []
    return compare, {"dev": len(rows)}, faults, malformed


def describe(found: SystemScore, pretrained: str, coverage: Coverage) -> str:
    """Return one line: the score, those of the other systems, and the model."""
    low, high = found.interval
    of = f"queries among {found.rows['documents']:,} documents" if "documents" in found.rows else "pairs"
    (_, own), *others = found.systems.items()
    listed = ", ".join(f"{name} {one['scores'][found.metric]:.3f}" for name, one in others)
    remarks = [f"{pluralize(own['ties'], 'query')} with a tie at the cut"] if own["ties"] else []
    return (
        f"{found.title} {found.metric} {found.score:.3f} [{low:.3f}, {high:.3f}] of {found.rows['dev']:,} {of} "
        f"({listed}) of {pretrained}{''.join(f', {one}' for one in [*remarks, *found.remarks])}; {coverage.line}"
    )
