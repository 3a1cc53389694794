"""Tokenized documents between the phases of `prepare`: by split when written, by bucket when read.

The file of a split holds all its documents; record batch k those of bucket k.
"""

import itertools

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
        """Write record batch k with the documents of bucket k, for all k; returns those in use."""
        names, path = self.plan.shard_names(), self.plan.split_file(index)
        table = pa.concat_tables(self.rows) if self.rows else None
        bucket = table["bucket"].to_numpy() if table else np.zeros(0, np.int32)
        order = np.argsort(bucket, kind="stable")
        bounds = np.searchsorted(bucket[order], np.arange(len(names) + 1))
        if table is None:
            return []
        documents = table.select(["hash", "copies", "ids"]).combine_chunks()
        if self.signer is not None:
            signed = np.concatenate(self.signatures)
            minhash.save(self.plan.signatures(index), hash_columns(documents["hash"]), signed)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            atomic_path(path) as temporary,
            pa.ipc.new_file(str(temporary), documents.schema, options=options) as writer,
        ):
            for low, high in itertools.pairwise(bounds):
                part = documents.take(pa.array(order[low:high]))
                empty = pa.RecordBatch.from_pylist([], schema=part.schema)
                writer.write_batch(next(iter(part.combine_chunks().to_batches()), empty))
        return [k for k in range(len(names)) if bounds[k] < bounds[k + 1]]


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
    plan: PreparePlan, bucket: int, splits: list[int]
) -> tuple[Documents, np.ndarray, dict[str, int]]:
    """The documents of a bucket that stay, the copies `(D,)` of each, and how many went, by fate.

    They are in the order of their hashes, so how they were read does not matter.
    """
    parts = []
    for index in splits:
        with pa.ipc.open_file(pa.memory_map(str(plan.split_file(index)))) as reader:
            parts.append(reader.get_batch(bucket))
    table = pa.Table.from_batches(parts).combine_chunks()
    parts.clear()  # a bucket is large: one copy of it goes before the next one comes
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
    del table
    pa.default_memory_pool().release_unused()
    inner = ids.flatten()
    documents = Documents(
        tokens=inner.flatten().to_numpy(zero_copy_only=True),
        sentences=np.concatenate([[0], np.cumsum(inner.value_lengths().to_numpy())]),
        starts=np.concatenate([[0], np.cumsum(ids.value_lengths().to_numpy())]),
        keys=raw[order, 0] ^ raw[order, 1],
    )
    return documents, copies, fates


def hash_keys(raw: np.ndarray) -> np.ndarray:
    """Hashes of two numbers each as single things, `(N,)`, that compare."""
    return np.ascontiguousarray(raw).reshape(-1, 2).view("V16").ravel()
