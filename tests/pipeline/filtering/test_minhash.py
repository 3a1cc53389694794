"""Near duplicates are those of exact Jaccard similarities, at the rates that the banding formula says."""

import numpy as np
import pytest
from scipy import stats

from pipeline.config import FiltersConfig
from pipeline.filtering import minhash

pytest.importorskip("rensa")
WORDS, SHINGLE, PAIRS = 120, 5, 300


def grams(words):
    return set(zip(*(words[k:] for k in range(SHINGLE)), strict=False))


def jaccard(one, other):
    return len(one & other) / len(one | other)


def story(draw, words=WORDS):
    return [f"w{number:x}" for number in draw.integers(0, 1 << 40, words)]


def left_out(texts, threshold, permutations):
    """The texts that the pipeline leaves out, where their hashes ascend."""
    signed = minhash.MinHasher(FiltersConfig(permutations=permutations, shingle=SHINGLE)).sign(texts)
    hashes = np.column_stack([np.arange(len(texts)), np.zeros(len(texts))]).astype(np.uint64)
    pairs = minhash.candidate_pairs(minhash.band_entries(hashes, signed, threshold))
    return {int(row) for row in minhash.near_duplicates(pairs, minhash.joined(hashes, signed), threshold)[:, 0]}


def chance(similarity, threshold, permutations):
    """How probable it is that a pair has an equal band, and `threshold` equal numbers in all.

    The rows per band are the most that give a pair at the threshold an equal one in 98 of 100 cases.
    """
    rows = max(r for r in range(1, permutations + 1) if r == 1 or 1 - (1 - threshold**r) ** (permutations // r) >= 0.98)
    one = stats.binom.pmf(np.arange(rows + 1), rows, similarity)
    rest = stats.binom.pmf(np.arange(permutations % rows + 1), permutations % rows, similarity)
    every, none = rest, rest  # by equal numbers: of all bands so far, and where none is equal
    for _ in range(permutations // rows):
        every, none = np.convolve(every, one), np.convolve(none, one[:-1])
    least = int(np.ceil(threshold * permutations - 1e-9))
    return float(every[least:].sum() - none[least:].sum())


@pytest.mark.parametrize(("threshold", "permutations"), [(0.5, 128), (0.8, 128), (0.7, 64), (0.9, 256)])
@pytest.mark.parametrize("away", [-0.15, -0.05, 0.0, 0.05])
def test_pairs_are_found_as_the_formula_says_or_better(threshold, permutations, away):
    """Signatures estimate a little closer than numbers that do not depend on each other."""
    draw, texts = np.random.default_rng(45), []
    same = 2 * (threshold + away) / (1 + threshold + away)  # of the 5-grams: two texts of one begin
    kept = round(same * (WORDS - SHINGLE + 1)) + SHINGLE - 1
    for _ in range(PAIRS):
        words = story(draw)
        texts += [words, words[:kept] + story(draw, WORDS - kept)]
    similarity = jaccard(*map(grams, texts[:2]))
    assert similarity == pytest.approx(threshold + away, abs=0.01)
    found = left_out([" ".join(words) for words in texts], threshold, permutations)
    assert all(number % 2 for number in found), "the larger one of a pair alone"
    expected = chance(similarity, threshold, permutations)
    worse = {-1.0: "greater", 0.0: "two-sided", 1.0: "less"}[np.sign(away)]
    assert stats.binomtest(len(found), PAIRS, expected, worse).pvalue > 1e-3, (len(found), expected * PAIRS)


def test_of_groups_of_copies_those_of_the_exact_rule_are_left_out():
    """A text is left out if a smaller one is as similar; near the threshold chance decides."""
    draw, texts = np.random.default_rng(45), []
    for copies in range(72):
        group = [story(draw)]
        for _ in range(copies % 8):
            words = list(group[draw.integers(len(group))])
            for place in draw.integers(0, WORDS, draw.integers(0, 7)):
                words[place] = f"n{draw.integers(1 << 40):x}"
            group.append(words)
        texts += group
    texts = [texts[k] for k in draw.permutation(len(texts))]
    exact = list(map(grams, texts))
    most = [max((jaccard(one, before) for before in exact[:k]), default=0.0) for k, one in enumerate(exact)]
    found = left_out([" ".join(words) for words in texts], 0.7, 128)
    right = {k for k, value in enumerate(most) if value >= 0.7}
    assert len(right) > 120
    assert {k for k, value in enumerate(most) if value >= 0.85} <= found
    assert {k for k, value in enumerate(most) if value < 0.55}.isdisjoint(found)
    assert len(found & right) >= 0.9 * max(len(found), len(right))
