"""Sequences of full sentences, without pairs: Liu et al. 2019 (RoBERTa), section 4.2.

Shapes: T tokens, S sentences, D documents, N sequences.
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.common import counter_rng
from pipeline.shards.sentence_pairs import Documents, Ints, Pairs


@dataclasses.dataclass(frozen=True)
class Stream:
    """Documents concatenated in some order, optionally with separators."""

    tokens: npt.NDArray[Any]  # (T,)
    starts: Ints  # (S,) of each sentence in `tokens`
    ends: Ints  # (S,)
    limits: Ints  # (S,) sentence before which a sequence containing this one must end


def stream(documents: Documents, order: Ints, longest: int, separator: int | None) -> Stream:
    """Concatenate the documents in this order; split sentences of more than `longest` tokens.

    With a `separator` (an id) between documents, a sequence may span several; without, it ends with
    its document.
    """
    bounds = documents.sentences[documents.starts]  # (D+1,) of documents in tokens
    sizes = np.diff(bounds)[order] + (separator is not None)
    begins = np.cumsum(sizes) - sizes  # (D,) start of each document in the new tokens
    mark = np.array([] if separator is None else [separator], documents.tokens.dtype)
    spans = zip(bounds[order].tolist(), bounds[order + 1].tolist(), strict=True)
    parts = [part for low, high in spans for part in (documents.tokens[low:high], mark)]
    tokens = np.concatenate(parts) if parts else documents.tokens

    counts = np.diff(documents.starts)[order]  # sentences of each document
    which = _ranges(documents.starts[order], counts)
    owner = np.repeat(np.arange(len(order)), counts)
    starts = documents.sentences[which] - bounds[order][owner] + begins[owner]
    lengths = np.diff(documents.sentences)[which]
    pieces = -(-lengths // longest)
    part = _ranges(np.zeros(len(pieces), np.int64), pieces)
    whole_end = np.repeat(starts + lengths, pieces)
    starts, owner = np.repeat(starts, pieces) + part * longest, np.repeat(owner, pieces)
    ends = np.minimum(starts + longest, whole_end)
    last = np.searchsorted(owner, owner, side="right")
    limits = last if separator is None else np.full(len(owner), len(owner))
    return Stream(tokens, starts, ends, limits)


def full_sentences(
    documents: Documents, max_tokens: int, key: np.uint64, *, separator: int | None, chosen: Ints | None = None
) -> tuple[npt.NDArray[Any], Pairs]:
    """Pack whole sentences into slices of at most `max_tokens` of the returned tokens `(T,)`.

    Segment B is empty. The documents (all, or those `chosen`) are in keyed order. No token is lost:
    an overlong sentence is cut. `separator` is the id between two documents in one sequence; with
    None, each sequence ends with its document.
    """
    live = np.arange(len(documents)) if chosen is None else chosen
    order = live[np.argsort(counter_rng.random_bits(key, documents.keys[live]), kind="stable")]
    laid = stream(documents, order, max_tokens, separator)
    reach = np.searchsorted(laid.ends, laid.starts + max_tokens, side="right")
    following = np.minimum(reach, laid.limits).tolist()
    first, here = [], 0
    while here < len(following):
        first.append(here)
        here = following[here]
    a_start = laid.starts[np.array(first, np.int64)]
    last = np.array([*first[1:], len(following)], np.int64)[: len(first)] - 1
    a_len = laid.ends[last] - a_start
    none = np.zeros(len(first), np.int64)
    return laid.tokens, Pairs(a_start, a_len, none, none.copy(), none.astype(np.bool_))


def _ranges(first: Ints, counts: Ints) -> Ints:
    """Concatenate the ranges of `counts[k]` numbers from `first[k]` on."""
    before = np.cumsum(counts) - counts
    ranged: Ints = np.repeat(first - before, counts) + np.arange(counts.sum())
    return ranged
