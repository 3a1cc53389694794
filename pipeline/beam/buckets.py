"""Tokenized documents between the phases of `prepare`: parts by bucket.

A reading task sorts its documents by bucket and leaves one part for each range of buckets that
`pipeline.beam.exchange` defines: an Arrow stream, compressed by lz4. A task with several portions of
documents leaves as many parts for each range, in their order.
"""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from pipeline.beam import spent
from pipeline.beam.documents import DocumentCounts, Kept
from pipeline.beam.dropped import as_bytes, from_bytes
from pipeline.beam.plan import PreparePlan
from pipeline.common.batching import batches
from pipeline.common.counter_rng import Bools
from pipeline.common.ranges import bounds_of
from pipeline.filtering import filters
from pipeline.filtering.minhash import Hashes, MinHasher, Signatures
from pipeline.tokenization.coverage import Coverage
from pipeline.tokenization.pretokenize import Ids, Lengths
from pipeline.tokenization.word_segmentation import segmenter
from pipeline.tokenization.wordpiece import WordPiece


def nested(ids: np.ndarray, lengths: np.ndarray, counts: np.ndarray) -> pa.ListArray:
    """Nest `ids` as list<list<...>>: `lengths` of sentences, `counts` of sentences per document."""

    def offsets(sizes: np.ndarray) -> pa.Array:
        return pa.array(bounds_of(sizes).astype(np.int32))

    return pa.ListArray.from_arrays(offsets(counts), pa.ListArray.from_arrays(offsets(lengths), pa.array(ids)))


def token_count(table: pa.Table) -> int:
    """Return the number of tokens of a table's documents."""
    return sum(len(ids.flatten().flatten()) for ids in table["ids"].chunks)


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
GONE = 2**16 - 1  # as copies: `filters.remove` names this document, and none that is equal is written
MOST_HASHES = 2**20  # of documents that a reading task remembers, 0.15 GB


class TokenizedDocuments:
    """The tokenized documents of a reading task, and how many had no token."""

    def __init__(self, plan: PreparePlan, account: DocumentCounts):
        self.plan, self.account = plan, account
        self.coverage = Coverage()
        near = plan.config.filters.near_duplicates is not None
        self.signer = MinHasher(plan.config.filters) if near else None
        self.signed: set[bytes] = set()  # hashes of documents
        self.cut = segmenter(plan.config.words) if plan.config.words else None

    def add(self, wordpiece: WordPiece, chunk: Kept) -> pa.Table:
        """Tokenize a chunk of documents; those without a token count as empty."""
        with spent.on("tokenize"):
            ids, lengths = self.tokens_of(wordpiece, chunk)
        counts = np.array([len(each.sentences) for each in chunk], np.int64)
        owner = np.repeat(np.arange(len(chunk)), counts)[lengths > 0]
        lengths = lengths[lengths > 0]
        sentence_counts = np.bincount(owner, minlength=len(chunk))
        kept = sentence_counts > 0
        documents = list(itertools.compress(chunk, kept))
        for each in itertools.compress(chunk, ~kept):
            self.account.drop(each.id, "empty")
        with spent.on("near duplicates"):
            signatures = self.signatures(documents)
        return pa.table(
            {
                "hash": pa.array([each.hash for each in documents], pa.binary(16)),
                "copies": pa.array([each.copies for each in documents], pa.uint16()),
                "words": pa.array([each.words for each in documents], pa.int64()),
                "id": pa.array([as_bytes(each.id) for each in documents], pa.binary()),
                "signature": pa.array(signatures, pa.binary()),
                "ids": nested(ids, lengths, sentence_counts[kept]),
            }
        )

    def signatures(self, documents: Kept) -> list[bytes | None]:
        """Return the MinHash signature of each document, but of equal ones only that of the first."""
        if self.signer is None:
            return [None] * len(documents)
        new = {each.hash: each.text for each in documents if each.hash not in self.signed}
        if len(self.signed) < MOST_HASHES:
            self.signed.update(new)
        signed = dict(zip(new, map(bytes, self.signer.sign(list(new.values()))), strict=True)) if new else {}
        return [signed.pop(each.hash, None) for each in documents]

    def tokens_of(self, wordpiece: WordPiece, chunk: Kept) -> tuple[Ids, Lengths]:
        """Return the ids of all sentences as stored in shards, and the token counts."""
        sentences = [sentence for each in chunk for sentence in each.sentences]
        if self.cut is None:
            gaps = [gap for each in chunk for gap in each.gaps] if wordpiece.uncached else []
            return wordpiece.encode_within(sentences, gaps, self.coverage)
        ids, lengths, goes_on = wordpiece.encode_words(sentences, self.cut, self.coverage)
        return self.plan.info.marked(ids, goes_on), lengths


class NewDocuments:
    """The documents of a reading task that writing tasks get, with their buckets; `removed` ones are marked `GONE`."""

    def __init__(self, plan: PreparePlan, account: DocumentCounts, removed: frozenset[str]):
        self.plan, self.account, self.removed = plan, account, removed
        self.most: dict[bytes, int] = {}  # largest number of copies of each kept document
        self.signed: dict[bytes, bytes] = {}  # MinHash signatures by hash
        self.taken = set[bytes]()  # hashes of documents that may be near duplicates
        self.gone = set[bytes]()  # hashes of removed ones, which are not, whichever task has an equal one

    def take(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the documents of a batch that are new, with their buckets.

        Of equal documents, only the first and those with more copies than before are kept, so that
        the task that writes them does not have to read all others.
        """
        hashes, copies = batch["hash"].to_pylist(), batch["copies"].to_numpy()
        gone = self.is_removed(hashes, batch["id"]) if self.removed else np.zeros(len(hashes), np.bool_)
        copies = np.where(gone, np.uint16(GONE), copies)
        new = np.fromiter(map(self.is_new, hashes, copies.tolist()), np.bool_, len(hashes))
        for name in batch["id"].filter(pa.array(~new)).to_pylist():
            self.account.drop(from_bytes(name), "duplicate")
        if self.plan.config.filters.near_duplicates is not None:
            self.signed |= {h: s for h, s in zip(hashes, batch["signature"].to_pylist(), strict=True) if s is not None}
            self.taken.update(itertools.compress(hashes, new & ~gone))
            self.gone.update(itertools.compress(hashes, gone))
        table = pa.Table.from_batches([batch]).drop_columns(["signature", "copies"]).append_column("copies", [copies])
        buckets = pa.array([self.plan.bucket(each) for each in hashes], pa.int32())
        table = table.add_column(0, "bucket", buckets)
        return table if new.all() else table.filter(pa.array(new))

    def is_removed(self, hashes: list[bytes], ids: pa.Array) -> Bools:
        """Return which documents `filters.remove` names, and count them."""
        found = np.zeros(len(hashes), np.bool_)
        for index, (digest, name) in enumerate(zip(hashes, map(from_bytes, ids.to_pylist()), strict=True)):
            for line in filters.named(self.removed, name, digest):
                self.account.removed[line] += 1
                found[index] = True
            if found[index]:
                self.account.drop(name, "filtered", f"{filters.REMOVED} {digest.hex()}")
                self.account.filtered[filters.REMOVED] += 1
        return found

    def is_new(self, digest: bytes, copies: int) -> bool:
        """Return whether no equal document has come with as many copies; one that is gone is always new."""
        new = copies > self.most.get(digest, 0)
        if new and copies < GONE:  # what other tasks get must not depend on whether it came before an equal one
            if len(self.most) >= MOST_HASHES:  # the writing task finds the others
                self.most.clear()
            self.most[digest] = copies
        return new

    def signatures(self, wanted: set[bytes]) -> tuple[Hashes, Signatures]:
        """Return the hashes and MinHash signatures of documents, in the order of hashes."""
        hashes = sorted(self.signed.keys() & wanted)
        flat = np.frombuffer(b"".join(self.signed[each] for each in hashes), np.uint32)
        return as_numbers(hashes), flat.reshape(-1, self.plan.config.filters.permutations)


def in_portions(tables: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    """Return the documents of all tables, in portions of about `most` tokens."""
    return map(pa.concat_tables, batches(filter(len, tables), most + 1, token_count))


def by_bucket(table: pa.Table, bounds: list[int]) -> Iterator[tuple[int, pa.Buffer]]:
    """Yield k and the packed documents of buckets `bounds[k]` to `bounds[k + 1]`, where there are any.

    One copy sorted by bucket is sliced into parts: for small parts, a copy of each would cost
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
