"""The documents of a split as they come in: cleaned, filtered, cut into sentences, counted."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeline import readers
from pipeline.config import PrepareConfig
from pipeline.filtering import filters
from pipeline.readers import Document, FileRange, SkipCounts
from pipeline.shards.sentence_pairs import document_hash
from pipeline.shards.validation_share import LowestHashes
from pipeline.text import clean, sentences

CHUNK = 4 * 2**20  # characters that are tokenized at once: fastest, and memory stays flat
OUTCOMES = ("empty", "short", "duplicate", "filtered", "written")


@dataclass(frozen=True, slots=True)
class KeptDocument:
    """A document that goes on."""

    hash: bytes
    text: str
    sentences: list[str]
    copies: int

    @property
    def words(self) -> int:
        """How many words there are, divided by white space."""
        return len(self.text.split())


@dataclass
class DocumentCounts:
    """What became of documents. What is read is one of `FATES` in the end."""

    documents: Counter[str] = field(default_factory=Counter)  # read, and by fate
    filtered: Counter[str] = field(default_factory=Counter)  # by the filter that took them
    skipped: Counter[str] = field(default_factory=Counter)  # never read as documents, by reason
    notes: Counter[str] = field(default_factory=Counter)  # what was guessed or mended
    totals: Counter[str] = field(default_factory=Counter)
    contaminated: Counter[str] = field(default_factory=Counter)  # by evaluation file
    named: dict[str, list[str]] = field(default_factory=dict)  # single documents, by what happened
    lowest: LowestHashes = field(default_factory=LowestHashes)  # the first to be held out

    def take(self, part: dict[str, Any]) -> None:
        """Add the account of a part, as `vars` gave it."""
        for name, count in part.items():
            if name == "named":
                for reason, found in count.items():
                    self.named[reason] = (self.named.get(reason, []) + found)[: SkipCounts.NAMED]
            elif name == "lowest":
                self.lowest.merge(count)
            else:
                getattr(self, name).update(count)

    def balance(self) -> None:
        """Raise unless every document that was read is accounted for.

        Raises:
            RuntimeError: the engine lost or doubled documents.
        """
        documents = self.documents
        listed = ", ".join(f"{documents[fate]} {fate}" for fate in OUTCOMES)
        if documents["read"] != sum(documents[fate] for fate in OUTCOMES):
            raise RuntimeError(
                f"{documents['read']} documents were read but not accounted for: {listed}"
            )
        if documents["filtered"] != sum(self.filtered.values()):
            raise RuntimeError(f"{listed}; but by filter: {dict(self.filtered)}")


class DocumentReader:
    """Reads, cleans, filters and cuts into sentences; one in each worker."""

    def __init__(self, config: PrepareConfig):
        self.config = config
        self.reader = readers.open_corpus(config.corpus, config.source)
        self.filters = filters.build(config.filters)
        self.minimum_sentences = max(config.minimum_sentences, 1 + (config.pairs == "sop"))

    def chunks(self, split: FileRange, account: DocumentCounts) -> Iterator[list[KeptDocument]]:
        """The accepted documents, about `CHUNK` characters at a time; `account` fills meanwhile."""
        tally = SkipCounts(self.config.corpus.on_error)
        for each in self.filters:
            if isinstance(each, filters.Decontamination):
                each.found, each.named = account.contaminated, []
                account.named["contaminated"] = each.named
        chunk: list[KeptDocument] = []
        size = 0
        for document in self.reader.read(split, tally):
            if (accepted := self.accept(document, account)) is not None:
                chunk.append(accepted)
                size += len(accepted.text)
            if size >= CHUNK:
                yield chunk
                chunk, size = [], 0
        account.skipped.update(tally)
        account.notes.update(tally.notes)
        account.named["broken"] = tally.broken
        yield chunk

    def accept(self, document: Document, account: DocumentCounts) -> KeptDocument | None:
        """Whether a document goes on; counted either way."""
        config, counts = self.config, account.documents
        counts["read"] += 1
        text = clean.clean(document.text)
        account.totals["characters"] += len(text)
        language = document.language or config.corpus.language
        parts = sentences.split_sentences(text, language, by_lines=document.sentence_lines)
        if not parts:
            counts["empty"] += 1
        elif len(text) < config.minimum_characters or len(parts) < self.minimum_sentences:
            counts["short"] += 1
        elif reason := self.reason(document.id, text):
            counts["filtered"] += 1
            account.filtered[reason] += 1
        else:
            account.totals["sentences"] += len(parts)
            digest = document_hash(text)
            account.lowest.add(digest)
            return KeptDocument(digest, text, parts, document.copies)
        return None

    def reason(self, name: str, text: str) -> str | None:
        """The filter that takes the document; None where none does."""
        return next((each.reason for each in self.filters if each.drops(name, text)), None)
