"""What a text says by its neighbours: exact for a chain, the same in any order, and of other documents."""

import os
import re

import numpy as np
import pytest

from model.training.density import THREADS, Sample, bits_between
from tests.support.forked import ROOT

PAGES = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))]


def measured(texts, order=None):
    """The density of documents whose hashes have this order, or their own."""
    sample = Sample()
    for text, place in zip(texts, order or range(len(texts)), strict=True):
        sample.add(text, bytes([place]))
    return sample.density()


def test_of_a_chain_nothing_is_left_but_what_its_probabilities_leave():
    rng, entries = np.random.default_rng(0), 5
    steps = rng.dirichlet([0.5] * entries, entries)
    tokens = [0]
    for draw in rng.random(60_000):
        tokens.append(min(int(np.searchsorted(np.cumsum(steps[tokens[-1]]), draw)), entries - 1))
    often = np.linalg.matrix_power(steps, 100)[0]
    left = 0.0
    for before, behind in np.ndindex(entries, entries):
        joint = often[before] * steps[before] * steps[:, behind]  # (entries,) of what is between
        left -= (joint * np.log2(joint / joint.sum())).sum()
    seen, guessed = np.array(tokens[:50_000]), np.array(tokens[50_000:])
    assert bits_between(seen, guessed, np.full(entries, 2)) == pytest.approx(left / 2, rel=0.03)


def test_documents_count_in_any_order_and_leave_the_environment(monkeypatch):
    monkeypatch.delenv(THREADS, raising=False)
    assert measured(PAGES[:20]) == measured(PAGES[19::-1], range(19, -1, -1))
    assert THREADS not in os.environ


def test_less_of_a_text_is_about_as_dense():
    assert measured(PAGES[::4]).bits == pytest.approx(measured(PAGES).bits, rel=0.15)


def test_letters_of_two_bytes_say_as_much_as_those_of_one():
    greek = str.maketrans("abcdefghijklmnopqrstuvwxyz", "αβγδεζηθικλμνξοπρστυφχψωϟϡ")
    texts = [re.sub("[^a-z]+", " ", page.lower()) for page in PAGES]
    found = measured([text.translate(greek) for text in texts])
    latin = measured(texts)
    assert found == pytest.approx((latin.bits / 2, 2 * latin.token), rel=0.01)


def test_what_a_document_repeats_is_not_known_from_it():
    rng = np.random.default_rng(1)
    sentences = [" ".join(rng.permutation(PAGES[0].split())[:40]) for _ in range(20)]
    texts = [" ".join([sentence] * 40) for sentence in sentences]
    pieces = [text[start : start + 4000] for text in texts for start in range(0, len(text), 4000)]
    assert measured(texts).bits > 1.4 * measured(pieces).bits


def test_a_document_that_is_most_of_a_text_is_a_part_of_both_halves():
    texts = ["\n".join(PAGES), "One.", "Two."]
    for order in ((0, 1, 2), (2, 1, 0)):
        assert measured(texts, order).bits == pytest.approx(measured(texts[:1]).bits, rel=0.05)


def test_a_text_of_few_words_says_nothing():
    assert measured(["", "one", "two"]) is None
