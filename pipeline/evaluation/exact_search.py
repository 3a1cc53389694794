"""Exact search of texts by vectors or by words, in blocks of bounded memory; equal scores are always in one order.

Shapes: Q queries, D documents, W width of a vector, K best.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from model.huggingface import sentence_model
from pipeline.common.counter_rng import Ints
from pipeline.common.schema import library
from pipeline.evaluation.sentence_encoder import Prompts, Vectors

Texts = Mapping[str, Sequence[str]]  # distinct texts of documents, with the ids of those that have each
Block = tuple[slice, int, Vectors]  # some queries, the first of some documents, their scores (Q, D)

DOCUMENTS, QUERIES = 4096, 1024  # whose scores are computed at once
SCORES = 2**24  # of BM25 in memory at a time
K1, B = 1.2, 0.75  # Lucene's
# Scripts without spaces: Thai to Lao, Burmese, Khmer, kana, Han. Lucene reads the last two as pairs of characters, too.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_PARTS = re.compile(f"[{UNSPACED}]+|[^{UNSPACED}]+")


class ByVectors:
    """Cosines of vectors, or dot products."""

    def __init__(self, encode: Callable[[list[str], Prompts], Vectors], dot: bool = False):
        """Take `encode`, which makes vectors of texts and the names of their prompts."""
        self.encode, self.dot = encode, dot

    def vectors_of(self, texts: list[str], prompts: Prompts) -> Vectors:
        """Return vectors `(N, W)`, of length 1 unless their dot products are compared."""
        vectors = self.encode(texts, prompts)
        if self.dot:
            return vectors
        unit: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return unit

    def scores(self, queries: list[str], documents: Texts) -> Iterator[Block]:
        """Yield the cosines of all queries and documents; vectors of one block of documents are in memory at a time."""
        asked, texts = self.vectors_of(queries, sentence_model.QUERY), [*documents]
        for start in range(0, len(texts), DOCUMENTS):
            block = self.vectors_of(texts[start : start + DOCUMENTS], sentence_model.DOCUMENT)
            for place in range(0, len(asked), QUERIES):
                some = slice(place, place + QUERIES)
                yield some, start, asked[some] @ block.T

    def similarities(self, texts: list[str], first: list[int], second: list[int]) -> Vectors:
        """Return cosines of pairs of texts, given by their places."""
        vectors = self.vectors_of(texts, ())
        cosines: Vectors = np.round((vectors[first] * vectors[second]).sum(1), 6)  # batches differ by 4e-7
        return cosines


class ByWords:
    """BM25 as Lucene's, of lower-cased words, without stop words or stemming."""

    def __init__(self) -> None:
        """Raise ConfigError if the library is not installed."""
        self.library = library("bm25s", "task")

    def _index(self, documents: list[str]) -> Callable[[str], Vectors]:
        index, every = self.library.BM25(method="lucene", k1=K1, b=B), [words(text) for text in documents]
        if known := any(every):  # else the library fails
            index.index(every, show_progress=False)

        def scores(query: str) -> Vectors:
            asked = words(query) if known else []
            scored = index.get_scores(asked) if asked else np.zeros(len(documents), np.float32)
            return np.where(scored > 0, scored, -np.inf).astype(np.float32)

        return scores

    def scores(self, queries: list[str], documents: Texts) -> Iterator[Block]:
        """Yield the scores of all queries for all documents; -inf: no word in common."""
        every = [*documents, *(text for text, names in documents.items() for _ in names[1:])]
        of_query, some = self._index(every), max(1, SCORES // max(len(every), 1))
        for place in range(0, len(queries), some):
            block = np.stack([of_query(text) for text in queries[place : place + some]])
            yield slice(place, place + some), 0, block[:, : len(documents)]

    def similarities(self, texts: list[str], first: list[int], second: list[int]) -> Vectors:
        """Return the scores of each text for the other one, added up, among all texts; 0 without a common word."""
        of_query = self._index(texts)
        both = [of_query(texts[a])[b] + of_query(texts[b])[a] for a, b in zip(first, second, strict=True)]
        return np.maximum(np.array(both, np.float32), 0)


def words(text: str) -> list[str]:
    """Return the lower-cased words of a text; of scripts without spaces pairs of characters.

    >>> words("The cat's 東京都 x")
    ['the', 'cat', 's', '東京', '京都', 'x']
    """
    from tokenizers import pre_tokenizers

    parts = []
    # Python's `\\w` has no vowel signs, at which it would cut Hindi or Tamil.
    for word, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text.lower()):
        if any(map(str.isalnum, word)):
            for part in _PARTS.findall(word):
                paired = re.match(f"[{UNSPACED}]", part) and len(part) > 1
                parts += [part[at : at + 2] for at in range(len(part) - 1)] if paired else [part]
    return parts


System = ByVectors | ByWords  # ways to compare texts


def nearest(
    system: System, queries: list[str], documents: Texts, count: int, on_documents: Callable[[int], object]
) -> tuple[Ints, Vectors]:
    """Return the places of the best documents of each query `(Q, K)`, and their scores.

    Of equal scores the first document comes first. Fewer are found where the score is -inf.
    """
    count = min(count, len(documents))
    places = np.full((len(queries), count), len(documents), np.int64)
    scores = np.full((len(queries), count), -np.inf, np.float32)
    for some, start, block in system.scores(queries, documents):
        both = np.hstack([scores[some], block])
        where = np.hstack([places[some], np.tile(np.arange(start, start + block.shape[1]), (len(block), 1))])
        least = np.partition(both, -count, axis=1)[:, [-count]]
        rows, columns = np.nonzero(both >= least)  # all that are equal to the last
        value, place = both[rows, columns], where[rows, columns]
        order = np.lexsort((place, -value, rows))
        rows = rows[order]
        first = np.arange(len(rows)) - np.searchsorted(rows, rows) < count
        scores[some] = value[order][first].reshape(-1, count)
        places[some] = place[order][first].reshape(-1, count)
        on_documents(block.shape[1] * len(block) // len(queries))
    return places, scores
