"""The words of text that has no spaces between them, for masks that hide whole words.

BERT's tokenizer makes every Chinese character a token; which of them are one word is for another
library to say (Cui et al. 2021, section 3.1).
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pipeline.common.errors import ConfigError

Segmenter = Callable[[str], list[str]]  # a sentence -> its words, end to end, spaces among them

SEGMENTERS = ("jieba",)

_CHINESE = re.compile("[\u4e00-\u9fff]")


@functools.cache
def segmenter(name: str) -> Segmenter:
    """One of `SEGMENTERS`, once a process: its dictionary takes half a second and 60 MB.

    Raises:
        ConfigError: its library is not there.
    """
    assert name in SEGMENTERS
    try:
        import rjieba
    except ImportError as error:
        raise ConfigError(f"words={name} needs rjieba ({error}): pip install rjieba") from error
    cut: Segmenter = rjieba.Jieba().cut  # of its own: nobody else adds words to it
    return cut


def word_starts(
    sentences: Sequence[str], data: npt.NDArray[np.uint8], cut: Segmenter
) -> npt.NDArray[np.bool_]:
    """Whether a word starts at each byte of `data`, the UTF-8 of all `sentences`: `(bytes,)`.

    A sentence without a Chinese character counts as one word.
    """
    lengths = np.fromiter(map(len, _words(sentences, cut)), np.int64)
    first = np.cumsum(lengths) - lengths  # characters before each word
    places = np.flatnonzero((data & 0xC0) != 0x80)  # of characters
    assert lengths.sum() == len(places), "a segmenter gives back all that it gets"
    found = np.zeros(len(data), np.bool_)
    found[places[first[lengths > 0]]] = True
    return found


def _words(sentences: Sequence[str], cut: Segmenter) -> Iterator[str]:
    for sentence in sentences:
        if _CHINESE.search(sentence):
            yield from cut(sentence)
        else:
            yield sentence
