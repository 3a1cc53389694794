"""Minimal pairs as a model reads them: token ids, where what is scored begins, and words."""

import numpy as np
import numpy.typing as npt

from pipeline.common.errors import InputError
from pipeline.evaluation.task_types.minimal_pairs import Pairs
from pipeline.tokenization import word_marks as marks
from pipeline.tokenization.wordpiece import WordPiece


def framed(wordpiece: WordPiece, pairs: Pairs) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.int64]]:
    """Return [CLS] context sentence [SEP] of all good, then all bad sentences; where these start.

    A space divides context and sentence. No token spans both, but in a byte-level BPE the space is
    part of the sentence's first token, as it is within a text.
    """
    from model.finetuning import features

    sides = _sides(pairs)
    parts = features.texts(wordpiece, _sentences(wordpiece, pairs))
    before = features.texts(wordpiece, sides) if any(sides) else [np.zeros(0, np.int64)] * len(parts)
    first = 1 + np.array([len(part) for part in before], np.int64)
    whole = [np.concatenate([a, b]) for a, b in zip(before, parts, strict=True)]
    return [features.frame(wordpiece, ids, None)[0] for ids in whole], first


def word_marks(wordpiece: WordPiece, pairs: Pairs, first: npt.NDArray[np.int64]) -> list[npt.NDArray[np.bool_]]:
    """Return whether the tokens of each sequence of `framed` continue a word.

    Raises:
        InputError: the tokenizer has no words.
    """
    if not marks.divides_words(wordpiece):
        raise InputError(
            "the tokenizer of this model does not divide text into words before it divides these into tokens; set "
            "score=pll",
            "score",
            "word_l2r",
        )
    parts = marks.word_marks(wordpiece, _sentences(wordpiece, pairs))
    return [np.pad(part, (start, 1)) for part, start in zip(parts, first.tolist(), strict=True)]


def _sides(pairs: Pairs) -> list[str]:
    """Return the contexts of all good, then all bad sentences."""
    return [side for pair in zip(*pairs.contexts, strict=True) for side in pair]


def _sentences(wordpiece: WordPiece, pairs: Pairs) -> list[str]:
    """Return all good, then all bad sentences as they are after their contexts."""
    return wordpiece.within_text([*pairs.good, *pairs.bad], map(bool, _sides(pairs)))
