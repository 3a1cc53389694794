"""Near duplicates by MinHash: signatures in phase 1, compared before phase 2.

A document is dropped if one with a smaller hash is at least `threshold` similar. The rule is
independent of order: the result is the same on any runner, for any number of workers and any order
of files. Held-out documents have the smallest hashes, so it is their copies in training that are
dropped.

Signatures by Broder 1997, candidates by banding (Leskovec, Rajaraman and Ullman, Mining of Massive
Datasets, section 3.4); each candidate pair is verified by its full signatures.

A signature gives one entry per band. Tasks that have all entries of some bands pair documents whose
bands are equal (`candidate_pairs`); tasks that have the signatures of both documents of a pair keep
the larger of similar ones (`near_duplicates`). No signature is moved but to those tasks.

Shapes: N documents, P permutations. Tables are of uint64, one row per entry or pair; a document is
the two numbers of its hash:

    entries  (E, 4)  band (`GONE`: pair none of that document), its key, document  32 bytes
    pairs    (C, 4)  larger document, smaller document                     32 bytes
    wanted   (W, 3)  task that needs the signature of the document, it     24 bytes
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.common import counter_rng
from pipeline.common.counter_rng import Bits
from pipeline.common.schema import library
from pipeline.config import FiltersConfig
from pipeline.filtering import ngrams
from pipeline.filtering.ngrams import Places

Hashes = Bits  # (N, 2): the 16 bytes of a document's hash
Signatures = npt.NDArray[np.uint32]  # (N, P)

SEED = 1  # of the permutations
RECALL = 0.98  # minimum share of pairs at the threshold that become candidates


class MinHasher:
    """Signatures of texts, computed with `rensa`."""

    def __init__(self, config: FiltersConfig):
        self.minhash = library("rensa", "filters.near_duplicates").RMinHash
        self.permutations, self.shingle = config.permutations, config.shingle

    def sign(self, texts: Sequence[str]) -> Signatures:
        """Return the signatures `(N, P)` of the texts' sets of word n-grams (n = `shingle`)."""
        words = ngrams.numbers_of(texts)
        all_shingles = ngrams.hashes(np.concatenate([np.zeros(0, np.uint64), *words]), self.shingle)
        rows, end = [], 0
        for text, own in zip(texts, words, strict=True):
            end += len(own)
            first, last = end - len(own), end - self.shingle + 1
            rows.append(all_shingles[first:last] if last > first else short(text, own))
        offsets = np.cumsum([0, *map(len, rows)]).astype(np.uint64)
        flat = np.concatenate([np.zeros(0, np.uint64), *rows])
        matrix = self.minhash.digest_matrix_from_flat_token_hashes(flat, offsets, self.permutations, SEED)
        return np.array(matrix.to_rows(), np.uint32).reshape(len(texts), self.permutations)


def short(text: str, words: Bits) -> Bits:
    """Return the only shingle of a text with fewer words; without a word it is similar only to an equal text."""
    if not len(words):
        (words,) = ngrams.numbers_of([text.encode("utf-8", "surrogatepass").hex()])
    return ngrams.hashes(words, len(words))


def rows_per_band(permutations: int, threshold: float) -> int:
    """Return the most rows per band for which pairs at the threshold reach `RECALL`."""
    for rows in range(permutations, 1, -1):
        if 1 - (1 - threshold**rows) ** (permutations // rows) >= RECALL:
            return rows
    return 1


def sent_bytes(permutations: int, threshold: float) -> int:
    """Return the bytes that a document sends to be compared: its signature, and an entry for each band."""
    return 4 * permutations + 8 * ENTRY * (permutations // rows_per_band(permutations, threshold))


Rows = Bits
ENTRY, PAIR, WANTED, HASH = 4, 4, 3, 4  # columns
GONE = np.uint64(2**63)  # a bit of the band
_ROWS = 1 << 14  # pairs compared at once: 16 MB of signatures


def band_entries(hashes: Hashes, signatures: Signatures, threshold: float) -> Rows:
    """Return the entries of all bands of some documents."""
    permutations = signatures.shape[1]
    rows = rows_per_band(permutations, threshold)
    tables = [np.zeros((0, ENTRY), np.uint64)]
    for band, first in enumerate(range(0, permutations - rows + 1, rows)):
        key = np.zeros(len(hashes), np.uint64)  # equal where the band is
        for column in signatures[:, first : first + rows].T:
            key = counter_rng.random_bits(key, column)
        tables.append(np.column_stack([np.full(len(key), band, np.uint64), key, hashes]))
    return np.concatenate(tables)


def candidate_pairs(entries: Rows) -> Rows:
    """Return the pairs of documents with an equal band, each once.

    Each document is paired with the one before it in the order of hashes, and with the first.
    """
    _, kind, counts = np.unique(entries[:, 1], return_inverse=True, return_counts=True)
    entries = distinct(entries[counts[kind] > 1])  # whose key comes more than once: rows are dear to sort
    gone = entries[:, 0] >= GONE
    if gone.any():
        entries = entries[~np.isin(keys_of(entries[:, 2:]), keys_of(entries[gone, 2:]))]
    same = (entries[1:, :2] == entries[:-1, :2]).all(axis=1)
    later = np.flatnonzero(same) + 1  # all but the first of each run
    starts = np.where(np.concatenate([[False], same]), 0, np.arange(len(same) + 1))
    first = np.maximum.accumulate(starts)[later]
    smaller = np.concatenate([later - 1, first])
    return distinct(np.hstack([entries[np.tile(later, 2), 2:], entries[smaller, 2:]]))


def wanted_signatures(pairs: Rows, tasks: int) -> Rows:
    """Return which documents' signatures the task of the larger document of each pair needs."""
    task = pairs[:, 1] % np.uint64(tasks)
    documents = np.concatenate([pairs[:, :2], pairs[:, 2:]])
    return distinct(np.column_stack([np.tile(task, 2), documents]))


def near_duplicates(pairs: Rows, signed: Signatures, threshold: float) -> Hashes:
    """Return the larger document of each pair whose signatures are similar, in ascending order."""
    pairs = distinct(pairs)
    signatures = signed[:, HASH:]
    larger, smaller = (places(signed, pairs[:, k : k + 2]) for k in (0, 2))
    like = np.zeros(len(pairs), np.bool_)
    for start in range(0, len(pairs), _ROWS):
        part = slice(start, start + _ROWS)
        equal = signatures[larger[part]] == signatures[smaller[part]]
        like[part] = equal.mean(axis=1) >= threshold
    return distinct(pairs[like, :2])


def places(signed: Signatures, documents: Hashes) -> Places:
    """Return the rows of `documents` in a table that `joined` made.

    Raises:
        RuntimeError: the engine has lost a document.
    """
    known, asked = keys_of(signed[:, :HASH]), keys_of(documents)
    order = np.argsort(known, kind="stable")
    rows = np.searchsorted(known[order], asked)
    if len(asked) and (not len(order) or not np.isin(asked, known).all()):
        raise RuntimeError("the engine has lost the signature of a document")
    return order[rows]


def keys_of(hashes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """View hashes as single comparable values, `(N,)`."""
    return np.ascontiguousarray(hashes).view("V16").ravel()


def distinct(rows: Rows) -> Rows:
    """Return the rows in ascending order, each once."""
    rows = rows[np.lexsort(rows.T[::-1])]
    kept = np.ones(len(rows), np.bool_)
    kept[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return rows[kept]


def by_task(numbers: Bits, tasks: int) -> Iterator[tuple[int, Places]]:
    """Yield each task that has any of these entries, with their indices."""
    task = (numbers % np.uint64(tasks)).astype(np.int64)
    order = np.argsort(task, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(task[order])) + 1):
        if len(part):
            yield int(task[part[0]]), part


def from_bytes(parts: Iterable[bytes], columns: int, kind: type[Any] = np.uint64) -> npt.NDArray[Any]:
    """Return the rows of all parts of a table."""
    return np.frombuffer(b"".join(parts), kind).reshape(-1, columns)


def joined(hashes: Hashes, signatures: Signatures) -> Signatures:
    """Return hashes and signatures as one table `(N, HASH + P)`."""
    return np.hstack([hashes.view(np.uint32), signatures])
