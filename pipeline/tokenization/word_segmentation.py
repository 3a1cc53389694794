"""Word segmentation of text without spaces, for whole-word masking.

BERT's tokenizer makes every Chinese character a token; word boundaries come from an external
segmenter (Cui et al. 2021, section 3.1).
"""

import functools
import re
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from pipeline.common.counter_rng import Bools
from pipeline.common.schema import library
from pipeline.tokenization.pretokenize import Bytes

Segmenter = Callable[[str], list[str]]  # sentence -> words, including spaces, covering all of it

_CHINESE = re.compile("[\u4e00-\u9fff]")


@functools.cache
def segmenter(name: str) -> Segmenter:
    """Return the segmenter jieba, cached per process: its dictionary takes 0.5 s and 60 MB.

    Raises:
        ConfigError: its library is not installed.
    """
    own = library("rjieba", "words", name).Jieba()  # other code cannot add words to it
    cut: Segmenter = own.cut
    return cut


def word_starts(sentences: Sequence[str], data: Bytes, cut: Segmenter) -> Bools:
    """Return whether a word starts at each byte of `data`, the UTF-8 of `sentences`: `(bytes,)`.

    A sentence without a Chinese character counts as one word.
    """
    words = (cut(sentence) if _CHINESE.search(sentence) else [sentence] for sentence in sentences)
    lengths = np.fromiter(map(len, chain.from_iterable(words)), np.int64)
    first = np.cumsum(lengths) - lengths  # characters before each word
    places = np.flatnonzero((data & 0xC0) != 0x80)  # of characters
    assert lengths.sum() == len(places), "a segmenter must return all of its input"
    begins = np.zeros(len(data), np.bool_)
    begins[places[first[lengths > 0]]] = True
    return begins
