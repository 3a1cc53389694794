"""Sentence pairs: Devlin et al. 2019, section A.2, and their create_pretraining_data.py.

A pair is two contiguous slices of a token array, so drawing pairs copies nothing. All documents
advance together, one pair each per turn; a turn is a few numpy operations.

Shapes: T tokens, S sentences, D documents, N pairs.
"""

from dataclasses import dataclass, replace

import numpy as np

from pipeline.common import counter_rng
from pipeline.common.counter_rng import Bits, Ints
from pipeline.common.ranges import bounds_of, ranges
from pipeline.shards import Columns, Flags, Tokens

# Positions of the draws within one turn of one document.
_A_END, _COIN, _OTHER, _START, _FRONT_A, _FRONT_B = range(6)
_DRAWS = 8


@dataclass(frozen=True)
class Documents:
    """Concatenated tokenized documents; no sentence and no document is empty."""

    tokens: Tokens  # (T,) ids
    sentences: Ints  # (S+1,) start of each sentence in `tokens`, and T
    starts: Ints  # (D+1,) start of each document in `sentences`, and S
    keys: Bits  # (D,) uint64, from the hash of each text
    buckets: Ints  # (B+1,) start of each bucket in documents, and D

    def neighbours(self, chosen: Ints) -> tuple[Ints, Ints]:
        """Return the first document of the bucket of each of `chosen`, and how many it has."""
        owner = np.searchsorted(self.buckets, chosen, side="right") - 1
        return self.buckets[owner], np.diff(self.buckets)[owner]

    def ordered(self, chosen: Ints, key: np.uint64) -> Ints:
        """Return the `chosen` documents in keyed order."""
        return chosen[np.argsort(counter_rng.random_bits(key, self.keys[chosen]), kind="stable")]

    def fitted(self, longest: int) -> "Documents":
        """Cut sentences of more than `longest` tokens into halves of that: any two of them fill a pair.

        Several in a row are cut as one, so that what is left over is only at its end.
        """
        long = np.diff(self.sentences) > longest
        if not long.any():
            return self
        goes_on = np.append(False, long[1:] & long[:-1])
        goes_on[self.starts[:-1]] = False
        begins = self.sentences[:-1][~goes_on]
        lengths = np.diff(np.append(begins, self.sentences[-1]))
        half, rest = (longest + 1) // 2, lengths % longest
        pieces = np.where(lengths > longest, 2 * (lengths // longest) + (rest > 0) + (rest > half), 1)
        piece = ranges(np.zeros(len(pieces), np.int64), pieces)
        sentences = np.append(np.repeat(begins, pieces) + piece // 2 * longest + piece % 2 * half, self.sentences[-1])
        return replace(self, sentences=sentences, starts=np.searchsorted(sentences, self.sentences[self.starts]))

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class Pairs(Columns):
    """Slices of `Documents.tokens`; each field `(N,)`. Without a partner, segment B is empty."""

    a_start: Ints
    a_len: Ints
    b_start: Ints
    b_len: Ints
    is_random_next: Flags

    @classmethod
    def single(cls, start: Ints, length: Ints) -> "Pairs":
        """Return slices with an empty segment B."""
        none = np.zeros_like(start)
        return cls(start, length, none, none, none.astype(np.bool_))

    def covered(self) -> int:
        """Return how many tokens are in any segment, each once."""
        starts, lengths = np.append(self.a_start, self.b_start), np.append(self.a_len, self.b_len)
        order = np.argsort(starts, kind="stable")
        ends = np.maximum.accumulate((starts + lengths)[order])
        return int(np.maximum(ends - np.maximum(starts[order], np.append(0, ends[:-1])), 0).sum())


def next_sentence_pairs(
    documents: Documents, max_tokens: int, short_probability: float, key: np.uint64, chosen: Ints, *, by_order: bool
) -> Pairs:
    """Draw the pairs of the `chosen` documents once, as the reference code does.

    From its start, a document is cut into chunks of whole sentences of at least `target` tokens
    (the last may be shorter). Segment A is the chunk's first 1 .. n-1 sentences. B is the rest, or
    with probability 1/2 (always, if the chunk is one sentence) sentences from a random position in
    another document; the rest of the chunk is then put back. Pairs longer than `max_tokens` lose
    tokens from the longer segment, from its front or back by a fair coin per token.

    Unlike the reference, a lone document gets its true next sentences as B, labelled as such; its
    last sentence may have none, and an empty B. Another document is one of the same bucket.

    With `by_order`, B is always the rest, A and B are swapped with probability 1/2, and
    `is_random_next` marks swapped pairs (Lan et al. 2020, section 3.1). If a single sentence would
    be left at the end of a document, the one before it is reused.
    """
    keys = counter_rng.random_bits(key, documents.keys)
    ends = documents.starts[1:]
    target = np.full(len(documents), max_tokens)
    short = counter_rng.uniform(keys, 0) < short_probability
    target[short] = 2 + counter_rng.integers(keys[short], 1, max_tokens - 1)

    live = chosen
    position = documents.starts[:-1].copy()  # (D,) next sentence of each document
    turns, owners = [Pairs.single(live[:0], live[:0])], [live[:0]]  # pairs, and their documents
    while len(live):
        first = position[live]
        if by_order:
            first -= (first == ends[live] - 1) & (first > documents.starts[live])
        pairs, after = _turn(documents, live, first, target[live], keys[live], len(turns), by_order)
        turns.append(pairs)
        owners.append(live)
        position[live] = after
        live = live[after < ends[live]]
    numbers = np.repeat(np.arange(len(owners)), list(map(len, owners)))
    return _truncated(Pairs.concatenate(turns), max_tokens, keys[np.concatenate(owners)], numbers)


def _turn(
    documents: Documents, live: Ints, first: Ints, target: Ints, keys: Bits, turn: int, by_order: bool
) -> tuple[Pairs, Ints]:
    """Draw one untruncated pair per live document; return also where its next chunk starts."""
    drawn = counter_rng.uniform(keys, turn * _DRAWS + np.arange(_FRONT_A)[:, None])  # at once: a turn may have one pair
    offsets, end = documents.sentences, documents.starts[live + 1]
    last = _reach(offsets, first, end, target)
    count = last - first
    middle = first + 1 + counter_rng.below(drawn[_A_END], np.maximum(count - 1, 1))
    middle = np.where(count == 1, last, middle)
    heads = drawn[_COIN] < 0.5
    is_random = (count == 1) | heads
    low, size = documents.neighbours(live)
    is_random &= (size > 1) & (not by_order)
    a_len = offsets[middle] - offsets[first]

    other = counter_rng.below(drawn[_OTHER], np.maximum(size - 1, 1))
    other = low + np.minimum(other + (other >= live - low), size - 1)
    other_first, other_end = documents.starts[other], documents.starts[other + 1]
    random_start = other_first + counter_rng.below(drawn[_START], other_end - other_first)
    b_target = target - a_len
    random_end = _reach(offsets, random_start, other_end, b_target)
    # A chunk of one sentence has no rest: its true next is whatever follows it, if anything.
    true_end = np.where(count == 1, _reach(offsets, middle, end, b_target), last)

    b_first = np.where(is_random, random_start, middle)
    b_end = np.where(is_random, random_end, true_end)
    a, b = (offsets[first], a_len), (offsets[b_first], offsets[b_end] - offsets[b_first])
    after = np.where(is_random, middle, true_end)
    if not by_order:
        return Pairs(*a, *b, is_random), after
    swap = heads & (b_end > b_first)
    (a_start, a_length), (b_start, b_length) = np.where(swap, b, a), np.where(swap, a, b)
    return Pairs(a_start, a_length, b_start, b_length, swap), after


def _reach(offsets: Ints, first: Ints, end: Ints, tokens: Ints) -> Ints:
    """Return the end (at most `end`) of the shortest run of sentences with `tokens` tokens."""
    enough = np.searchsorted(offsets, offsets[first] + np.maximum(tokens, 1), side="left")
    return np.minimum(enough, end)


def _truncated(pairs: Pairs, max_tokens: int, keys: Bits, turn: Ints) -> Pairs:
    """Truncate pairs to `max_tokens`: closed form of dropping from the longer, B if equal."""
    half = (max_tokens + 1) // 2
    kept_a = np.minimum(pairs.a_len, np.maximum(max_tokens - pairs.b_len, half))
    kept_b = np.minimum(pairs.b_len, max_tokens - kept_a)

    def front(draw: int, dropped: Ints) -> Ints:
        return counter_rng.binomial_half(counter_rng.random_bits(keys, turn * _DRAWS + draw), dropped)

    a_start = pairs.a_start + front(_FRONT_A, pairs.a_len - kept_a)
    b_start = pairs.b_start + front(_FRONT_B, pairs.b_len - kept_b)
    return Pairs(a_start, kept_a, b_start, kept_b, pairs.is_random_next)


def gather(tokens: Tokens, pairs: Pairs) -> tuple[Tokens, Ints]:
    """Concatenate the tokens of the pairs, A then B: `(sum of lengths,)`, and offsets `(N+1,)`."""
    offsets = bounds_of(pairs.a_len + pairs.b_len)
    values = np.empty(offsets[-1], tokens.dtype)
    rows = 2**13  # at a time: the index arrays take 16 bytes per token
    for start in range(0, len(pairs), rows):
        part = pairs[start : start + rows]
        lengths = np.stack([part.a_len, part.b_len], axis=1).ravel()
        places = np.stack([part.a_start, part.b_start], axis=1).ravel()
        shift = ranges(places, lengths)
        low = offsets[start]
        values[low : low + len(shift)] = tokens[shift]
    return values, offsets
