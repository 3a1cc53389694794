"""Tokenized documents between the phases of `prepare`: by split when written, by bucket when read.

The file of a split holds all its documents, batch by batch as `pipeline.beam.exchange` says.
"""

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.beam.documents import KeptDocument
from pipeline.beam.plan import PreparePlan
from pipeline.common.atomic import atomic_path
from pipeline.filtering import minhash
from pipeline.filtering.minhash import MinHasher
from pipeline.shards.sentence_pairs import Documents
from pipeline.tokenization.pretokenize import Ids, Lengths
from pipeline.tokenization.word_segmentation import segmenter
from pipeline.tokenization.wordpiece import WordPiece


class SplitDocuments:
    """The tokenized documents of one split, until they are written bucket by bucket."""

    def __init__(self, plan: PreparePlan):
        self.plan = plan
        self.tokens = self.empty = 0
        self.rows: list[pa.Table] = []
        near = plan.config.filters.near_duplicates is not None
        self.signer = MinHasher(plan.config.filters) if near else None
        self.signatures: list[np.ndarray] = []
        self.cut = segmenter(plan.config.words) if plan.config.words else None

    def add(self, wordpiece: WordPiece, chunk: list[KeptDocument]) -> None:
        """Tokenize a chunk of documents; those without a token count as empty."""
        if not chunk:
            return
        ids, lengths = self.tokens_of(wordpiece, [s for each in chunk for s in each.sentences])
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
                "ids": nested(ids, lengths, sentence_counts[kept]),
            }
        )
        self.tokens += len(ids)
        self.empty += int((~kept).sum())
        self.rows.append(table)
        if self.signer is not None:
            self.signatures.append(self.signer.sign([each.text for each in documents]))

    def tokens_of(self, wordpiece: WordPiece, sentences: list[str]) -> tuple[Ids, Lengths]:
        """Ids of all sentences as shards have them, and the tokens of each."""
        if self.cut is None:
            return wordpiece.encode(sentences)
        ids, lengths, goes_on = wordpiece.encode_words(sentences, self.cut)
        return self.plan.info.marked(ids, goes_on), lengths

    def write(self, index: int) -> list[int]:
        """Write record batch k with the documents of range k of buckets; returns those in use."""
        if not any(map(len, self.rows)):
            return []
        table = pa.concat_tables(self.rows)
        if self.signer is not None:
            signed = np.concatenate(self.signatures)
            minhash.save(self.plan.signatures(index), hash_columns(table["hash"]), signed)
        exchange = self.plan.exchange
        bounds = [exchange.first(k) for k in range(exchange.ranges + 1)]
        return write_batches(table, self.plan.split_file(index), bounds, exchange.merges)


def write_batches(table: pa.Table, path: Path, bounds: list[int], keep: bool) -> list[int]:
    """Write batch k with the documents of buckets `bounds[k]` to `bounds[k + 1]`.

    Their buckets are left out unless `keep` says that somebody needs them. Returns the batches
    that have documents.
    """
    bucket = table["bucket"].to_numpy()
    order = np.argsort(bucket, kind="stable")
    places = np.searchsorted(bucket[order], bounds)
    columns = table if keep else table.drop_columns(["bucket"])
    # One copy in the order of the buckets, of which batches are parts: of a batch each, a copy of
    # its own would cost more than its bytes where they are small.
    (batch,) = columns.take(pa.array(order)).combine_chunks().to_batches()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        atomic_path(path) as beside,
        pa.ipc.new_file(str(beside), batch.schema, options=options) as writer,
    ):
        for low, high in itertools.pairwise(places):
            writer.write_batch(batch.slice(low, high - low))
    return [k for k, (low, high) in enumerate(itertools.pairwise(places)) if low < high]


def merge(plan: PreparePlan, group: int, index: int, splits: list[int]) -> list[int]:
    """Write the documents of a group of splits in a range of buckets; returns those in use."""
    low, high = plan.exchange.first(index), plan.exchange.first(index + 1)
    table = read_batches([(plan.split_file(split), index) for split in splits])
    if not len(table):
        return []
    bounds = list(range(low, high + 1))
    used = write_batches(table, plan.merged_file(group, index), bounds, keep=False)
    return [low + k for k in used]


def read_batches(places: list[tuple[Path, int]]) -> pa.Table:
    """The documents in these batches of these files."""
    parts = []
    for path, index in places:
        with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
            parts.append(reader.get_batch(index))
    return pa.Table.from_batches(parts)


def places_of(plan: PreparePlan, bucket: int, sources: list[int]) -> list[tuple[Path, int]]:
    """Where a bucket's documents of these sources are: files, and the batch in each."""
    exchange = plan.exchange
    if not exchange.merges:
        return [(plan.split_file(split), bucket) for split in sources]
    index = exchange.range_of(bucket)
    batch = bucket - exchange.first(index)
    return [(plan.merged_file(group, index), batch) for group in sources]


def hash_columns(hashes: pa.ChunkedArray) -> np.ndarray:
    """16-byte hashes as two numbers each, `(N, 2)` uint64, in the order of the bytes."""
    raw = b"".join(hashes.to_pylist())
    return np.frombuffer(raw, dtype=">u8").reshape(-1, 2).astype(np.uint64)


def nested(ids: np.ndarray, lengths: np.ndarray, counts: np.ndarray) -> pa.Array:
    """`ids` as list<list<...>>: sentences of `lengths` tokens, documents of `counts` sentences."""

    def offsets(sizes: np.ndarray) -> pa.Array:
        return pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))

    return pa.ListArray.from_arrays(
        offsets(counts), pa.ListArray.from_arrays(offsets(lengths), pa.array(ids))
    )


def load_bucket(
    plan: PreparePlan, bucket: int, sources: list[int]
) -> tuple[Documents, np.ndarray, np.ndarray, dict[str, int]]:
    """Return the documents of a bucket that stay, and how many went, by fate.

    Between the two are the copies and the words of each, `(D,)`.

    They are in the order of their hashes, so how they were read does not matter. `sources` are the
    splits that have documents of it, or the groups where splits are merged.
    """
    table = read_batches(places_of(plan, bucket, sources)).combine_chunks()
    raw, copies = hash_columns(table["hash"]), table["copies"].to_numpy()
    # Of equal documents the one stays that has the most copies: weights differ between corpora.
    order = np.lexsort((-copies.astype(np.int64), raw[:, 1], raw[:, 0]))
    distinct = np.ones(len(order), np.bool_)
    distinct[1:] = (raw[order][1:] != raw[order][:-1]).any(axis=1)
    order = order[distinct]
    fates = {"duplicate": len(distinct) - len(order), "filtered": 0}
    if plan.config.filters.near_duplicates is not None:
        found = np.fromfile(plan.near_duplicates(), np.uint64)
        taken = np.isin(hash_keys(raw[order]), hash_keys(found))
        fates["filtered"] = int(taken.sum())
        order = order[~taken]
    ids, copies = table["ids"].combine_chunks().take(pa.array(order)), copies[order]
    words = table["words"].to_numpy()[order]
    del table
    pa.default_memory_pool().release_unused()
    inner = ids.flatten()
    documents = Documents(
        tokens=inner.flatten().to_numpy(zero_copy_only=True),
        sentences=np.concatenate([[0], np.cumsum(inner.value_lengths().to_numpy())]),
        starts=np.concatenate([[0], np.cumsum(ids.value_lengths().to_numpy())]),
        keys=raw[order, 0] ^ raw[order, 1],
    )
    return documents, copies, words, fates


def hash_keys(raw: np.ndarray) -> np.ndarray:
    """Hashes of two numbers each as single things, `(N,)`, that compare."""
    return np.ascontiguousarray(raw).reshape(-1, 2).view("V16").ravel()
