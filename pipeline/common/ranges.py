"""Ranges of an array: where pieces laid end to end begin, and the places of some of them."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.common.counter_rng import Ints


def bounds_of(sizes: npt.ArrayLike) -> Ints:
    """Return where each of some pieces laid end to end begins, and the end of the last."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def ranges(first: npt.NDArray[np.integer[Any]], counts: Ints) -> Ints:
    """Concatenate the ranges of `counts[k]` numbers from `first[k]` on."""
    numbers: Ints = np.repeat(first - (np.cumsum(counts) - counts), counts)
    numbers += np.arange(len(numbers))
    return numbers
