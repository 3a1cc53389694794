"""`python -m pipeline.pairs +corpus=NAME`: pairs of texts that a corpus gives for nothing, to train sentence vectors.

- title: the title of a document, and its first passage
- heading: title and heading of a section, and its first passage
- neighbour: a passage, and the one after it

Passages are whole sentences, as many as a model reads. Pairs are of documents that `prepare` trains on; those of
held-out documents become a retrieval set in BEIR's layout, whose queries are the first texts of the first kind.
"""

import heapq
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq

from model.training import provenance
from pipeline import readers
from pipeline.cli import entry_point
from pipeline.common import counter_rng
from pipeline.common.schema import check
from pipeline.config import PairsConfig
from pipeline.console.formatting import pluralize
from pipeline.errors import InputError
from pipeline.evaluation import beir
from pipeline.filtering import filters
from pipeline.records.manifest import Manifest, Result
from pipeline.shards.holdout import how_to_set, is_held_out
from pipeline.stages import stage
from pipeline.tasks import derive_key, read_shuffled, shuffle, words
from pipeline.text import clean, sentences
from pipeline.tokenization.wordpiece import WordPiece

FOLDER = "retrieval"
PASSAGES = 20_000  # of the retrieval set
PER_PAIR = 8  # pairs to choose from before reading stops
SHORTEST = 50  # characters of a document, a usual minimum of `prepare`
FEWEST = 8  # tokens of a passage
PROSE, HEADING = 80, 60  # characters of a line, at least, at most


class Pair(NamedTuple):
    """Two texts, the second of which is to be near the first."""

    anchor: str
    positive: str
    kind: str
    document: str  # id: passages of one document are no wrong answers to each other


@dataclass
class LowestKeys:
    """The pairs with the lowest keys: a sample that does not depend on the order in which they come."""

    most: int
    seen: int = 0
    _heap: list[tuple[int, int, int, Pair]] = field(default_factory=list)  # key below 0, place, document's key

    def add(self, key: int, document: int, pair: Pair) -> None:
        """Add a pair of a document, given by its key, unless there are enough with lower keys."""
        self.seen += 1
        push = heapq.heappush if len(self._heap) < self.most else heapq.heappushpop
        push(self._heap, (-key, self.seen, document, pair))

    def without(self, gone: set[int], most: int) -> Iterator[Pair]:
        """Yield the pairs in the order of their keys, `most` of an anchor, without those of some documents."""
        taken = Counter[str]()
        for *_, document, pair in sorted(self._heap, reverse=True):
            if document not in gone and taken[pair.anchor] < most:
                taken[pair.anchor] += 1
                yield pair


class Passages:
    """Passages of whole sentences, as long as a model reads; a longer sentence is cut between words."""

    def __init__(self, wordpiece: WordPiece, longest: int):
        self.wordpiece, self.room = wordpiece, longest - 2  # [CLS], [SEP]

    def of(self, lines: list[str], language: str, by_lines: bool = False) -> list[str]:
        """Return the passages of some lines, or `by_lines` of sentences; those of few tokens are left out."""
        every = sentences.split_sentences("\n".join(lines), language, by_lines=by_lines)
        parts, pieces, sizes = [" ".join(one.split()) for one in every], [list[str]()], [0]
        for part, length in zip(parts, self._lengths(parts), strict=True):
            if sizes[-1] + length > self.room:
                pieces.append([])
                sizes.append(0)
            pieces[-1].append(part if length <= self.room else self.cut(part))
            sizes[-1] += length
        return [" ".join(piece) for piece, size in zip(pieces, sizes, strict=True) if size >= FEWEST]

    def cut(self, text: str) -> str:
        """Return the beginning of a text that fits: whole words, or characters where they are too long."""
        return self._first(*words(text)) or self._first([*text], "")

    def _first(self, parts: list[str], joint: str) -> str:
        """Return the first parts that fit, joined."""
        fit = int(np.searchsorted(np.cumsum(self._lengths(parts, joint)), self.room, "right"))
        while self._lengths([start := joint.join(parts[:fit])])[0] > self.room:  # tokens of bytes
            fit -= 1
        return start

    def _lengths(self, parts: list[str], joint: str = " ") -> list[int]:
        """Return the tokens of each part of a text, in which all but the first come after `joint`."""
        after = self.wordpiece.within_text(parts, (bool(place and joint) for place, _ in enumerate(parts)))
        return self.wordpiece.encode(after)[1].tolist() if parts else []


def sections(text: str) -> list[tuple[str, list[str]]]:
    """Return headings with the lines below them; "" is that of the first lines.

    A heading is a short line without an end mark, after a line of prose and before one: a list has several in a row.
    Prose is long, or ends with a mark, which Thai has not.
    """
    lines, parts = text.split("\n"), [("", list[str]())]
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        short = len(line) <= HEADING and is_open(line)
        if short and len(after) >= PROSE and (len(before) >= PROSE or not is_open(before)):
            parts.append((line, []))
        else:
            parts[-1][1].append(line)
    return parts


def is_open(line: str) -> bool:
    """Return whether a line ends with a letter, its vowel sign or a number; an empty one does not."""
    return unicodedata.category(line[-1:] or ".")[0] in "LMN"


def pairs_of(document: readers.Document, text: str, language: str, passages: Passages, most: int) -> Iterator[Pair]:
    """Yield the pairs of a document: one by its title, which may be its first line too; `most` of each other kind."""
    title, (first, _, rest) = " ".join(clean.clean(document.title).split()), text.partition("\n")
    text, title = rest if first.casefold() == title.casefold() else text, passages.cut(title)
    by_lines = document.sentence_lines
    parts = [(heading, passages.of(lines, language, by_lines)) for heading, lines in sections(text)]
    parts = [(heading, pieces) for heading, pieces in parts if pieces]
    if title and parts:
        yield Pair(title, parts[0][1][0], "title", document.id)
    before = f"{title}: " if title else ""
    headings = [(passages.cut(before + heading), pieces[0]) for heading, pieces in parts if heading]
    neighbours = [both for _, pieces in parts for both in zip(pieces[::2], pieces[1::2], strict=False)]
    for kind, every in (("heading", headings), ("neighbour", neighbours)):
        order = counter_rng.permutation(counter_rng.key(0, "pairs", kind, document.id), len(every))
        for anchor, positive in (every[place] for place in sorted(order[:most].tolist())):
            yield Pair(anchor, positive, kind, document.id)


def share_held_out(model: str) -> float:
    """Return the share of documents that was held out of a model's training; 1 where this is not known."""
    made = Manifest.read(model, of_input=True)
    stages = provenance.histories(made.config["train"]) if made is not None and made.stage == "convert" else ()
    return min((one.config["validation_share"] for one in stages if one.stage == "prepare"), default=1.0)


def draw(config: PairsConfig) -> tuple[dict[str, list[Pair]], list[Pair], Counter[str]]:
    """Return the pairs to train on by kind, held-out ones of the first kind, and the counts of documents.

    Reading ends when there is enough to choose from.

    Raises:
        ConfigError: the model has been trained on documents that would be queries.
        InputError: the corpus or the model cannot be read.
    """
    held_out, asked_for = share_held_out(config.pretrained), config.validation_share
    problem = f"is more than prepare held out, {held_out:g}: the model has been trained on documents of the queries"
    check(asked_for <= held_out, problem, "validation_share", asked_for)
    passages = Passages(WordPiece.load(config.pretrained), provenance.learnt(config.pretrained, config.longest))
    kept = {kind: LowestKeys(config.rows) for kind in config.kinds}
    asked, counts, seen, gone = LowestKeys(config.queries), Counter[str](), set[int](), set[int]()
    removed = filters.removed(config.remove)
    keys = {kind: counter_rng.key(config.seed, "pairs", kind) for kind in config.kinds}
    for document, text, digest, key in read_shuffled(config, "pairs"):
        counts["read"] += 1
        if removed and filters.named(removed, document.id, digest):
            gone.add(key)
        if len(text) < SHORTEST or key in seen or key in gone:
            counts["removed" if key in gone else "duplicate" if key in seen else "short"] += 1
            continue
        seen.add(key)
        held = is_held_out(digest, config.validation_share)
        counts["held out" if held else "to train on"] += 1
        language, where = document.language or config.corpus.language, {config.kinds[0]: asked} if held else kept
        for number, pair in enumerate(pairs_of(document, text, language, passages, config.per_document)):
            if pair.kind in where:
                where[pair.kind].add(int(derive_key(derive_key(keys[pair.kind], number), key)), key, pair)
        if all(one.seen >= PER_PAIR * one.most for one in (asked, *kept.values())):
            break
    most = config.per_document
    chosen = {kind: [*one.without(gone, most)] for kind, one in kept.items()}
    return chosen, [*asked.without(gone, most)], counts


def retrieval_set(asked: list[Pair], others: list[Pair]) -> dict[str, list[str]]:
    """Return the lines of a retrieval set by file: the answers to queries among passages of other documents."""
    queries = {anchor: f"q{number}" for number, anchor in enumerate(dict.fromkeys(pair.anchor for pair in asked))}
    passages: dict[str, str] = {}  # the document of each
    for pair in [*asked, *others]:
        passages.setdefault(pair.positive, pair.document)
    names = {text: f"d{number}" for number, text in enumerate([*passages][:PASSAGES])}
    judged = dict.fromkeys((queries[one.anchor], names[one.positive]) for one in asked if one.positive in names)
    return {
        beir.CORPUS: lines_of({"_id": name, "text": text, "document": passages[text]} for text, name in names.items()),
        beir.QUERIES: lines_of({"_id": name, "text": text} for text, name in queries.items()),
        "qrels/test.tsv": ["query-id\tcorpus-id\tscore", *(f"{query}\t{passage}\t1" for query, passage in judged)],
    }


def lines_of(rows: Iterable[dict[str, str]]) -> list[str]:
    """Return rows as lines of JSON."""
    return [json.dumps(row, ensure_ascii=False) for row in rows]


def make(config: PairsConfig, out: Path) -> Result:
    """Write pairs.jsonl, pairs.parquet and the folder of the retrieval set.

    Raises:
        InputError: there are no pairs, or none of held-out documents.
    """
    kept, asked, counts = draw(config)
    first = config.kinds[0]
    if not kept[first]:
        cure = "choose others: a title or a heading must be one in the corpus, neighbours need longer documents"
        cure = cure if counts["to train on"] else "add documents: it has none to train on"
        raise InputError(f"corpus {config.corpus.name} gives no pairs of kind {first}; {cure}", "kinds", config.kinds)
    learnt = {pair.anchor for pairs in kept.values() for pair in pairs}
    own = [pair for pair in asked if pair.anchor not in learnt]
    if asked and not own:
        problem = f"all queries of kind {first} are anchors to train on, too; choose another first kind"
        raise InputError(problem, "kinds", config.kinds)
    if not own:
        cure = how_to_set(min(0.5, 5 * config.validation_share)) if config.validation_share < 0.5 else "add documents"
        problem = f"none of {pluralize(counts['held out'], 'held-out document')} gives a query; {cure}"
        raise InputError(problem, "validation_share", config.validation_share)
    every = [pair._asdict() for pairs in kept.values() for pair in pairs]
    rows = shuffle(every, counter_rng.key(config.seed, "pairs", "rows"))
    files = retrieval_set(own, kept[first])
    for name, lines in {"pairs.jsonl": lines_of(rows), **{f"{FOLDER}/{name}": files[name] for name in files}}.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(rows), out / "pairs.parquet")
    sums = {kind: len(pairs) for kind, pairs in kept.items()}
    sizes = {name: len(files[name]) for name in (beir.QUERIES, beir.CORPUS)}
    return Result(
        summary=f"pairs {', '.join(f'{number:,} {kind}' for kind, number in sums.items())} of "
        f"{pluralize(counts['to train on'], 'document')}; {sizes[beir.QUERIES]:,} held-out queries among "
        f"{sizes[beir.CORPUS]:,} passages",
        figures={"documents": dict(counts), "pairs": sums, "retrieval": sizes},
    )


def main() -> None:
    """Run the command."""
    entry_point.run("pairs", PairsConfig, lambda config: stage.run("pairs", config, make))


if __name__ == "__main__":
    main()
