"""Documents of a split: cleaned, filtered, split into sentences and counted."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeline import readers
from pipeline.common.batching import batches
from pipeline.config import PrepareConfig
from pipeline.filtering import filters
from pipeline.preparation import timings
from pipeline.preparation.dropped import Dropped
from pipeline.readers import Document, FileRange, SkipCounts
from pipeline.readers.io import read_position
from pipeline.shards.holdout import LowestHashes, document_hash
from pipeline.text import clean, sentences

CHUNK = 4 * 2**20  # characters tokenized at once: fastest, with constant memory
BLOCK = 2**16  # characters that a step takes at once
OUTCOMES = ("empty", "short", "duplicate", "filtered", "written")


@dataclass(frozen=True, slots=True)
class KeptDocument:
    """A document that passed the filters."""

    hash: bytes
    text: str
    sentences: list[str]
    copies: int
    id: str

    @property
    def words(self) -> int:
        """How many words there are, divided by white space."""
        # A cleaned text has single spaces and line feeds only: counted 20 times as fast as split.
        return 1 + self.text.count(" ") + self.text.count("\n")

    @property
    def gaps(self) -> list[str | None]:
        """What precedes each sentence in the text: nothing in Chinese, a space, or a line end."""
        found: list[str | None] = []
        end = 0
        for sentence in self.sentences:
            start = max(end, self.text.find(sentence, end))
            between = self.text[end:start]
            found.append(None if end == 0 else "\n" if "\n" in between else between[:1])
            end = start + len(sentence)
        return found


Kept = list[KeptDocument]
Counts = Counter[str]


@dataclass
class DocumentCounts:
    """Document counters; every document read ends in exactly one of `OUTCOMES`."""

    documents: Counts = field(default_factory=Counter)  # read, and by outcome
    filtered: Counts = field(default_factory=Counter)  # by filter
    skipped: Counts = field(default_factory=Counter)  # by the reader, by reason
    notes: Counts = field(default_factory=Counter)  # guesses and repairs
    totals: Counts = field(default_factory=Counter)
    packing: Counts = field(default_factory=Counter)  # of pairs=none: how full, how cut
    contaminated: Counts = field(default_factory=Counter)  # by evaluation file
    removed: Counts = field(default_factory=Counter)  # by line of `filters.remove`
    lengths: Counter[Any] = field(default_factory=Counter)  # instances by tokens, in JSON as text
    shards: dict[str, Any] = field(default_factory=dict)  # what is in each, by file name
    named: dict[str, list[str]] = field(default_factory=dict)  # single documents, by fault
    lowest: LowestHashes = field(default_factory=LowestHashes)  # the first to be held out
    dropped: Dropped = field(default_factory=Dropped)

    def take(self, part: dict[str, Any]) -> None:
        """Add the counts of a part, given as its `vars`."""
        for name, count in part.items():
            if name == "named":
                for reason, found in count.items():
                    self.named[reason] = (self.named.get(reason, []) + found)[: SkipCounts.NAMED]
            elif name in ("lowest", "dropped"):
                getattr(self, name).merge(count)
            else:
                getattr(self, name).update(count)

    def drop(self, name: str, outcome: str, reason: str = "") -> None:
        """Count the document of this id, which is left out."""
        self.documents[outcome] += 1
        self.dropped.merge([(name, outcome, reason)])

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


def minimum_sentences(config: PrepareConfig) -> int:
    """Return the sentences that a document has at least: two can be swapped, one cannot."""
    return max(config.minimum_sentences, 1 + (config.pairs == "sop"))


def next_block(blocks: Iterator[list[Document]]) -> list[Document]:
    """Return the next documents; none at the end."""
    with timings.on("read"):
        return next(blocks, [])


class DocumentReader:
    """Reader, cleaner, filter and sentence splitter of documents; one per worker."""

    def __init__(self, config: PrepareConfig):
        self.config = config
        self.reader = readers.open_corpus(config.corpus, config.source)
        self.filters = filters.build(config.filters, config.corpus.language)
        self.minimum_sentences = minimum_sentences(config)

    def chunks(
        self, splits: list[FileRange], account: DocumentCounts, report: Callable[[float, int], None]
    ) -> Iterator[Kept]:
        """Yield the accepted documents in chunks of about `CHUNK` characters.

        A chunk may have documents of several splits. `account` has the counts of all splits that
        are finished; `report` gets the bytes and documents read so far.
        """
        chunk: Kept = []
        size, before = 0, 0
        for split in splits:
            counts = DocumentCounts()

            def reached(position: int, counts: DocumentCounts = counts, before: int = before) -> None:
                report(before + position, account.documents["read"] + counts.documents["read"])

            with read_position.followed(split, reached):
                for document in self.kept(split, counts):
                    chunk.append(document)
                    size += len(document.text)
                    if size >= CHUNK:
                        yield chunk
                        chunk, size = [], 0
            account.take(vars(counts))
            before += split.size
        yield chunk

    def kept(self, split: FileRange, account: DocumentCounts) -> Iterator[KeptDocument]:
        """Yield the accepted documents of a split; update `account`."""
        tally = SkipCounts(self.config.corpus.on_error)
        for each in self.filters:
            if isinstance(each, filters.Decontamination):
                each.found, each.named = account.contaminated, []
                account.named["contaminated"] = each.named
        blocks = batches(self.reader.read(split, tally), BLOCK, lambda document: 64 + len(document.text))
        while block := next_block(blocks):
            yield from self.accept(block, account)
        account.skipped.update(tally)
        account.notes.update(tally.notes)
        account.named["broken"] = tally.broken

    def accept(self, block: list[Document], account: DocumentCounts) -> Kept:
        """Return the documents that are kept; counted either way."""
        usual = self.config.corpus.language
        with timings.on("clean"):
            texts = [clean.clean(document.text) for document in block]
        with timings.on("sentences"):
            parts = [
                sentences.split_sentences(text, each.language or usual, by_lines=each.sentence_lines)
                for text, each in zip(texts, block, strict=True)
            ]
        with timings.on("filter"):
            account.documents["read"] += len(block)
            account.totals["characters"] += sum(map(len, texts))
            return list(filter(None, map(self.judged, block, texts, parts, itertools.repeat(account))))

    def judged(self, document: Document, text: str, parts: list[str], account: DocumentCounts) -> KeptDocument | None:
        """Return a document if it is kept, else count why not."""
        config = self.config
        if not parts:
            account.drop(document.id, "empty")
        elif len(text) < config.minimum_characters or len(parts) < self.minimum_sentences:
            account.drop(document.id, "short")
        elif reason := next((each.reason for each in self.filters if each.drops(document.id, text)), None):
            account.drop(document.id, "filtered", reason)
            account.filtered[reason] += 1
        else:
            digest = document_hash(text)
            account.lowest.add(digest)
            return KeptDocument(digest, text, parts, document.copies, document.id)
        return None
