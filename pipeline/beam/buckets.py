"""Tokenized documents between the phases of `prepare`: batches by bucket.

A reading task sorts its documents by bucket and leaves one batch for each range of buckets that
`pipeline.beam.exchange` defines: an Arrow stream, compressed by lz4. A task with several portions of
documents leaves as many batches for each range, in their order.
"""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from pipeline.beam.documents import DocumentCounts, KeptDocument
from pipeline.beam.dropped import as_bytes
from pipeline.beam.plan import PreparePlan
from pipeline.filtering.minhash import Hashes, MinHasher, Signatures
from pipeline.tokenization.coverage import Coverage
from pipeline.tokenization.pretokenize import Ids, Lengths
from pipeline.tokenization.word_segmentation import segmenter
from pipeline.tokenization.wordpiece import WordPiece


def nested(ids: np.ndarray, lengths: np.ndarray, counts: np.ndarray) -> pa.ListArray:
    """Nest `ids` as list<list<...>>: `lengths` of sentences, `counts` of sentences per document."""

    def offsets(sizes: np.ndarray) -> pa.Array:
        return pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))

    return pa.ListArray.from_arrays(offsets(counts), pa.ListArray.from_arrays(offsets(lengths), pa.array(ids)))


def count(documents: pa.ListArray) -> int:
    """Return the number of ids in a nested array."""
    return len(documents.flatten().flatten())


def take(documents: pa.ListArray, order: np.ndarray) -> pa.ListArray:
    """Return the documents at the places `order` `(K,)` of a nested array.

    A document's ids are copied as one string of bytes; Arrow's own `take` of nested lists copies
    one by one, which takes twenty times as long.
    """
    sentences = documents.values
    places = documents.offsets.to_numpy()
    offsets = sentences.offsets.to_numpy()
    counts = np.diff(places)[order]
    lengths = _rows(np.diff(offsets), places, order)
    return nested(_rows(sentences.values.to_numpy(), offsets[places], order), lengths, counts)


def _rows(values: np.ndarray, bounds: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return `values[bounds[k] : bounds[k + 1]]` of each k in `order`, one after another."""
    offsets = bounds.astype(np.int64) * values.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    rows = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
    taken = rows.take(pa.array(order))
    _, ends, data = taken.buffers()
    size = np.frombuffer(ends, np.int64)[len(taken)] // values.itemsize
    return np.frombuffer(data, values.dtype, size)


OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
MOST_HASHES = 2**20  # of documents that a reading task remembers, 0.15 GB


class TokenizedDocuments:
    """The tokenized documents of a reading task."""

    def __init__(self, plan: PreparePlan, account: DocumentCounts):
        self.plan, self.account = plan, account
        self.coverage = Coverage()
        self.most: dict[bytes, int] = {}  # largest number of copies of each kept document
        near = plan.config.filters.near_duplicates is not None
        self.signer = MinHasher(plan.config.filters) if near else None
        self.hashes: list[bytes] = []
        self.signatures: list[np.ndarray] = []
        self.cut = segmenter(plan.config.words) if plan.config.words else None

    def add(self, wordpiece: WordPiece, chunk: list[KeptDocument]) -> pa.Table:
        """Tokenize a chunk of documents; those without a token count as empty.

        Of equal documents, only the first and those with more copies than before are kept, so that
        the task that writes them does not have to read all others.
        """
        ids, lengths = self.tokens_of(wordpiece, chunk)
        counts = np.array([len(each.sentences) for each in chunk], np.int64)
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
        for each in itertools.compress(chunk, ~kept):
            self.account.drop(each.id, "empty")
        new = np.array([self.is_new(each) for each in documents], np.bool_)
        if not new.all():
            for each in itertools.compress(documents, ~new):
                self.account.drop(each.id, "duplicate")
            table = table.filter(pa.array(new))
            documents = list(itertools.compress(documents, new))
        if self.signer is not None and documents:
            self.hashes += [each.hash for each in documents]
            self.signatures.append(self.signer.sign([each.text for each in documents]))
        return table

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

    def signed(self) -> tuple[Hashes, Signatures] | None:
        """Return the hashes and MinHash signatures of the documents, equal ones once."""
        if not self.hashes:
            return None
        hashes = as_numbers(self.hashes)
        _, first = np.unique(hashes, axis=0, return_index=True)
        return hashes[first], np.concatenate(self.signatures)[first]


def in_portions(tables: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    """Yield the documents of all tables, in portions of about `most` tokens."""
    held: list[pa.Table] = []
    tokens = 0
    for table in filter(len, tables):
        held.append(table)
        tokens += sum(map(count, table["ids"].chunks))
        if tokens > most:
            yield pa.concat_tables(held)
            held, tokens = [], 0
    if held:
        yield pa.concat_tables(held)


def by_bucket(table: pa.Table, bounds: list[int]) -> Iterator[tuple[int, pa.Buffer]]:
    """Yield k and the packed documents of buckets `bounds[k]` to `bounds[k + 1]`, where there are any.

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
    for k, (low, high) in enumerate(itertools.pairwise(places)):
        if low < high:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema, options=OPTIONS) as writer:
                writer.write_batch(batch.slice(low, high - low))
            yield k, sink.getvalue()


def unpack(blob: pa.Buffer) -> pa.Table:
    """Return the documents of a blob."""
    return pa.ipc.open_stream(blob).read_all()


def as_numbers(hashes: Iterable[bytes]) -> np.ndarray:
    """Convert 16-byte hashes to pairs of big-endian numbers, `(N, 2)` uint64."""
    return np.frombuffer(b"".join(hashes), dtype=">u8").reshape(-1, 2).astype(np.uint64)
