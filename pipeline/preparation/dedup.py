"""Equal documents within a reading task, and those that `filters.remove` names."""

import itertools
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from pipeline.common.counter_rng import Bools
from pipeline.filtering import filters
from pipeline.filtering.minhash import Hashes, Signatures
from pipeline.preparation.documents import DocumentCounts
from pipeline.preparation.dropped import from_bytes
from pipeline.preparation.plan import PreparePlan
from pipeline.preparation.shuffle import token_counts

GONE = 2**16 - 1  # as copies: `filters.remove` names this document, and none that is equal is written


MOST_HASHES = 2**20  # of documents that a reading task remembers, 0.15 GB


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
        tokens = token_counts(batch["ids"])
        self.account.lost.update(duplicate=int(tokens[~new].sum()), filtered=int(tokens[gone].sum()))
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
        removed = np.zeros(len(hashes), np.bool_)
        for index, (digest, name) in enumerate(zip(hashes, map(from_bytes, ids.to_pylist()), strict=True)):
            for line in filters.named(self.removed, name, digest):
                self.account.removed[line] += 1
                removed[index] = True
            if removed[index]:
                self.account.drop(name, "filtered", f"{filters.REMOVED} {digest.hex()}")
                self.account.filtered[filters.REMOVED] += 1
        return removed

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


def as_numbers(hashes: Iterable[bytes]) -> np.ndarray:
    """Convert 16-byte hashes to pairs of big-endian numbers, `(N, 2)` uint64."""
    return np.frombuffer(b"".join(hashes), dtype=">u8").reshape(-1, 2).astype(np.uint64)
