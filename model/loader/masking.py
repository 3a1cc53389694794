"""Which tokens are hidden, and what stands in their place: Devlin et al. 2019, section 3.1.

A mask is a function of (seed, global sample index) alone: it changes from epoch to epoch, and it
is the same whoever computes it, in whatever company. The index counts on over the epochs.

Shapes: B sequences, L longest of them, T tokens of all, M masked positions, W words of a sequence,
V vocabulary.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from model.config import ObjectiveConfig
from pipeline.common import counter_rng

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Where in a sample's stream of random words each draw begins; a sequence is shorter than the gaps.
_ORDER, _ACTION, _TOKEN, _CUT = 0, 2**20, 2**21, 3 * 2**20
_LAST = np.uint32(0xFFFFFFFF)  # comes after every place that may be chosen


class Tokenizer(Protocol):
    """The part of `pipeline.tokenization.wordpiece.WordPiece` that masking needs."""

    vocab: list[str]
    cls: int
    sep: int
    mask: int
    special_ids: list[int]
    sha256: str


@dataclass(frozen=True)
class Masks:
    """What was hidden in a batch; both `(M,)`, M the sum of the counts that were asked for.

    Or, where the next token is predicted, every position and the token after it.
    """

    positions: Ints  # into the batch's tokens, rising
    labels: Ints  # the tokens that stood there


class Masker:
    """Draws masks for whole batches.

    Every sequence gets exactly `counts` predictions. With whole words the count stays the same:
    words are taken in random order where they still fit, as the reference code does, and only
    where no word fits any more, the next one is hidden in part. With spans, sequences are cut into
    runs of words whose lengths are geometric (Joshi et al. 2020, section 3.1), and runs are taken
    like words; a run is replaced, or kept, as a whole.
    """

    def __init__(
        self, tokenizer: Tokenizer, objective: ObjectiveConfig, longest: int, key: np.uint64
    ):
        self._objective, self._key = objective, key
        self._mask, self._special = tokenizer.mask, sorted(tokenizer.special_ids)
        size = len(tokenizer.vocab)
        # (V',) what a random token may be
        self._ordinary = np.setdiff1d(np.arange(size), self._special)
        # (V,) whether an entry goes on with the word before it
        self.continues = np.array([entry.startswith("##") for entry in tokenizer.vocab], np.bool_)
        # Priorities carry their place in the low bits: sorting them sorts places, without ties.
        self._place_bits = np.uint32((1 << max(longest - 1, 1).bit_length()) - 1)

    def counts(self, lengths: npt.ArrayLike, maskable: npt.ArrayLike) -> Ints:
        """Predictions of each sequence, `(B,)`.

        Args:
            lengths: (B,) tokens with [CLS] and [SEP], of which a share is hidden, at least one; or
                all but the last one predict the next.
            maskable: (B,) tokens that are not special; never more than these.
        """
        if self._objective.predict == "next":
            return np.asarray(lengths, np.int64) - 1
        wanted = np.rint(np.asarray(lengths) * self._objective.mask_share).astype(np.int64)
        return np.minimum(np.maximum(wanted, 1), maskable)

    def draw(
        self,
        ids: npt.NDArray[Any],
        starts: Ints,
        samples: npt.ArrayLike,
        counts: Ints,
        goes_on: Bools | None = None,
    ) -> Masks:
        """Hide tokens of a batch, in place.

        Args:
            ids: (T,) sequences end to end, with their special tokens; changed.
            starts: (B+1,) where each sequence starts, and T.
            samples: (B,) global sample indices.
            counts: (B,) predictions of each sequence, from `counts`.
            goes_on: (T,) whether each token is of one word with the one before it; whatever it says
                of special tokens. None: those that begin with "##" are.
        """
        if not counts.any():
            return Masks(np.zeros(0, np.int64), np.zeros(0, np.int64))
        if self._objective.predict == "next":
            positions = np.delete(np.arange(len(ids)), starts[1:] - 1)
            return Masks(positions, ids[positions + 1].astype(np.int64))
        keys = counter_rng.random_bits(self._key, samples)
        special = self.is_special(ids)
        order = self._priorities(keys, starts, special)
        row = np.repeat(np.arange(len(counts)), counts)
        if self._objective.whole_word or self._objective.span > 1:
            words = self.continues[ids] if goes_on is None else goes_on
            runs = self._runs(words, starts, special, keys)
            positions = self._whole(order, runs, starts, counts)
        else:
            positions = self._tokens(order, starts, counts)
        positions.sort()
        labels = ids[positions].astype(np.int64)
        places = deciding = positions - starts[row]
        if self._objective.span > 1:
            heads = np.maximum.accumulate(np.where(runs, 0, np.arange(len(ids))))
            deciding = heads[positions] - starts[row]
        ids[positions] = self._replacements(keys[row], places, deciding, labels)
        return Masks(positions, labels)

    def is_special(self, ids: npt.NDArray[Any]) -> Bools:
        """Whether each of `ids` is a special token."""
        found = ids == self._special[0]
        for special in self._special[1:]:
            found |= ids == special
        return np.asarray(found)

    def _priorities(self, keys: counter_rng.Bits, starts: Ints, special: Bools) -> Any:
        """`(B, L)` uint32: a random order of the places of each sequence, special tokens last."""
        lengths = np.diff(starts)
        pairs = (int(lengths.max(initial=0)) + 1) // 2  # one random word serves two places
        places = np.broadcast_to(_ORDER + np.arange(pairs), (len(keys), pairs))
        words = np.ascontiguousarray(counter_rng.random_bits(keys[:, None], places)).astype(
            "<u8", copy=False
        )
        order = words.view("<u4")
        place = np.arange(2 * pairs, dtype=np.uint32)
        order &= ~self._place_bits
        order |= place
        order[place >= lengths[:, None]] = _LAST
        at = np.flatnonzero(special)
        row = np.searchsorted(starts, at, side="right") - 1
        order[row, at - starts[row]] = _LAST
        return order

    def _tokens(self, order: Any, starts: Ints, counts: Ints) -> Ints:
        """The first places of each sequence's order, as positions `(M,)`."""
        most = int(counts.max(initial=0))
        places = np.sort(order, axis=1)[:, :most] & self._place_bits
        positions = places + starts[:-1, None]
        return np.asarray(positions[np.arange(most) < counts[:, None]])

    def _runs(self, words: Bools, starts: Ints, special: Bools, keys: counter_rng.Bits) -> Bools:
        """Whether each token is hidden only with the one before it: `(T,)`; `words` says so."""
        # A word starts at each token that has no word before it to go on with, too.
        linked = ~special
        linked[1:] &= ~special[:-1]
        linked[:1] = False
        goes_on = words & linked if self._objective.whole_word else np.zeros(len(words), bool)
        if self._objective.span > 1:
            row = np.repeat(np.arange(len(keys)), np.diff(starts))
            draw = counter_rng.uniform(keys[row], _CUT + np.arange(len(words)) - starts[row])
            cut = ~linked | (draw < self._objective.span_stop)
            goes_on = join_words(goes_on, cut, self._objective.span)
        return np.asarray(goes_on)

    def _whole(self, order: Any, goes_on: Bools, starts: Ints, counts: Ints) -> Ints:
        """Whole runs in each sequence's order as far as they fit, as positions `(M,)`."""
        begins = np.flatnonzero(~goes_on)
        pieces = np.diff(begins, append=len(goes_on))

        size = np.zeros(order.shape, np.int64)
        row = np.searchsorted(starts, begins, side="right") - 1
        size[row, begins - starts[row]] = pieces
        inner = np.flatnonzero(goes_on)
        row = np.searchsorted(starts, inner, side="right") - 1
        order[row, inner - starts[row]] = _LAST

        ranked = np.sort(order, axis=1)
        none = ranked == _LAST
        places = np.where(none, 0, ranked & self._place_bits).astype(np.int64)
        size = np.take_along_axis(size, places, axis=1)
        size[none] = 0
        taken = _fill(size, counts)
        firsts = (places + starts[:-1, None])[taken > 0]
        amounts = taken[taken > 0]
        shift = np.repeat(firsts - (np.cumsum(amounts) - amounts), amounts)
        return np.asarray(shift + np.arange(len(shift)))

    def _replacements(
        self, keys: counter_rng.Bits, places: Ints, deciding: Ints, labels: Ints
    ) -> Ints:
        """What stands at the hidden positions, `(M,)`.

        Each place is decided upon by itself, as the paper does, or with its run's first one.
        """
        objective = self._objective
        action = counter_rng.uniform(keys, _ACTION + deciding)
        random = self._ordinary[counter_rng.integers(keys, _TOKEN + places, len(self._ordinary))]
        changed = objective.mask_token_share + objective.random_token_share
        return np.where(
            action < objective.mask_token_share,
            self._mask,
            np.where(action < changed, random, labels),
        )


def join_words(goes_on: Bools, cut: Bools, longest: int) -> Bools:
    """Join words to runs: whether each token belongs to the run of the one before it, `(T,)`.

    `goes_on` says so of words, `cut` of which words none joins the one before (it says nothing
    within a word). A run has at most `longest` words.
    """
    begins = np.flatnonzero(~goes_on)
    number = np.arange(len(begins))
    first = np.maximum.accumulate(np.where(cut[begins], number, 0))  # of the uncut run
    joined = goes_on.copy()
    joined[begins] = ~cut[begins] & ((number - first) % longest > 0)
    return joined


def _fill(size: Ints, counts: Ints) -> Ints:
    """How much of each word is taken, `(B, W)`, so that row b has `counts[b]` in all.

    Words come in the order of `size` `(B, W)`; 0 is no word. One that does not fit into what is
    left is passed over. Each turn decides a run of words in all rows; what is left only falls, so
    a word that did not fit never will, and a few turns are enough.
    """
    taken = np.zeros_like(size)
    left = counts.copy()
    open_ = size > 0
    while True:
        open_ &= size <= left[:, None]
        run = np.where(open_, size, 0).cumsum(axis=1)
        fits = open_ & (run <= left[:, None])
        if not fits.any():
            break
        taken[fits] = size[fits]
        left -= np.where(fits, size, 0).sum(axis=1)
        open_ &= ~fits
    short = np.flatnonzero(left)
    word = ((size > 0) & (taken == 0))[short].argmax(axis=1)
    taken[short, word] = left[short]
    return taken
