"""Documents of given lengths, whose tokens say where they are from."""

import numpy as np

from pipeline.common import counter_rng
from pipeline.shards.sentence_pairs import Documents


def documents_of(lengths: list[list[int]]) -> Documents:
    """Documents whose sentences have these lengths; token k of the corpus is k."""
    sentences = [length for document in lengths for length in document]
    return Documents(
        tokens=np.arange(sum(sentences)),
        sentences=np.concatenate([[0], np.cumsum(sentences)]).astype(np.int64),
        starts=np.concatenate([[0], np.cumsum([len(d) for d in lengths])]).astype(np.int64),
        keys=counter_rng.random_bits(counter_rng.key(7, "documents"), np.arange(len(lengths))),
        buckets=np.array([0, len(lengths)]),
    )
