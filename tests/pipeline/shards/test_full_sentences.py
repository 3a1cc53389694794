"""Sequences of full sentences hold every token once, in order."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.common import counter_rng
from pipeline.shards.full_sentences import full_sentences
from tests.pipeline.shards.made_documents import SEPARATOR, documents_of, owners, rows


def packed(lengths: list[list[int]], most: int, separator: int | None, seed: int = 0) -> list[list[int]]:
    """Sequences over documents whose sentences have these lengths; token k of the corpus is k."""
    key, chosen = counter_rng.key(seed, "x"), np.arange(len(lengths))
    tokens, pairs, _ = full_sentences(documents_of(lengths), most, key, separator=separator, chosen=chosen)
    assert not pairs.b_len.any()
    return rows(tokens, pairs)


corpora = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), max_size=8)


@given(corpora, st.integers(4, 60), st.sampled_from([None, SEPARATOR]))
def test_every_token_is_in_one_sequence(lengths: list[list[int]], most: int, separator: int | None) -> None:
    found = packed(lengths, most, separator)
    tokens = [token for sequence in found for token in sequence if token != SEPARATOR]
    assert sorted(tokens) == list(range(sum(map(sum, lengths))))
    assert all(0 < len(sequence) <= most for sequence in found)
    assert not any(SEPARATOR in (sequence[0], sequence[-1]) for sequence in found)


@given(corpora, st.integers(4, 60))
def test_documents_meet_only_at_a_separator(lengths: list[list[int]], most: int) -> None:
    owner = owners(lengths)
    for sequence in packed(lengths, most, None):
        assert sequence == list(range(sequence[0], sequence[0] + len(sequence)))
        assert owner[sequence[0]] == owner[sequence[-1]]
    for sequence in packed(lengths, most, SEPARATOR):
        for left, right in itertools.pairwise(sequence):
            joined = SEPARATOR in (left, right) or right == left + 1
            assert joined, "what follows is the next token"


def test_sequences_hold_whole_sentences_and_as_many_as_fit() -> None:
    assert packed([[3, 3, 3, 3]], 7, None) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert packed([[2, 10, 2]], 4, None) == [[0, 1], [2, 3, 4, 5], [6, 7, 8, 9], [10, 11, 12, 13]]


def test_another_round_has_the_documents_in_another_order() -> None:
    lengths = [[5] * 3] * 20
    assert packed(lengths, 30, SEPARATOR, 0) != packed(lengths, 30, SEPARATOR, 1)
