"""What of a long text a model reads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.finetuning import features
from model.finetuning.features import TruncationConfig
from pipeline.tokenization.wordpiece import WordPiece
from tests.support.preparing import vocabulary

WORDS = [f"w{number}" for number in range(600)]


@pytest.fixture(scope="module")
def wordpiece(tmp_path_factory):
    return WordPiece.load(vocabulary(tmp_path_factory.mktemp("vocab"), WORDS))


def made(wordpiece, framing, a, b=None):
    """The sequences of a text of `a` words, or of a pair."""
    second = None if b is None else [" ".join(WORDS[300 : 300 + b])]
    found = features.tokenize(wordpiece, [" ".join(WORDS[:a])], second, [0.0], framing)
    return [" ".join(wordpiece.vocab[number] for number in ids) for ids in found.ids]


def test_head_and_tail_are_the_128_and_382_of_the_paper(wordpiece):
    (text,) = made(wordpiece, TruncationConfig(512, "head_tail"), 600)
    assert text.split() == ["[CLS]", *WORDS[:128], *WORDS[-382:], "[SEP]"]


def test_head_and_tail_keep_their_ends(wordpiece):
    assert made(wordpiece, TruncationConfig(6, "head"), 9) == ["[CLS] w0 w1 w2 w3 [SEP]"]
    assert made(wordpiece, TruncationConfig(6, "tail"), 9) == ["[CLS] w5 w6 w7 w8 [SEP]"]
    assert made(wordpiece, TruncationConfig(7, "tail"), 9, 1) == ["[CLS] w6 w7 w8 [SEP] w300 [SEP]"]


@given(st.integers(0, 60), st.integers(4, 20), st.integers(1, 30))
def test_chunks_hold_every_word_once_up_to_their_number(wordpiece, length, longest, chunks):
    found = made(wordpiece, TruncationConfig(longest, "chunks", chunks), length)
    words = [word for text in found for word in text.split()[1:-1]]
    assert words == WORDS[: min(length, chunks * (longest - 2))]
    assert all(len(text.split()) <= longest for text in found)


def test_chunks_of_a_pair_repeat_the_first_part(wordpiece):
    assert made(wordpiece, TruncationConfig(7, "chunks"), 2, 5) == [
        "[CLS] w0 w1 [SEP] w300 w301 [SEP]",
        "[CLS] w0 w1 [SEP] w302 w303 [SEP]",
        "[CLS] w0 w1 [SEP] w304 [SEP]",
    ]


@given(st.integers(0, 30), st.integers(0, 30), st.sampled_from(["head", "tail", "head_tail"]))
def test_no_truncation_makes_a_sequence_too_long_or_wastes_room(wordpiece, a, b, truncation):
    (text,) = made(wordpiece, TruncationConfig(20, truncation), a, b)
    assert len(text.split()) == min(20, a + b + 3)


def test_groups_tell_which_sequences_are_one_sample(wordpiece):
    texts = [" ".join(WORDS[:size]) for size in (9, 1, 4)]
    found = features.tokenize(wordpiece, texts, None, [0.0] * 3, TruncationConfig(6, "chunks"))
    assert (found.groups.tolist(), len(found)) == ([0, 3, 4, 5], 3)
    assert found.lengths().tolist() == [9 + 6, 3, 6]
    order = np.concatenate(list(features.epoch_batches(found, 2, np.uint64(1))))
    assert sorted(order.tolist()) == [0, 1, 2]
