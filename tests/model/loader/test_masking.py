"""Masks: exact counts, the paper's shares, never a special token, whoever draws them."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import ObjectiveConfig
from model.loader import masking
from model.loader.masking import Masker, join_words
from pipeline.common import counter_rng
from pipeline.errors import ConfigError
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build
from tests.support.examples import examples
from tests.support.refusals import refused

PAD, UNK, CLS, SEP, MASK = range(5)
LONGEST = 128


def tokenizer(pieces=40):
    made = WordPiece(build([*SPECIAL, *(f"w{i}" for i in range(60)), *(f"##p{i}" for i in range(pieces))], new=True))
    made.sha256 = "f" * 64  # as the shards of other tests name it
    return made


def masker(key=1, **objective):
    config = ObjectiveConfig(name="test", **objective)
    return Masker(tokenizer(), config, LONGEST, counter_rng.key(key, "masks"))


def sequences(lengths, seed=0, special_share=0.0):
    """Random [CLS] A [SEP] B [SEP] of the given full lengths, and their starts."""
    draw = np.random.default_rng(seed)
    rows = []
    for length in lengths:
        row = draw.integers(5, 105, length)
        row[draw.random(length) < special_share] = UNK
        row[[0, length // 2, -1]] = CLS, SEP, SEP
        rows.append(row)
    return np.concatenate(rows), np.cumsum([0, *lengths])


def masked(maker, ids, starts, samples, goes_on=None):
    """Masks, the ids with them, and the counts."""
    hidden = ids.copy()
    lengths, maskable = np.diff(starts), np.add.reduceat(ids >= 5, starts[:-1])
    counts = maker.counts(lengths, maskable)
    return maker.draw(hidden, starts, samples, counts, goes_on), hidden, counts


shares = st.sampled_from([0.05, 0.15, 0.4, 0.8])
lengths_of_batches = st.lists(st.integers(4, LONGEST), min_size=1, max_size=12)


units = st.fixed_dictionaries({"whole_word": st.booleans(), "span": st.sampled_from([1, 2, 10]), "mask_share": shares})


@given(lengths_of_batches, st.integers(0, 99), st.sampled_from([0, 0.1, 0.9]), units)
@settings(max_examples=examples(200), deadline=None)
def test_counts_are_exact_and_special_tokens_stay(lengths, seed, special_share, unit):
    ids, starts = sequences(lengths, seed, special_share)
    masks, hidden, _ = masked(masker(**unit), ids, starts, np.arange(len(lengths)))
    per_row = np.histogram(masks.positions, starts)[0]
    for row, length in enumerate(lengths):
        ordinary = int((ids[starts[row] : starts[row + 1]] >= 5).sum())
        # Devlin et al., create_pretraining_data.py: max(1, int(round(len(tokens) * share))).
        assert per_row[row] == min(max(1, round(length * unit["mask_share"])), ordinary)
    assert (np.diff(masks.positions) > 0).all()
    assert (ids[masks.positions] >= 5).all()
    assert (masks.labels == ids[masks.positions]).all()
    rest = np.setdiff1d(np.arange(len(ids)), masks.positions)
    assert (hidden[rest] == ids[rest]).all()


@given(lengths_of_batches, st.integers(0, 99), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_a_mask_does_not_depend_on_the_company(lengths, seed, data):
    unit = data.draw(units)
    cut = data.draw(st.integers(0, len(lengths)))
    ids, starts = sequences(lengths, seed)
    samples = np.arange(100, 100 + len(lengths))
    together = masked(masker(**unit), ids, starts, samples)[1]
    parts = []
    for low, high in ((0, cut), (cut, len(lengths))):
        if low < high:
            span = starts[low : high + 1]
            part = ids[span[0] : span[-1]]
            drawn = masked(masker(**unit), part, span - span[0], samples[low:high])
            parts.append(drawn[1])
    assert (np.concatenate(parts) == together).all()


def test_a_mask_changes_with_the_sample_and_the_seed():
    ids, starts = sequences([128])
    drawn = {
        masked(masker(key), ids, starts, [sample])[0].positions.tobytes() for key in (1, 2) for sample in (0, 1, 2)
    }
    assert len(drawn) == 6


def within(successes, trials, share, sigmas=4.5):
    return abs(successes - trials * share) <= sigmas * math.sqrt(trials * share * (1 - share))


def test_shares_are_the_papers():
    ids, starts = sequences([128] * 1000)
    masks, hidden, _ = masked(masker(), ids, starts, np.arange(1000))
    now, trials = hidden[masks.positions], len(masks.positions)
    assert trials == 19_000
    assert within((now == MASK).sum(), trials, 0.8)
    # A random token is the old one by chance: 100 ordinary entries.
    assert within((now == masks.labels).sum(), trials, 0.1 + 0.1 / 100)
    changed = now[(now != MASK) & (now != masks.labels)]
    assert within(len(changed), trials, 0.1 * 0.99)
    assert changed.min() >= 5
    assert len(np.unique(changed)) == 100


def test_every_place_is_chosen_equally_often():
    ids, starts = sequences([64] * 8000)
    masks, _, counts = masked(masker(), ids, starts, np.arange(8000))
    places = np.bincount(masks.positions % 64, minlength=64)
    assert counts[0] == 10
    assert not places[[0, 32, 63]].any()
    for place in np.delete(places, [0, 32, 63]):
        assert within(place, 8000, 10 / 61)


@pytest.mark.parametrize(("mask", "random"), [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_shares_may_be_all_or_nothing(mask, random):
    ids, starts = sequences([128] * 50)
    maker = masker(mask_token_share=mask, random_token_share=random)
    masks, hidden, _ = masked(maker, ids, starts, np.arange(50))
    now = hidden[masks.positions]
    assert ((now == MASK).all(), (now >= 5).all()) == (mask == 1, mask == 0)
    assert (now == masks.labels).all() == (mask == random == 0)


def words_of(ids, goes_on, start, stop):
    """The places of each word, by the plain definition."""
    words = []
    for place in range(start, stop):
        if ids[place] < 5:
            continue
        if goes_on[place] and place > start and ids[place - 1] >= 5:
            words[-1].append(place)
        else:
            words.append([place])
    return words


@given(lengths_of_batches, st.integers(0, 999), st.sampled_from([0, 0.2]), st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_words_are_hidden_whole_as_long_as_one_fits(lengths, seed, special_share, marked):
    """Words of the vocabulary's pieces, or as they are marked: what special tokens say is air."""
    ids, starts = sequences(lengths, seed, special_share)
    marks = np.random.default_rng(seed).random(len(ids)) < 0.5 if marked else None
    goes_on = ids >= 65 if marks is None else marks.copy()
    masks, _, _ = masked(masker(whole_word=True), ids, starts, np.arange(len(lengths)), marks)
    hidden = np.isin(np.arange(len(ids)), masks.positions)
    for row in range(len(lengths)):
        words = words_of(ids, goes_on, starts[row], starts[row + 1])
        amounts = [(int(hidden[word].sum()), len(word)) for word in words]
        partial = [(taken, size) for taken, size in amounts if 0 < taken < size]
        untouched = [size for taken, size in amounts if taken == 0]
        assert len(partial) <= 1
        for taken, _ in partial:
            assert all(size > taken for size in untouched)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60), st.integers(1, 5))
def test_words_join_to_runs_as_the_plain_loop_says(flags, longest):
    goes_on = np.array([False, *(word for word, _ in flags)])
    cut = np.array([True, *(cut for _, cut in flags)])
    joined, words = [], 0
    for inside, parted in zip(goes_on, cut, strict=True):
        if inside:
            joined.append(True)
            continue
        joined.append(not parted and words < longest)
        words = words + 1 if joined[-1] else 1
    assert join_words(goes_on, cut, longest).tolist() == joined


@given(lengths_of_batches, st.integers(0, 999))
@settings(max_examples=examples(50), deadline=None)
def test_spans_that_always_stop_are_whole_words(lengths, seed):
    ids, starts = sequences(lengths, seed, 0.1)
    samples = np.arange(len(lengths))
    words, _, _ = masked(masker(whole_word=True), ids, starts, samples)
    spans, _, _ = masked(masker(whole_word=True, span=5, span_stop=1.0), ids, starts, samples)
    assert (words.positions == spans.positions).all()


def test_spans_are_as_long_as_the_paper_says_and_replaced_as_one():
    ids, starts = sequences([128] * 2000)
    ids[ids >= 65] -= 40  # no pieces of words
    maker = masker(whole_word=True, span=10, mask_share=0.05)
    masks, hidden, _ = masked(maker, ids, starts, np.arange(2000))
    runs = np.split(masks.positions, np.flatnonzero(np.diff(masks.positions) > 1) + 1)
    lengths = np.array([len(run) for run in runs])
    # Six words a sequence: runs of 3.8 on average are cut short where no more fit.
    assert 2.2 < lengths.mean() < 3.8
    assert lengths.max() <= 6
    now = hidden[masks.positions]
    assert within((now == MASK).sum(), len(now), 0.8, sigmas=4.5 * 6**0.5)
    mixed = sum(0 < (hidden[run] == MASK).sum() < len(run) for run in runs)
    assert mixed < 0.1 * len(runs)  # two runs side by side


def test_a_batch_of_nothing_is_fine():
    nothing = np.zeros(0, np.int64)
    for whole_word in (False, True):
        masks = masker(whole_word=whole_word, span=1 + whole_word).draw(
            nothing.copy(), np.zeros(1, np.int64), nothing, nothing
        )
        assert len(masks.positions) == len(masks.labels) == 0


def test_next_tokens_are_predicted_everywhere_but_at_the_end():
    ids, starts = sequences([5, 9])
    masks, hidden, counts = masked(masker(predict="next"), ids, starts, [0, 1])
    assert counts.tolist() == [4, 8]
    assert (hidden == ids).all()
    assert masks.positions.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12]
    assert (masks.labels == ids[masks.positions + 1]).all()


@pytest.mark.parametrize("share", [0, 1.0, [0.3], [], [0.3, 1.5], "much", [0.3, "x"], None, True])
def test_a_share_that_is_none_is_refused(share):
    with refused(ConfigError, key="objective.mask_share"):
        ObjectiveConfig(name="test", mask_share=share)


def test_no_random_number_decides_two_things(monkeypatch):
    used = []

    def noting(draw):
        return lambda keys, places, *of: used.append(set(np.ravel(places).tolist())) or draw(keys, places, *of)

    draws = {name: noting(getattr(counter_rng, name)) for name in ("random_bits", "uniform", "integers")}
    maker = masker(span=3)
    monkeypatch.setattr(masking, "counter_rng", SimpleNamespace(**draws))
    masked(maker, *sequences([LONGEST]), np.arange(1))
    _, *places = used  # first the sample's key
    assert (len(places), sum(map(len, places))) == (4, len(set().union(*places)))
