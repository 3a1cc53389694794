"""Tokenized documents between the phases of `prepare`: written by split, read by bucket.

The file of a split holds all its documents, in batches as defined by `pipeline.beam.exchange`.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.beam import trace
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
    """Buffer of the tokenized documents of one split, until they are written by bucket."""

    def __init__(self, plan: PreparePlan):
        self.plan = plan
        self.tokens = 0
        self.empty: list[KeptDocument] = []  # documents without a token
        self.traces = trace.Trace.of(plan.config) is not None
        self.rows: list[pa.Table] = []
        near = plan.config.filters.near_duplicates is not None
        self.signer = MinHasher(plan.config.filters) if near else None
        self.signatures: list[np.ndarray] = []
        self.cut = segmenter(plan.config.words) if plan.config.words else None

    def add(self, wordpiece: WordPiece, chunk: list[KeptDocument]) -> None:
        """Tokenize a chunk of documents; those without a token count as empty."""
        if not chunk:
            return
        sentences = [s for each in chunk for s in each.sentences]
        if wordpiece.spaced:  # as it was in the text, where only the first had none before it
            sentences = [
                f" {sentence}" if number else sentence
                for each in chunk
                for number, sentence in enumerate(each.sentences)
            ]
        ids, lengths = self.tokens_of(wordpiece, sentences)
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
        if self.traces:
            table = table.append_column("id", [trace.id_column([each.id for each in documents])])
            table = table.append_column("number", [[each.number for each in documents]])
        self.tokens += len(ids)
        self.empty += itertools.compress(chunk, ~kept)
        self.rows.append(table)
        if self.signer is not None:
            self.signatures.append(self.signer.sign([each.text for each in documents]))

    def tokens_of(self, wordpiece: WordPiece, sentences: list[str]) -> tuple[Ids, Lengths]:
        """Return the ids of all sentences as stored in shards, and the token counts."""
        if self.cut is None:
            return wordpiece.encode(sentences)
        ids, lengths, goes_on = wordpiece.encode_words(sentences, self.cut)
        return self.plan.info.marked(ids, goes_on), lengths

    def write(self, index: int) -> list[int]:
        """Write record batch k with the documents of bucket range k; return ranges in use."""
        if not any(map(len, self.rows)):
            return []
        table = pa.concat_tables(self.rows)
        if self.signer is not None:
            signed = np.concatenate(self.signatures)
            minhash.save(self.plan.signatures(index), hash_columns(table["hash"]), signed)
        if self.traces:
            table = table.append_column("split", [pa.array([index] * len(table), pa.int64())])
        exchange = self.plan.exchange
        bounds = [exchange.first(k) for k in range(exchange.ranges + 1)]
        return write_batches(table, self.plan.split_file(index), bounds, exchange.merges)


def write_batches(table: pa.Table, path: Path, bounds: list[int], keep: bool) -> list[int]:
    """Write batch k with the documents of buckets `bounds[k]` to `bounds[k + 1]`.

    Returns the batches that have documents. `keep`: store the bucket column.
    """
    bucket = table["bucket"].to_numpy()
    order = np.argsort(bucket, kind="stable")
    places = np.searchsorted(bucket[order], bounds)
    columns = table if keep else table.drop_columns(["bucket"])
    # One copy sorted by bucket, sliced into batches: for small batches, a copy of each would cost
    # more than its bytes.
    (batch,) = columns.take(pa.array(order)).combine_chunks().to_batches()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        atomic_path(path) as temporary,
        pa.ipc.new_file(str(temporary), batch.schema, options=options) as writer,
    ):
        for low, high in itertools.pairwise(places):
            writer.write_batch(batch.slice(low, high - low))
    return [k for k, (low, high) in enumerate(itertools.pairwise(places)) if low < high]


def merge(plan: PreparePlan, group: int, index: int, splits: list[int]) -> list[int]:
    """Write the documents of a group of splits in a bucket range; return the buckets in use."""
    low, high = plan.exchange.first(index), plan.exchange.first(index + 1)
    table = read_batches([(plan.split_file(split), index) for split in splits])
    if not len(table):
        return []
    bounds = list(range(low, high + 1))
    used = write_batches(table, plan.merged_file(group, index), bounds, keep=False)
    return [low + k for k in used]


def read_batches(places: list[tuple[Path, int]]) -> pa.Table:
    """Return the documents in these batches, given as (file, batch)."""
    parts = []
    for path, index in places:
        with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
            parts.append(reader.get_batch(index))
    return pa.Table.from_batches(parts)


def places_of(plan: PreparePlan, bucket: int, sources: list[int]) -> list[tuple[Path, int]]:
    """Return the files, and the batch in each, that hold a bucket's documents of these sources."""
    exchange = plan.exchange
    if not exchange.merges:
        return [(plan.split_file(split), bucket) for split in sources]
    index = exchange.range_of(bucket)
    batch = bucket - exchange.first(index)
    return [(plan.merged_file(group, index), batch) for group in sources]


def hash_columns(hashes: pa.ChunkedArray) -> np.ndarray:
    """Convert 16-byte hashes to pairs of big-endian numbers, `(N, 2)` uint64."""
    raw = b"".join(hashes.to_pylist())
    return np.frombuffer(raw, dtype=">u8").reshape(-1, 2).astype(np.uint64)


def nested(ids: np.ndarray, lengths: np.ndarray, counts: np.ndarray) -> pa.Array:
    """Nest `ids` as list<list<...>>: `lengths` of sentences, `counts` of sentences per document."""

    def offsets(sizes: np.ndarray) -> pa.Array:
        return pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))

    return pa.ListArray.from_arrays(
        offsets(counts), pa.ListArray.from_arrays(offsets(lengths), pa.array(ids))
    )


@dataclass(frozen=True)
class Bucket:
    """The documents of a bucket that are kept, in the order of their hashes."""

    documents: Documents
    copies: np.ndarray  # (D,)
    words: np.ndarray  # (D,) separated by white space
    dropped: dict[str, int]  # how many were left out, by outcome
    origins: trace.Origins | None  # of a job that traces


def load_bucket(plan: PreparePlan, bucket: int, sources: list[int]) -> Bucket:
    """Load the documents of a bucket, however they were read.

    `sources` are the splits that have documents of it, or the groups where splits are merged.
    """
    table = read_batches(places_of(plan, bucket, sources)).combine_chunks()
    raw, copies = hash_columns(table["hash"]), table["copies"].to_numpy()
    # Keep the equal document with the most copies: weights differ between corpora.
    order = np.lexsort((-copies.astype(np.int64), raw[:, 1], raw[:, 0]))
    distinct = np.ones(len(order), np.bool_)
    distinct[1:] = (raw[order][1:] != raw[order][:-1]).any(axis=1)
    ordered, order = order, order[distinct]
    hashes = raw[order]
    found = near_duplicates(plan)
    near = np.isin(hash_keys(hashes), hash_keys(found[:, :2]))
    origins = None
    if "number" in table.column_names:
        origins = trace.Origins(
            table=table.select(trace.COLUMNS).take(pa.array(ordered)), hashes=hashes,
            group=np.cumsum(distinct) - 1, near=near, similar=similar_to(hashes, found),
            named=np.isin(hash_keys(hashes), hash_keys(found[:, 2:])),
        )  # fmt: skip
    dropped = {"duplicate": len(distinct) - len(order), "filtered": int(near.sum())}
    order = order[~near]
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
    return Bucket(documents, copies, words, dropped, origins)


def near_duplicates(plan: PreparePlan) -> np.ndarray:
    """Return hashes of documents to leave out and of those that they are similar to: `(N, 4)`."""
    if plan.config.filters.near_duplicates is None:
        return np.zeros((0, 4), np.uint64)
    return np.fromfile(plan.near_duplicates(), np.uint64).reshape(-1, 4)


def similar_to(hashes: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return the hash of the document that each of `hashes` `(K, 2)` is similar to, 0 if none is.

    `found` is as `near_duplicates` returns it.
    """
    keys = hash_keys(found[:, :2])
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys[order], hash_keys(hashes))
    similar = np.zeros_like(hashes)
    for row, index in enumerate(place.tolist()):
        if index < len(order) and (found[order[index], :2] == hashes[row]).all():
            similar[row] = found[order[index], 2:]
    return similar


def hash_keys(raw: np.ndarray) -> np.ndarray:
    """View hashes of two numbers as single comparable values, `(N,)`."""
    return np.ascontiguousarray(raw).reshape(-1, 2).view("V16").ravel()
