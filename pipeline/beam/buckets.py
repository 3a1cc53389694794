"""Tokenized documents between the phases of `prepare`: batches by bucket, in files or as bytes.

A reading task sorts its documents by bucket and leaves one batch for each range of buckets that
`pipeline.beam.exchange` defines: record batch k of its Arrow file, or, where the engine carries
them, an Arrow stream of its own. Both are compressed by lz4. A task with several portions of
documents leaves as many batches for each range: those of portion p follow those of portion p - 1.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.beam.documents import DocumentCounts, KeptDocument
from pipeline.beam.dropped import as_bytes
from pipeline.beam.nested_tokens import count, nested, take
from pipeline.beam.plan import PreparePlan
from pipeline.common.atomic import atomic_path
from pipeline.filtering import minhash
from pipeline.filtering.minhash import Hashes, MinHasher, Signatures
from pipeline.tokenization.coverage import Coverage
from pipeline.tokenization.pretokenize import Ids, Lengths
from pipeline.tokenization.word_segmentation import segmenter
from pipeline.tokenization.wordpiece import WordPiece

OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
Part = tuple[int, int, bytes]  # reading task or group, number within it, documents
Place = tuple[Path, int, int]  # file, first batch in it, distance to the next one
MOST_HASHES = 2**20  # of documents that a reading task remembers, 0.15 GB


class TokenizedDocuments:
    """Buffer of the tokenized documents of a reading task, until they are sorted by bucket."""

    def __init__(self, plan: PreparePlan, account: DocumentCounts):
        self.plan, self.account = plan, account
        self.tokens = 0
        self.coverage = Coverage()
        self.most: dict[bytes, int] = {}  # largest number of copies of each kept document
        self.rows: list[pa.Table] = []
        near = plan.config.filters.near_duplicates is not None
        self.signer = MinHasher(plan.config.filters) if near else None
        self.hashes: list[bytes] = []
        self.signatures: list[np.ndarray] = []
        self.cut = segmenter(plan.config.words) if plan.config.words else None

    def add(self, wordpiece: WordPiece, chunk: list[KeptDocument]) -> None:
        """Tokenize a chunk of documents; those without a token count as empty.

        Of equal documents, only the first and those with more copies than before are kept, so that
        the task that writes them does not have to read all others.
        """
        if not chunk:
            return
        ids, lengths = self.tokens_of(wordpiece, chunk)
        counts = np.array([len(each.sentences) for each in chunk])
        owner = np.repeat(np.arange(len(chunk)), counts)[lengths > 0]
        lengths = lengths[lengths > 0]
        sentence_counts = np.bincount(owner, minlength=len(chunk))
        kept = sentence_counts > 0
        documents = list(itertools.compress(chunk, kept))
        digests = [each.hash for each in documents]
        table = pa.table(
            {
                "bucket": pa.array([self.plan.bucket(d) for d in digests], pa.int32()),
                "hash": pa.array(digests, pa.binary(16)),
                "copies": pa.array([each.copies for each in documents], pa.uint16()),
                "words": pa.array([each.words for each in documents], pa.int64()),
                "id": pa.array([as_bytes(each.id) for each in documents], pa.binary()),
                "ids": nested(ids, lengths, sentence_counts[kept]),
            }
        )
        self.tokens += len(ids)
        for each in itertools.compress(chunk, ~kept):
            self.account.drop(each.id, "empty")
        new = np.array([self.is_new(each) for each in documents], np.bool_)
        if not new.all():
            for each in itertools.compress(documents, ~new):
                self.account.drop(each.id, "duplicate")
            table = table.filter(pa.array(new))
            documents = list(itertools.compress(documents, new))
        self.rows.append(table)
        if self.signer is not None and documents:
            self.hashes += [each.hash for each in documents]
            self.signatures.append(self.signer.sign([each.text for each in documents]))

    def is_new(self, document: KeptDocument) -> bool:
        """Return whether no equal document has come with as many copies."""
        new = document.copies > self.most.get(document.hash, 0)
        if new:
            if len(self.most) >= MOST_HASHES:  # the writing task finds the others
                self.most.clear()
            self.most[document.hash] = document.copies
        return new

    def tokens_of(self, wordpiece: WordPiece, chunk: list[KeptDocument]) -> tuple[Ids, Lengths]:
        """Return the ids of all sentences as stored in shards, and the token counts."""
        sentences = [sentence for each in chunk for sentence in each.sentences]
        if self.cut is None:
            gaps = [gap for each in chunk for gap in each.gaps] if wordpiece.uncached else []
            return wordpiece.encode_within(sentences, gaps, self.coverage)
        ids, lengths, goes_on = wordpiece.encode_words(sentences, self.cut, self.coverage)
        return self.plan.info.marked(ids, goes_on), lengths

    def take(self) -> pa.Table | None:
        """Return the documents added since the last call; None if there are none."""
        rows, self.rows = [table for table in self.rows if len(table)], []
        return pa.concat_tables(rows) if rows else None

    def signed(self) -> tuple[Hashes, Signatures] | None:
        """Return the hashes and MinHash signatures of the documents, equal ones once."""
        if not self.hashes:
            return None
        hashes = as_numbers(self.hashes)
        _, first = np.unique(hashes, axis=0, return_index=True)
        return hashes[first], np.concatenate(self.signatures)[first]

    def save_signatures(self, path: Path) -> bool:
        """Write the MinHash signatures; return whether there are any."""
        if not self.hashes:
            return False
        minhash.save(path, as_numbers(self.hashes), np.concatenate(self.signatures))
        return True


def by_bucket(table: pa.Table, bounds: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield batch k with the documents of buckets `bounds[k]` to `bounds[k + 1]`, in their order.

    One copy sorted by bucket is sliced into batches: for small batches, a copy of each would cost
    more than its bytes.
    """
    bucket = table["bucket"].to_numpy()
    order = np.argsort(bucket, kind="stable")
    places = np.searchsorted(bucket[order], bounds)
    place = table.column_names.index("ids")
    ids = take(table["ids"].combine_chunks(), order)
    rest = table.remove_column(place).take(pa.array(order))
    (batch,) = rest.add_column(place, "ids", ids).combine_chunks().to_batches()
    for low, high in itertools.pairwise(places):
        yield batch.slice(low, high - low)


class BatchFile(contextlib.ExitStack):
    """File of the batches of `by_bucket`, of one portion of documents after another.

    It is there at the end of the `with` block, unless no portion was written.
    """

    def __init__(self, path: Path, bounds: list[int]):
        super().__init__()
        self.path, self.bounds = path, bounds
        self.used: set[int] = set()  # ranges that have documents
        self.writer: pa.ipc.RecordBatchFileWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Write a portion of documents."""
        if self.writer is None:
            temporary = self.enter_context(atomic_path(self.path))
            writer = pa.ipc.new_file(str(temporary), table.schema, options=OPTIONS)
            self.writer = self.enter_context(writer)
        for k, batch in enumerate(by_bucket(table, self.bounds)):
            self.writer.write_batch(batch)
            if len(batch):
                self.used.add(k)


def pack_batches(table: pa.Table, bounds: list[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of those batches of `by_bucket` that have documents."""
    for k, batch in enumerate(by_bucket(table, bounds)):
        if len(batch):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema, options=OPTIONS) as writer:
                writer.write_batch(batch)
            yield k, sink.getvalue().to_pybytes()


def unpack_batches(parts: Iterable[Part]) -> pa.Table:
    """Return the documents of `pack_batches`, in the order of the corpus whatever that of parts."""
    ordered = sorted(parts, key=lambda part: part[:2])
    # A retried task may leave the same part twice.
    distinct = {part[:2]: part[2] for part in ordered}.values()
    return pa.concat_tables([pa.ipc.open_stream(each).read_all() for each in distinct])


def merge(plan: PreparePlan, group: int, index: int, reads: list[int]) -> list[int]:
    """Write a group of reading tasks' documents in a range; return the writing tasks in use."""
    exchange = plan.exchange
    places = [(plan.read_file(read), index, exchange.ranges) for read in reads]
    with BatchFile(plan.merged_file(group, index), exchange.write_bounds(index)) as file:
        held: list[pa.RecordBatch] = []
        tokens = 0
        for batch in filter(len, batches(places)):
            held.append(batch)
            tokens += count(batch["ids"])
            if tokens > plan.portion:
                file.write(pa.Table.from_batches(held))
                held, tokens = [], 0
        if held:
            file.write(pa.Table.from_batches(held))
    return [exchange.first_write(index) + k for k in sorted(file.used)]


def batches(places: list[Place]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of documents at these places."""
    for path, first, step in places:
        with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
            for k in range(first, reader.num_record_batches, step):
                yield reader.get_batch(k)


def places_of(plan: PreparePlan, write: int, sources: list[int]) -> list[Place]:
    """Return the places of a writing task's documents of these sources."""
    exchange = plan.exchange
    if not exchange.merges:
        return [(plan.read_file(read), write, exchange.ranges) for read in sources]
    index = exchange.range_of(write)
    first, end = exchange.first_write(index), exchange.first_write(index + 1)
    return [(plan.merged_file(group, index), write - first, end - first) for group in sources]


def as_numbers(hashes: Iterable[bytes]) -> np.ndarray:
    """Convert 16-byte hashes to pairs of big-endian numbers, `(N, 2)` uint64."""
    return np.frombuffer(b"".join(hashes), dtype=">u8").reshape(-1, 2).astype(np.uint64)
