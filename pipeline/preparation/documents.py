"""Documents of a split: cleaned, filtered, split into sentences and counted."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pipeline import readers
from pipeline.common.batching import batches
from pipeline.config import PrepareConfig
from pipeline.filtering import filters
from pipeline.preparation import timings
from pipeline.preparation.dropped import Dropped
from pipeline.readers import Document, FileRange, ReadLog
from pipeline.records.metrics import CorpusCounts
from pipeline.shards.holdout import LowestHashes, document_hash
from pipeline.text import clean, sentences

BLOCK = 2**16  # characters that a step takes at once
TOKENIZED = r"texts with <unk>, @-@, @@, ▁ or -LRB- of tokenizers; take the raw form, hyphens by sed 's/ @\(.\)@ /\1/g'"
ENDS = r"texts with \n for line ends, written twice; put line ends there"
ENTITIES = "texts with entities of HTML or tags, as &quot;, <br>, [/b], [x](http…); put characters there, take tags out"
_TOKENS = re.compile(r"<unk>|@-@ (?<= @-@ )|@@ (?<=\w@@ )(?=\w)|▁(?<= ▁)(?=\w)")
_TAGS = re.compile(
    r"<(?i:br ?/?|/(?:p|div|a|b|i|em|strong|span|li|ul|td|h[1-6]))>|\[/(?i:b|i|u|quote|url|img)\]|\]\(https?://"
    r"|&(?:quot|apos|amp|lt|#39);|［＃"
)
# Before a small letter there are two: one may begin a word, as in C:\new, and words of TeX as \nu are none.
_ENDS = re.compile(r"(?s)\\n(?![a-z])|(?:\\n(?!(?:u|eq?|eg|mid|[gl]eq|abla|ot(?:in)?|ew\w+|oindent)(?![a-z])).*?){2}")


def faults(text: str) -> Iterator[str]:
    """Yield what is said of a text with marks for characters; few texts have the letter that is looked for first."""
    if "-LRB-" in text or (any(map(text.__contains__, "<@▁")) and _TOKENS.search(text)):
        yield TOKENIZED
    if "\\" in text and "\\n" in text and text.count("\\n") >= text.count("\n") and _ENDS.search(text):
        yield ENDS
    if any(map(text.__contains__, "<&[［")) and _TAGS.search(text):
        yield ENTITIES


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
        gaps: list[str | None] = []
        end = 0
        for sentence in self.sentences:
            start = max(end, self.text.find(sentence, end))
            between = self.text[end:start]
            gaps.append(None if end == 0 else "\n" if "\n" in between else between[:1])
            end = start + len(sentence)
        return gaps


Kept = list[KeptDocument]


@dataclass(frozen=True, kw_only=True)
class DocumentCounts(CorpusCounts):
    """The counts of some tasks, with what the manifest does not list."""

    lowest: LowestHashes = field(default_factory=LowestHashes)  # the first to be held out
    left_out: Dropped = field(default_factory=Dropped)

    @classmethod
    def from_json(cls, figures: Mapping[str, Any]) -> Self:
        """Return the counts that a task has written."""
        made = super().from_json(figures)
        return replace(made, lowest=LowestHashes(made.lowest), left_out=Dropped(made.left_out))

    def merge(self, other: Self) -> None:
        """Add the counts of another task."""
        super().merge(other)
        self.lowest.merge(other.lowest)
        self.left_out.merge(other.left_out)

    def drop(self, name: str, outcome: str, reason: str = "") -> None:
        """Count the document of this id, which is left out."""
        self.documents[outcome] += 1
        self.left_out.merge([(name, outcome, reason)])


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

    def documents(
        self, splits: list[FileRange], account: DocumentCounts, report: Callable[[float, int], None]
    ) -> Iterator[KeptDocument]:
        """Yield the accepted documents of the splits.

        `account` has the counts of all splits that are finished; `report` gets the bytes and documents read so far.
        """
        before = 0
        for split in splits:
            counts = DocumentCounts()

            def reached(position: int, counts: DocumentCounts = counts, before: int = before) -> None:
                report(before + position, account.documents["read"] + counts.documents["read"])

            yield from self.kept(split, counts, reached)
            account.merge(counts)
            before += split.size

    def kept(
        self, split: FileRange, account: DocumentCounts, progress: Callable[[int], None]
    ) -> Iterator[KeptDocument]:
        """Yield the accepted documents of a file range; update `account`, and report `progress` in bytes."""
        log = ReadLog(self.config.corpus.on_error, progress)
        blocks = batches(self.reader.read(split, log), BLOCK, lambda document: 64 + len(document.text))
        while block := next_block(blocks):
            yield from self.accept(block, account)
        account.skipped.update(log)
        account.notes.update(log.notes)
        account.name("broken", *log.broken)

    def distinct(self, split_bytes: int, account: DocumentCounts) -> Iterator[KeptDocument]:
        """Yield the accepted documents of the corpus, each text once; update `account`."""
        seen = set[bytes]()
        for split in self.reader.splits(split_bytes):
            for document in self.kept(split, account, lambda _: None):
                if document.hash not in seen:
                    seen.add(document.hash)
                    yield document

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
            account.notes.update(itertools.chain.from_iterable(map(faults, texts)))
            account.totals["characters"] += sum(map(len, texts))
            return list(filter(None, map(self.judged, block, texts, parts, itertools.repeat(account))))

    def judged(self, document: Document, text: str, parts: list[str], account: DocumentCounts) -> KeptDocument | None:
        """Return a document if it is kept, else count why not."""
        config = self.config
        if not parts:
            account.drop(document.id, "empty")
        elif len(text) < config.minimum_characters or len(parts) < self.minimum_sentences:
            account.drop(document.id, "short")
        elif drop := next(filter(None, (each.check(text) for each in self.filters)), None):
            account.drop(document.id, "filtered", drop.reason)
            account.filtered[drop.reason] += 1
            if drop.file:
                account.contaminated[drop.file] += 1
                account.name(drop.reason, f"{document.id}: shares with {drop.file}: {drop.passage}")
        else:
            digest = document_hash(text)
            account.lowest.add(digest)
            return KeptDocument(digest, text, parts, document.copies, document.id)
        return None
