"""Texts with masks have the ids that the tokenizer's library gives them."""

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from model.huggingface import mask_filling
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build
from tests.pipeline.evaluation.byte_level import learn_byte_level

TEXTS = "the [MASK] of the list|[MASK] the list|the list [MASK]|the  [MASK] [MASK]  list|the[MASK]list"
TEXTS = [*TEXTS.split("|"), "the [MASK].", "[MASK]"]


def assert_like_the_library(wordpiece):
    library = Tokenizer.from_str(wordpiece.library.to_str())  # reads [MASK] as the token
    for text in TEXTS:
        expected = library.encode(text, add_special_tokens=False).ids
        assert mask_filling.pieces(wordpiece, text).tolist() == expected, text


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_spaces_around_a_mask_are_those_that_its_token_leaves(left, right):
    library = learn_byte_level(["the cat of the list"] * 9).library
    library.add_special_tokens([AddedToken("[MASK]", special=True, lstrip=left, rstrip=right)])
    assert_like_the_library(WordPiece(library.to_str()))


def test_masks_of_wordpiece_have_no_spaces():
    assert_like_the_library(WordPiece(build([*SPECIAL, "the", "of", "list"], lowercase=True)))


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
def test_what_follows_a_mask_is_not_the_beginning_of_a_text(scheme):
    library = Tokenizer(models.Unigram())
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=list(SPECIAL), unk_token="[UNK]")
    library.train_from_iterator(["the cat of the list, and [SEP] a."] * 9, trainer)
    wordpiece = WordPiece(library.to_str())
    assert_like_the_library(wordpiece)
    (typed,) = (mask_filling.pieces(wordpiece, text).tolist() for text in ["the [SEP] [MASK] a"])
    assert typed.count(wordpiece.mask) == 1
    assert wordpiece.sep not in typed
    assert wordpiece.encode(["[MASK]"])[0].tolist().count(wordpiece.mask) == 0  # as before
