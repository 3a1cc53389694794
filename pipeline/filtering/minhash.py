"""Near duplicates by MinHash: signatures in phase 1, one comparison of all before phase 2.

A document is dropped if one with a smaller hash is at least `threshold` similar. The rule is
independent of order: the result is the same on any runner, for any number of workers and any order
of files. Held-out documents have the smallest hashes, so it is their copies in training that are
dropped.

Signatures by Broder 1997, candidates by banding (Leskovec, Rajaraman and Ullman, Mining of Massive
Datasets, section 3.4); each candidate pair is verified by its full signatures.

Shapes: N documents, P permutations.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.common import counter_rng
from pipeline.common.atomic import atomic_path
from pipeline.common.errors import ConfigError
from pipeline.config import FiltersConfig
from pipeline.filtering import ngrams

Hashes = npt.NDArray[np.uint64]  # (N, 2): the 16 bytes of a document's hash
Signatures = npt.NDArray[np.uint32]  # (N, P)

SEED = 1  # of the permutations
RECALL = 0.98  # minimum share of pairs at the threshold that become candidates
_ROWS = 1 << 15  # documents compared at once with two others: 64 MB of signatures


class MinHasher:
    """Signatures of texts, computed with `rensa`."""

    def __init__(self, config: FiltersConfig):
        try:
            import rensa
        except ImportError as error:
            raise ConfigError(
                f"rensa is not installed ({error}); run pip install rensa", "filters.near_duplicates"
            ) from error
        self.minhash: Any = rensa.RMinHash
        self.permutations, self.shingle = config.permutations, config.shingle

    def sign(self, texts: Sequence[str]) -> Signatures:
        """Return the signatures `(N, P)` of the texts' sets of word n-grams (n = `shingle`)."""
        rows = [self._shingles(text) for text in texts]
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.uint64)
        flat = np.concatenate([np.zeros(0, np.uint64), *rows])
        matrix = self.minhash.digest_matrix_from_flat_token_hashes(flat, offsets, self.permutations, SEED)
        return np.array(matrix.to_rows(), np.uint32).reshape(len(texts), self.permutations)

    def _shingles(self, text: str) -> counter_rng.Bits:
        """Return the shingles' hashes; a text shorter than a shingle is one shingle.

        A text without words is only similar to an equal one.
        """
        words = ngrams.words(text) or [text]
        return ngrams.hashes(words, min(self.shingle, len(words)))


def rows_per_band(permutations: int, threshold: float) -> int:
    """Return the most rows per band for which pairs at the threshold reach `RECALL`."""
    for rows in range(permutations, 1, -1):
        if 1 - (1 - threshold**rows) ** (permutations // rows) >= RECALL:
            return rows
    return 1


def find_duplicates(paths: Sequence[Path], permutations: int, threshold: float) -> tuple[Hashes, Hashes]:
    """Return the hashes of documents to leave out, sorted, and of those that they are similar to.

    `paths` are files that `save` wrote.
    """
    files = [load(path, permutations) for path in paths]
    hashes = np.concatenate([np.zeros((0, 2), np.uint64), *(hashes for hashes, _ in files)])
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    distinct = np.ones(len(order), np.bool_)
    distinct[1:] = (hashes[order][1:] != hashes[order][:-1]).any(axis=1)
    order = order[distinct]  # (N,) sorted by hash, equal documents once
    signatures = [signature for _, signature in files]
    dropped, similar = np.zeros(len(order), np.bool_), np.zeros(len(order), np.int64)
    rows = rows_per_band(permutations, threshold)
    for first in range(0, permutations - rows + 1, rows):
        parts = (part[:, first : first + rows] for part in signatures)
        band = np.concatenate([np.zeros((0, rows), np.uint32), *parts])[order]
        first_of_run, before, larger = candidates(band)
        for start in range(0, len(larger), _ROWS):
            part = slice(start, start + _ROWS)
            # The last of equal indices counts: the pair with the one before.
            a, b = np.concatenate([first_of_run[part], before[part]]), np.tile(larger[part], 2)
            open_pairs = ~dropped[b]
            a, b = a[open_pairs], b[open_pairs]
            equal = gather_rows(signatures, order[a]) == gather_rows(signatures, order[b])
            like = equal.mean(axis=1) >= threshold
            dropped[b[like]], similar[b[like]] = True, a[like]
    return hashes[order[dropped]], hashes[order[similar[dropped]]]


def band_keys(band: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """Return a number for each row, equal where rows are."""
    key = np.zeros(len(band), np.uint64)
    for column in band.T:
        key = counter_rng.random_bits(key, column)
    return key


def candidates(band: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[np.int64], ...]:
    """Return each row that is not the first with its band, after that first and the one before."""
    key = band_keys(band)
    order = np.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    later = np.flatnonzero(same) + 1  # positions in `order` of all but the first of each run
    starts = np.where(np.concatenate([[False], same]), 0, np.arange(len(key)))
    first = np.maximum.accumulate(starts)[later]
    return order[first], order[later - 1], order[later]


def gather_rows(parts: Sequence[Signatures], rows: npt.NDArray[np.int64]) -> Signatures:
    """Return rows of the concatenated matrices: `(len(rows), P)`."""
    ends = np.cumsum([len(part) for part in parts])
    owner = np.searchsorted(ends, rows, side="right")
    found = np.zeros((len(rows), parts[0].shape[1] if parts else 0), np.uint32)
    for index in np.unique(owner):
        mine = owner == index
        found[mine] = parts[index][rows[mine] - (ends[index] - len(parts[index]))]
    return found


def save(path: Path, hashes: Hashes, signatures: Signatures) -> None:
    """Write all hashes, then all signatures, as raw little-endian numbers."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(hashes.astype("<u8").tobytes())
        file.write(signatures.astype("<u4").tobytes())


def load(path: Path, permutations: int) -> tuple[Hashes, Signatures]:
    """Return hashes `(N, 2)` and memory-mapped signatures `(N, P)` of a file."""
    count = path.stat().st_size // (16 + 4 * permutations)
    if not count:
        return np.zeros((0, 2), np.uint64), np.zeros((0, permutations), np.uint32)
    hashes = np.fromfile(path, "<u8", 2 * count).reshape(count, 2)
    signatures = np.memmap(path, "<u4", "r", 16 * count, (count, permutations))
    return hashes, signatures
