"""Near duplicates by MinHash: signatures in phase 1, compared before phase 2.

A document is dropped if one with a smaller hash is at least `threshold` similar. The rule is
independent of order: the result is the same on any runner, for any number of workers and any order
of files. Held-out documents have the smallest hashes, so it is their copies in training that are
dropped.

Signatures by Broder 1997, candidates by banding (Leskovec, Rajaraman and Ullman, Mining of Massive
Datasets, section 3.4); each candidate pair is verified by its full signatures.

Shapes: N documents, P permutations.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.common import counter_rng
from pipeline.common.errors import ConfigError
from pipeline.config import FiltersConfig
from pipeline.filtering import ngrams

Hashes = npt.NDArray[np.uint64]  # (N, 2): the 16 bytes of a document's hash
Signatures = npt.NDArray[np.uint32]  # (N, P)

SEED = 1  # of the permutations
RECALL = 0.98  # minimum share of pairs at the threshold that become candidates


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


def band_keys(band: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """Return a number for each row, equal where rows are."""
    key = np.zeros(len(band), np.uint64)
    for column in band.T:
        key = counter_rng.random_bits(key, column)
    return key
