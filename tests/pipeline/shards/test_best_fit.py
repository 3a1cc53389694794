"""Best-fit packing cuts only documents that are too long, and leaves few places free."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.common import counter_rng
from pipeline.shards.full_sentences import best_fit, fill, full_sentences
from tests.pipeline.shards.made_documents import SEPARATOR, documents_of, owners, rows

KEY = counter_rng.key(0, "x")


def pieces(row: list[int]) -> list[list[int]]:
    """What is between the separators of a sequence."""
    found: list[list[int]] = [[]]
    for token in row:
        if token == SEPARATOR:
            found.append([])
        else:
            found[-1].append(token)
    return found


corpora = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), max_size=12)


@given(corpora, st.integers(4, 60))
def test_every_token_is_in_one_sequence_and_only_long_documents_are_cut(lengths: list[list[int]], most: int) -> None:
    documents = documents_of(lengths)
    tokens, pairs, _ = best_fit(documents, most, KEY, separator=SEPARATOR, chosen=np.arange(len(lengths)))
    found = rows(tokens, pairs)
    assert all(0 < len(row) <= most for row in found)
    every = [piece for row in found for piece in pieces(row)]
    assert sorted(token for piece in every for token in piece) == list(range(sum(map(sum, lengths))))
    bounds = documents.sentences[documents.starts].tolist()
    for first, last in itertools.pairwise(bounds):
        if last - first <= most:
            assert list(range(first, last)) in every


def plain(sizes: list[int], most: int) -> list[int]:
    """Best fit of decreasing sizes, by looking at every sequence: how full each is, sorted."""
    full: list[int] = []
    for size in sorted(sizes, reverse=True):
        fits = [n for n, used in enumerate(full) if used + 1 + size <= most]
        if fits:
            full[max(fits, key=lambda n: full[n])] += 1 + size
        else:
            full.append(size)
    return sorted(full)


@given(st.integers(1, 50).flatmap(lambda most: st.tuples(st.lists(st.integers(1, most), max_size=40), st.just(most))))
def test_pieces_are_put_where_they_fit_best(case: tuple[list[int], int]) -> None:
    sizes, most = case
    made = fill(sizes, most)
    assert sorted(piece for row in made for piece in row) == list(range(len(sizes)))
    assert sorted(sum(sizes[p] for p in row) + len(row) - 1 for row in made) == plain(sizes, most)


@given(corpora, st.integers(4, 60))
def test_cut_documents_are_counted_in_both_packings(lengths: list[list[int]], most: int) -> None:
    documents = documents_of(lengths)
    owner = owners(lengths)
    for pack in (full_sentences, best_fit):
        tokens, pairs, cut = pack(documents, most, KEY, separator=SEPARATOR, chosen=np.arange(len(lengths)))
        homes: dict[int, set[int]] = {}
        for number, row in enumerate(rows(tokens, pairs)):
            for token in row:
                if token != SEPARATOR:
                    homes.setdefault(int(owner[token]), set()).add(number)
        assert cut == sum(len(numbers) > 1 for numbers in homes.values()), pack


def test_documents_of_many_lengths_leave_few_places_free() -> None:
    draws = np.random.default_rng(0)
    lengths = [[20] * int(n) for n in np.clip(draws.lognormal(2.5, 1.2, 2000), 1, 400)]
    documents, most = documents_of(lengths), 1022
    _, pairs, few = best_fit(documents, most, KEY, separator=SEPARATOR, chosen=np.arange(len(lengths)))
    assert pairs.a_len.sum() / (len(pairs) * most) > 0.98
    _, _, many = full_sentences(documents, most, KEY, separator=SEPARATOR, chosen=np.arange(len(lengths)))
    assert few < many / 2
