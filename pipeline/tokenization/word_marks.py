"""Which tokens of a sentence continue a word, for any tokenizer.

Entries of WordPiece say so themselves ("##"). Others, as byte-level BPE, cut words that their
pre-tokenizer has divided text into; the library knows which word a token is of.
"""

import numpy as np

from pipeline.tokenization import pretokenize
from pipeline.tokenization.pretokenize import Bools
from pipeline.tokenization.wordpiece import WordPiece


def word_marks(wordpiece: WordPiece, sentences: list[str]) -> list[Bools]:
    """Return whether each token of `encode` continues the word of the one before, by sentence."""
    if wordpiece.is_wordpiece:
        ids, lengths = wordpiece.encode(sentences)
        return np.split(wordpiece.continues[ids], np.cumsum(lengths)[:-1])
    texts = wordpiece.library_texts(pretokenize.utf8_buffer(sentences)[0])
    encoded = wordpiece.library.encode_batch(texts, add_special_tokens=False)
    return [np.diff(np.array(one.word_ids, np.int64), prepend=-1) == 0 for one in encoded]


def divides_words(wordpiece: WordPiece) -> bool:
    """Return whether text is divided into words before these are divided into tokens."""
    return wordpiece.is_wordpiece or not word_marks(wordpiece, ["a b"])[0][1:].all()
