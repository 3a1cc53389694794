"""The vectorised pairs are those of the published algorithm, written plainly here."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.common import counter_rng
from pipeline.shards.holdout import document_hash, is_held_out
from pipeline.shards.sentence_pairs import Pairs, gather, next_sentence_pairs
from tests.pipeline.shards.made_documents import documents_of
from tests.support.examples import examples


def reference_pairs(lengths, max_tokens, short, key, by_order=False):
    """One document after the other, one token after the other, as the published code does it."""
    corpus = documents_of(lengths)
    token = iter(range(len(corpus.tokens)))
    documents = [[[next(token) for _ in range(n)] for n in sentences] for sentences in lengths]
    found = []
    for number, document in enumerate(documents):
        own = counter_rng.random_bits(key, corpus.keys)[number : number + 1]

        def uniform(position, own=own):
            return float(counter_rng.uniform(own, position)[0])

        target = max_tokens
        if uniform(0) < short:
            target = 2 + int(uniform(1) * (max_tokens - 1))
        here, turn = 0, 0
        while here < len(document):
            turn += 1
            if by_order and 0 < here == len(document) - 1:
                here -= 1
            chunk = []
            while here + len(chunk) < len(document):
                chunk.append(document[here + len(chunk)])
                if sum(map(len, chunk)) >= target:
                    break
            a_end = 1 + int(uniform(8 * turn) * (len(chunk) - 1)) if len(chunk) > 1 else 1
            a = [t for sentence in chunk[:a_end] for t in sentence]
            is_random = len(chunk) == 1 or uniform(8 * turn + 1) < 0.5
            if len(documents) == 1 or by_order:
                is_random = False
            b = []
            if is_random:
                other = int(uniform(8 * turn + 2) * (len(documents) - 1))
                other += other >= number
                start = int(uniform(8 * turn + 3) * len(documents[other]))
                for sentence in documents[other][start:]:
                    b += sentence
                    if len(b) >= target - len(a):
                        break
                here += a_end
            elif len(chunk) == 1:
                here += 1
                while here < len(document):
                    b += document[here]
                    here += 1
                    if len(b) >= target - len(a):
                        break
            else:
                b = [t for sentence in chunk[a_end:] for t in sentence]
                here += len(chunk)
            if b and by_order and uniform(8 * turn + 1) < 0.5:
                a, b, is_random = b, a, True
            if b:
                found.append((turn, number, (*truncated(a, b, max_tokens, own, turn), is_random)))
    return [pair for _, _, pair in sorted(found, key=lambda item: item[:2])]


def truncated(a, b, limit, own, turn):
    """Drop a token of the longer one, front or back, until both fit."""
    bits = {id(a): counter_rng.random_bits(own, 8 * turn + 4), id(b): counter_rng.random_bits(own, 8 * turn + 5)}
    dropped = {id(a): 0, id(b): 0}
    while len(a) + len(b) > limit:
        longer = a if len(a) > len(b) else b
        count = dropped[id(longer)]
        word = int(counter_rng.random_bits(bits[id(longer)], count // 64)[0])
        longer.pop(0 if word >> (count % 64) & 1 else -1)
        dropped[id(longer)] += 1
    return a, b


def pairs_of(lengths, max_tokens, short):
    """The pairs of documents whose sentences have these lengths."""
    key, chosen = counter_rng.key(0, "pairs"), np.arange(len(lengths))
    pairs = next_sentence_pairs(documents_of(lengths), max_tokens, short, key, chosen, by_order=False)
    return pairs[pairs.b_len > 0]


def vectorised_pairs(documents, *rest, by_order=False):
    """The same as lists."""
    chosen = np.arange(len(documents))
    pairs = next_sentence_pairs(documents, *rest, chosen, by_order=by_order)
    pairs = pairs[pairs.b_len > 0]
    values, offsets = gather(documents.tokens, pairs)
    return [
        (values[low : low + a].tolist(), values[low + a : high].tolist(), bool(is_random))
        for low, high, a, is_random in zip(offsets[:-1], offsets[1:], pairs.a_len, pairs.is_random_next, strict=True)
    ]


corpora = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=8)


@settings(max_examples=examples(300), deadline=None)
@given(corpora, st.integers(5, 60), st.sampled_from([0.0, 0.1, 1.0]), st.integers(0, 99), st.booleans())
def test_pairs_equal_the_plain_algorithm(lengths, max_tokens, short, seed, by_order):
    key = counter_rng.key(seed, "pairs")
    found = vectorised_pairs(documents_of(lengths), max_tokens, short, key, by_order=by_order)
    assert found == reference_pairs(lengths, max_tokens, short, key, by_order)


@settings(max_examples=examples(100), deadline=None)
@given(corpora, corpora, st.integers(5, 60), st.integers(0, 99))
def test_a_bucket_has_the_pairs_that_it_has_alone(first, second, max_tokens, seed):
    both, count, key = documents_of([*first, *second]), len(first), counter_rng.key(seed, "pairs")
    parts = [
        replace(
            both,
            sentences=both.sentences[both.starts[start] : both.starts[end] + 1],
            starts=both.starts[start : end + 1] - both.starts[start],
            keys=both.keys[start:end],
            buckets=np.array([0, end - start]),
        )
        for start, end in ((0, count), (count, len(both)))
    ]
    both = replace(both, buckets=np.array([0, count, len(both)]))
    alone = [pair for part in parts for pair in vectorised_pairs(part, max_tokens, 0.1, key)]
    assert sorted(vectorised_pairs(both, max_tokens, 0.1, key)) == sorted(alone)


@settings(max_examples=examples(100), deadline=None)
@given(corpora, st.integers(2, 60))
def test_sentences_that_do_not_fit_are_cut_and_others_are_not(lengths, longest):
    documents = documents_of(lengths)
    fitted = documents.fitted(longest)
    sizes, bounds = np.diff(fitted.sentences), set(fitted.sentences.tolist())
    assert sizes.min() > 0
    assert sizes.max() <= longest
    assert fitted.sentences[fitted.starts].tolist() == documents.sentences[documents.starts].tolist()
    for low, size in zip(documents.sentences.tolist(), np.diff(documents.sentences).tolist(), strict=False):
        if size <= longest:
            assert bounds & set(range(low, low + size + 1)) == {low, low + size}
    alone = np.diff(documents_of([[len(documents.tokens) + longest]]).fitted(longest).sentences)
    assert set((alone[:-2] + alone[1:-1]).tolist()) <= {longest}


@settings(max_examples=examples(100), deadline=None)
@given(corpora, st.integers(5, 60), st.integers(0, 99))
def test_covered_tokens_are_counted_once(lengths, max_tokens, seed):
    documents, chosen = documents_of(lengths), np.arange(len(lengths))
    key = counter_rng.key(seed, "x")
    pairs = next_sentence_pairs(documents, max_tokens, 0.1, key, chosen, by_order=False)
    assert pairs.covered() == len(set(gather(documents.tokens, pairs)[0].tolist()))


def test_statistics_are_those_of_the_published_code():
    """Lengths as English sentences have them: about 24 word pieces, long documents."""
    draws = np.random.default_rng(0)
    lengths = [
        np.maximum(1, draws.lognormal(3.0, 0.6, draws.integers(5, 60))).astype(int).tolist() for _ in range(3000)
    ]
    pairs = pairs_of(lengths, 125, 0.1)
    total = pairs.a_len + pairs.b_len + 3
    assert 0.53 < pairs.is_random_next.mean() < 0.60
    assert 0.68 < (total == 128).mean() < 0.82
    assert 110 < total.mean() < 120


def test_many_rows_are_gathered_as_a_loop_does():
    draws = np.random.default_rng(0)
    starts, lengths = draws.integers(0, 900, 20_000), draws.integers(0, 4, 20_000)
    values, offsets = gather(np.arange(1000), Pairs.single(starts, lengths))
    assert values.tolist() == [
        token for start, n in zip(starts, lengths, strict=True) for token in range(start, start + n)
    ]
    assert offsets.tolist() == [0, *np.cumsum(lengths)]


def test_no_documents_give_no_pairs():
    assert len(pairs_of([], 30, 0.0)) == 0


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3])
def test_the_share_of_held_out_documents_is_as_asked(share):
    count = sum(is_held_out(document_hash(str(n)), share) for n in range(20_000))
    assert abs(count / 20_000 - share) < 0.01


def test_the_lowest_hashes_are_held_out_and_none_of_no_share():
    places = [bytes(16), (2**63 - 1).to_bytes(8, "big") + bytes(8), (2**63).to_bytes(8, "big") + bytes(8), b"\xff" * 16]
    found = [[is_held_out(place, share) for place in places] for share in (0.0, 0.5, 1.0)]
    assert found == [[False] * 4, [True, True, False, False], [True] * 4]
