"""Masking of tokens and their replacements: Devlin et al. 2019, section 3.1.

A mask is a function of (seed, global sample index) only: it changes from epoch to epoch, as the
index keeps counting, and does not depend on the rank or on the rest of the batch.

Shapes: B sequences, L the longest, T tokens in total, M masked positions, W words of a sequence,
V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from model.config import ObjectiveConfig
from pipeline.common import counter_rng
from pipeline.common.counter_rng import Bools, Ints
from pipeline.common.ranges import ranges
from pipeline.tokenization.wordpiece import WordPiece

# Offsets of the draws in a sample's random stream; a sequence is shorter than the gaps.
_ORDER, _ACTION, _TOKEN, _CUT = 0, 2**20, 2**21, 3 * 2**20
_LAST = np.uint32(0xFFFFFFFF)  # sorts after every position that may be chosen


@dataclass(frozen=True)
class Masks:
    """Masked positions and labels of a batch; both `(M,)`, M the sum of the requested counts.

    For next-token prediction, every position with the token after it.
    """

    positions: Ints  # into the batch's tokens, ascending
    labels: Ints  # the original tokens


class Masker:
    """Generator of masks for whole batches.

    Every sequence gets exactly `counts` predictions, also with whole words: words are taken in
    random order if they still fit, as in the reference code, and only when no word fits, the next
    one is masked in part. With spans, sequences are split into runs of words of geometric length
    (Joshi et al. 2020, section 3.1), which are taken like words; a run is replaced or kept as a
    whole.
    """

    def __init__(self, tokenizer: WordPiece, objective: ObjectiveConfig, longest: int, key: np.uint64):
        self._objective, self._key = objective, key
        self._mask, self._special = tokenizer.mask, sorted(tokenizer.special_ids)
        # (V',) candidates for random tokens
        self._ordinary = np.setdiff1d(np.arange(len(tokenizer.vocab)), self._special)
        self._continues = tokenizer.continues
        # Priorities carry their position in the low bits: sorting gives positions, without ties.
        self._place_bits = np.uint32((1 << max(longest - 1, 1).bit_length()) - 1)

    def counts(self, lengths: npt.ArrayLike, maskable: npt.ArrayLike, share: float | None = None) -> Ints:
        """Return the number of predictions for each sequence, `(B,)`.

        Args:
            lengths: (B,) tokens with [CLS] and [SEP]; a share of them, at least one, is masked, or
                all but the last predict the next token.
            maskable: (B,) tokens that are not special: upper limits.
            share: that of the step, of an objective that changes it; None: the last one.
        """
        if self._objective.predict == "next":
            return np.asarray(lengths, np.int64) - 1
        share = self._objective.mask_shares[-1] if share is None else share
        masked = np.rint(np.asarray(lengths) * share).astype(np.int64)
        return np.minimum(np.maximum(masked, 1), maskable)

    def draw(
        self, ids: npt.NDArray[Any], starts: Ints, samples: npt.ArrayLike, counts: Ints, continues: Bools | None = None
    ) -> Masks:
        """Mask tokens of a batch, in place.

        Args:
            ids: (T,) packed sequences with their special tokens; modified.
            starts: (B+1,) start of each sequence, and T.
            samples: (B,) global sample indices.
            counts: (B,) predictions per sequence, from `counts`.
            continues: (T,) whether each token continues the previous token's word; ignored for
                special tokens. None: those that begin with "##" do.
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
            words = self._continues[ids] if continues is None else continues
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
        """Return whether each of `ids` is a special token."""
        matches = ids == self._special[0]
        for special in self._special[1:]:
            matches |= ids == special
        return np.asarray(matches)

    def _priorities(self, keys: counter_rng.Bits, starts: Ints, special: Bools) -> Any:
        """Return a random order of each sequence's positions, special last: `(B, L)` uint32."""
        lengths = np.diff(starts)
        pairs = (int(lengths.max()) + 1) // 2  # one random word serves two positions
        places = np.broadcast_to(_ORDER + np.arange(pairs), (len(keys), pairs))
        words = np.ascontiguousarray(counter_rng.random_bits(keys[:, None], places)).astype("<u8", copy=False)
        order = words.view("<u4")
        place = np.arange(2 * pairs, dtype=np.uint32)
        order &= ~self._place_bits
        order |= place
        order[place >= lengths[:, None]] = _LAST
        order[_cells(starts, np.flatnonzero(special))] = _LAST
        return order

    def _tokens(self, order: Any, starts: Ints, counts: Ints) -> Ints:
        """Return the first positions in each sequence's order, `(M,)`."""
        most = int(counts.max())
        places = np.sort(order, axis=1)[:, :most] & self._place_bits
        positions = places + starts[:-1, None]
        return np.asarray(positions[np.arange(most) < counts[:, None]])

    def _runs(self, words: Bools, starts: Ints, special: Bools, keys: counter_rng.Bits) -> Bools:
        """Return whether each token is masked only with the previous one, given `words`: `(T,)`."""
        # A word also starts at each token without a word before it.
        linked = ~special
        linked[1:] &= ~special[:-1]
        continues = words & linked if self._objective.whole_word else np.zeros(len(words), bool)
        if self._objective.span > 1:
            row = np.repeat(np.arange(len(keys)), np.diff(starts))
            draw = counter_rng.uniform(keys[row], _CUT + np.arange(len(words)) - starts[row])
            cut = ~linked | (draw < self._objective.span_stop)
            continues = join_words(continues, cut, self._objective.span)
        return np.asarray(continues)

    def _whole(self, order: Any, continues: Bools, starts: Ints, counts: Ints) -> Ints:
        """Return positions of whole runs in each sequence's order, while they fit: `(M,)`."""
        begins = np.flatnonzero(~continues)
        pieces = np.diff(begins, append=len(continues))

        size = np.zeros(order.shape, np.int64)
        size[_cells(starts, begins)] = pieces
        order[_cells(starts, np.flatnonzero(continues))] = _LAST

        ranked = np.sort(order, axis=1)
        none = ranked == _LAST
        places = np.where(none, 0, ranked & self._place_bits).astype(np.int64)
        size = np.take_along_axis(size, places, axis=1)
        size[none] = 0
        taken = _fill(size, counts)
        firsts = (places + starts[:-1, None])[taken > 0]
        return ranges(firsts, taken[taken > 0])

    def _replacements(self, keys: counter_rng.Bits, places: Ints, deciding: Ints, labels: Ints) -> Ints:
        """Return the replacements at the masked positions, `(M,)`.

        Each position is decided independently, as in the paper, or with the first of its run.
        """
        objective = self._objective
        action = counter_rng.uniform(keys, _ACTION + deciding)
        random = self._ordinary[counter_rng.integers(keys, _TOKEN + places, len(self._ordinary))]
        changed = objective.mask_token_share + objective.random_token_share
        return np.where(action < objective.mask_token_share, self._mask, np.where(action < changed, random, labels))


def _cells(starts: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Return the sequences of tokens of the batch, and their places in these."""
    row = np.searchsorted(starts, at, side="right") - 1
    return row, at - starts[row]


def join_words(continues: Bools, cut: Bools, longest: int) -> Bools:
    """Join words to runs; return whether each token continues the previous token's run: `(T,)`.

    `continues` is the same for words; `cut` marks words that start a run (ignored within a word).
    A run has at most `longest` words.
    """
    begins = np.flatnonzero(~continues)
    number = np.arange(len(begins))
    first = np.maximum.accumulate(np.where(cut[begins], number, 0))  # of the uncut run
    joined = continues.copy()
    joined[begins] = ~cut[begins] & ((number - first) % longest > 0)
    return joined


def _fill(size: Ints, counts: Ints) -> Ints:
    """Return the tokens taken from each word, `(B, W)`, in total `counts[b]` for row b.

    Words are taken in the order of `size` `(B, W)`, in which 0 means no word; words larger than the
    rest are skipped. Each iteration decides a run of words in all rows. The rest only falls: a
    word that did not fit never will, and a few iterations suffice.
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
