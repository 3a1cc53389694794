"""`python -m pipeline.tasks +corpus=NAME`: sample tasks in the GLUE layout from held-out documents.

They measure the benefit of pre-training without a published benchmark: three questions with
self-supervised labels, about documents that `prepare` keeps out of training.

- Sample-Order: are the words of this sentence in order (1), or were they shuffled (0)?
- Sample-Next: does the second sentence follow the first (1), or is it from elsewhere (0)?
- Sample-Passage: the same for two halves of a passage, 30 to 60 words each.

Shuffling and exchanging keep the frequencies of words and sentences, so that only coherence
distinguishes the labels.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from pipeline import readers
from pipeline.cli import entry_point
from pipeline.common import counter_rng
from pipeline.config import PairsConfig, TasksConfig
from pipeline.console import bars
from pipeline.console.formatting import pluralize
from pipeline.errors import InputError
from pipeline.filtering import filters
from pipeline.records.manifest import Result
from pipeline.shards.holdout import LowestHashes, document_hash, how_to_set, is_held_out
from pipeline.stages import stage
from pipeline.text import clean, sentences

SPLIT_BYTES = 64 * 2**20
KEPT = 400  # maximum sentences per document, so that no long book dominates a task
PER_ROW = 8  # sentences to collect per requested row before reading stops
FEWEST = 4  # documents: two per side, as wrong continuations come from another one

ORDER_WORDS = range(8, 41)
NEXT_WORDS = range(5, 61)
HALF_WORDS = range(30, 61)


Texts = tuple[str, ...]  # of a row: one, or two
Item = TypeVar("Item")


class HeldOutDocument(NamedTuple):
    """A held-out document: its key in every draw, and its sentences."""

    key: int
    sentences: list[str]


Splitter = Callable[[HeldOutDocument], Iterator[Texts]]


@dataclasses.dataclass(frozen=True)
class Row:
    """An example of a task: one sentence, or two texts."""

    document: int  # index
    parts: Texts
    label: int = 1


Rows = list[Row]


def words(text: str) -> tuple[list[str], str]:
    """Return the words of a text and their separator; characters if it has too few spaces."""
    parts = text.split()
    return (parts, " ") if len(text) <= 20 * len(parts) else (list(text), "")


def derive_key(key: np.uint64, part: int) -> np.uint64:
    """Derive a key for part `part` of the draws of `key`."""
    return np.uint64(counter_rng.random_bits(key, np.uint64(part)))


def shuffle(items: Sequence[Item], key: np.uint64) -> list[Item]:
    """Return the items in the order of a key."""
    return [items[place] for place in counter_rng.permutation(key, len(items))]


def read_shuffled(config: TasksConfig | PairsConfig, name: str) -> Iterator[tuple[readers.Document, str, bytes, int]]:
    """Yield documents, parts of the corpus in a keyed order, with cleaned text, hash, and key in every draw."""
    reader = readers.open_corpus(config.corpus, config.source)
    splits = reader.splits(SPLIT_BYTES)
    for split in bars.each(shuffle(splits, counter_rng.key(config.seed, "tasks", "splits")), name, "parts"):
        for document in reader.read(split, readers.ReadLog(config.corpus.on_error)):
            text = clean.clean(document.text)
            digest = document_hash(text)
            yield document, text, digest, int.from_bytes(digest[:8], "big")


def draw_held_out(config: TasksConfig) -> list[HeldOutDocument]:
    """Return distinct held-out documents in a keyed order; reading ends when there are enough.

    One that is removed by its id may have copies, which are known when it is read.

    Raises:
        InputError: fewer than FEWEST were found, or the file of removed ones cannot be read.
    """
    found, lowest = dict[int, HeldOutDocument](), LowestHashes()  # of documents that are long enough
    removed, gone = filters.removed(config.remove), set[int]()
    awaited = {line for line in removed if not re.fullmatch("[0-9a-f]{32}", line)}
    read = gathered = 0
    plenty = PER_ROW * (config.train_rows + config.dev_rows)
    for document, text, digest, key in read_shuffled(config, "tasks"):
        read += 1
        mine = is_held_out(digest, config.validation_share)
        if removed and (named := filters.named(removed, document.id, digest)):
            awaited -= named
            gone.add(key)
            found.pop(key, None)
        if key in gone or not (mine or lowest.wants(digest)):
            continue
        language = document.language or config.corpus.language
        found_parts = sentences.split_sentences(text, language, by_lines=document.sentence_lines)
        parts = [" ".join(sentence.split()) for sentence in found_parts]
        if len(parts) < 2:
            continue
        lowest.add(digest)
        if mine and key not in found:
            start = key % max(len(parts) - KEPT + 1, 1)
            found[key] = HeldOutDocument(key, parts[start : start + KEPT])
            gathered += len(found[key].sentences)
        if gathered >= plenty and len(found) >= FEWEST and not awaited:
            break
    if len(found) < FEWEST:
        raise too_few_error(config, len(found), read, lowest)
    draw = counter_rng.key(config.seed, "tasks", "documents")
    return sorted(found.values(), key=lambda held: derive_key(draw, held.key))


def too_few_error(config: TasksConfig, found: int, read: int, lowest: LowestHashes) -> InputError:
    """Return the error for too few held-out documents, with a sufficient share if one exists."""
    # Some documents have to remain for training.
    cure = how_to_set(lowest.share_for(FEWEST)) if len(lowest) > FEWEST else "add more text"
    return InputError(
        f"{found} of {pluralize(read, 'document')} of corpus {config.corpus.name} are held out and long enough, "
        f"but the tasks need {FEWEST}; {cure}, or set tasks=[] in a run to skip them",
        "validation_share",
        config.validation_share,
    )


def divide_documents(documents: list[HeldOutDocument], dev_share: float) -> dict[str, list[HeldOutDocument]]:
    """Split documents into dev, with `dev_share` of the sentences, and train; at least two each."""
    total = np.cumsum([len(held.sentences) for held in documents])
    cut = int(np.searchsorted(total, dev_share * total[-1])) + 1
    cut = min(max(cut, FEWEST // 2), len(documents) - FEWEST // 2)
    return {"dev": documents[:cut], "train": documents[cut:]}


def single_sentences(held: HeldOutDocument) -> Iterator[Texts]:
    """Yield sentences whose words can be shuffled."""
    for sentence in held.sentences:
        found, _ = words(sentence)
        if len(found) in ORDER_WORDS and len(set(found[1:-1])) > 4:
            yield (sentence,)


def sentence_pairs(held: HeldOutDocument) -> Iterator[Texts]:
    """Yield consecutive sentences; no sentence is in two pairs."""
    for first, second in zip(held.sentences[::2], held.sentences[1::2], strict=False):
        if len(words(first)[0]) in NEXT_WORDS and len(words(second)[0]) in NEXT_WORDS:
            yield first, second


def passage_halves(held: HeldOutDocument) -> Iterator[Texts]:
    """Yield adjacent passages of whole sentences; a passage may be in two pairs."""
    before = ""
    piece: list[str] = []
    count = 0
    for sentence in held.sentences:
        piece.append(sentence)
        count += len(words(sentence)[0])
        if count < HALF_WORDS[0]:
            continue
        text = " ".join(piece) if count <= HALF_WORDS[-1] else ""  # a gap if it is too long
        if before and text:
            yield before, text
        before, piece, count = text, [], 0


def choose(documents: list[HeldOutDocument], parts_of: Splitter, count: int, seen: set[str], key: np.uint64) -> Rows:
    """Return at most `count` rows, spread over the documents, whose first texts are not in `seen`.

    The texts are added to `seen`.
    """
    ranked = []
    for index, held in enumerate(documents):
        fresh = []
        for parts in parts_of(held):
            if parts[0] not in seen:
                seen.add(parts[0])
                fresh.append(Row(index, parts))
        ranked += [(rank, index, row) for rank, row in enumerate(shuffle(fresh, derive_key(key, held.key)))]
    ranked.sort(key=lambda entry: entry[:2])
    return shuffle([row for _, _, row in ranked[:count]], key)


def shuffle_words(rows: Rows, key: np.uint64) -> Rows:
    """Return the rows with all words but the first and last shuffled, label 0."""
    made = []
    for number, row in enumerate(rows):
        found, joint = words(row.parts[0])
        inner, attempt = found[1:-1], 0
        while inner == found[1:-1]:
            inner, attempt = shuffle(found[1:-1], derive_key(key, number + 2**32 * attempt)), attempt + 1
        made.append(dataclasses.replace(row, parts=(joint.join([found[0], *inner, found[-1]]),), label=0))
    return made


def exchange_seconds(rows: Rows, _key: np.uint64) -> Rows:
    """Return the rows with second parts exchanged between documents, label 0.

    With rows sorted by document, a shift by the size of the largest group maps every row to another
    group, provided that this group is at most half of the rows; its surplus is left out.
    """
    counts = Counter(row.document for row in rows)
    if len(counts) < 2:
        return []
    largest, size = counts.most_common(1)[0]
    surplus = max(0, 2 * size - len(rows))
    kept: Rows = []
    for row in sorted(rows, key=lambda row: row.document):
        if row.document == largest and surplus:
            surplus -= 1
        else:
            kept.append(row)
    shift = max(Counter(row.document for row in kept).values())
    others = kept[shift:] + kept[:shift]
    return [
        dataclasses.replace(row, parts=(row.parts[0], other.parts[1]), label=0)
        for row, other in zip(kept, others, strict=True)
    ]


@dataclasses.dataclass(frozen=True)
class Task:
    """A sample task, and how its rows are made."""

    folder: str
    columns: Texts
    parts_of: Splitter
    spoil: Callable[[Rows, np.uint64], Rows]

    def rows(self, documents: list[HeldOutDocument], count: int, seen: set[str], key: np.uint64) -> Rows:
        """Return at most `count` rows, half of each label, in a keyed order."""
        chosen = choose(documents, self.parts_of, count - count % 2, seen, key)
        spoiled = self.spoil(chosen[1::2], key)
        return shuffle(chosen[::2][: len(spoiled)] + spoiled, key)


TASKS = (
    Task("Sample-Order", ("sentence",), single_sentences, shuffle_words),
    Task("Sample-Next", ("sentence1", "sentence2"), sentence_pairs, exchange_seconds),
    Task("Sample-Passage", ("sentence1", "sentence2"), passage_halves, exchange_seconds),
)


def write(path: Path, columns: Texts, rows: Rows) -> None:
    """Write the rows as a tab-separated file with a header, like the GLUE files."""
    lines = ["\t".join(["index", *columns, "label"])]
    for index, row in enumerate(rows):
        lines.append("\t".join([str(index), *row.parts, str(row.label)]))
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def make(config: TasksConfig, out: Path) -> Result:
    """Write FOLDER/train.tsv and FOLDER/dev.tsv of each task.

    Raises:
        InputError: a task has no rows for train or dev.
    """
    documents = draw_held_out(config)
    wanted = {"dev": config.dev_rows, "train": config.train_rows}
    parts = divide_documents(documents, config.dev_rows / sum(wanted.values()))
    figures: dict[str, dict[str, int]] = {}
    for task in TASKS:
        seen: set[str] = set()
        figures[task.folder] = {}
        for side, count in wanted.items():
            key = counter_rng.key(config.seed, "tasks", task.folder, side)
            rows = task.rows(parts[side], count, seen, key)
            if not rows:
                more = config.validation_share < 0.5
                raise InputError(
                    f"{pluralize(len(documents), 'held-out document')} of corpus {config.corpus.name} give no rows "
                    f"for {side} of {task.folder}; "
                    f"{how_to_set(min(0.5, 2 * config.validation_share)) if more else 'add documents'}, or set "
                    "tasks=[] in a run to skip them",
                    "validation_share",
                    config.validation_share,
                )
            write(out / task.folder / f"{side}.tsv", task.columns, rows)
            figures[task.folder][side] = len(rows)
    listed = ", ".join(f"{name} {made['train']:,} + {made['dev']:,}" for name, made in figures.items())
    whole = all(made[side] >= wanted[side] - 1 for made in figures.values() for side in wanted)
    note = "" if whole else f" (fewer than requested: {config.train_rows:,} + {config.dev_rows:,})"
    return Result(
        summary=f"{pluralize(len(documents), 'held-out document')}, rows {listed}{note}",
        figures={"documents": {side: len(held) for side, held in parts.items()}, "wanted": wanted, "rows": figures},
    )


def main() -> None:
    """Run the command."""
    entry_point.run("tasks", TasksConfig, lambda config: stage.run("tasks", config, make))


if __name__ == "__main__":
    main()
