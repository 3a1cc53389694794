"""Documents of given lengths, whose tokens say where they are from, and the sequences made of them."""

import numpy as np

from pipeline.common import counter_rng
from pipeline.shards.sentence_pairs import Documents, gather

SEPARATOR = 1_000_000


def documents_of(lengths):
    """Documents whose sentences have these lengths; token k of the corpus is k."""
    sentences = [length for document in lengths for length in document]
    return Documents(
        tokens=np.arange(sum(sentences)),
        sentences=np.concatenate([[0], np.cumsum(sentences)]).astype(np.int64),
        starts=np.concatenate([[0], np.cumsum([len(d) for d in lengths])]).astype(np.int64),
        keys=counter_rng.random_bits(counter_rng.key(7, "documents"), np.arange(len(lengths))),
        buckets=np.array([0, len(lengths)]),
    )


def owners(lengths):
    """The number of the document of each token."""
    return np.repeat(np.arange(len(lengths)), [sum(d) for d in lengths])


def rows(tokens, pairs):
    """The tokens of each sequence."""
    values, offsets = gather(tokens, pairs)
    return [part.tolist() for part in np.split(values, offsets[1:-1])] if len(pairs) else []
