"""Best-fit packing of documents: Ding et al. 2024, "Fewer truncations improve language modeling".

A document is cut only where it is longer than a sequence, into runs of whole sentences. All pieces,
the longest first, go into the sequence whose free place they fill best, or into a new one.

Shapes: T tokens, D documents, K pieces, N sequences.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.common import counter_rng
from pipeline.shards.full_sentences import full_sentences
from pipeline.shards.sentence_pairs import Documents, Ints, Pairs


def best_fit(
    documents: Documents, max_tokens: int, key: np.uint64, *, separator: int, chosen: Ints | None = None
) -> tuple[npt.NDArray[Any], Pairs]:
    """Pack documents into slices of at most `max_tokens` of the returned tokens `(T,)`.

    Arguments and result are those of `full_sentences`. Pieces of a sequence are in keyed order.
    """
    tokens, pieces = full_sentences(documents, max_tokens, key, separator=None, chosen=chosen)
    sequences = fill(pieces.a_len.tolist(), max_tokens)
    mark = np.array([separator], tokens.dtype)
    parts = []
    for sequence in sequences:
        for number, piece in enumerate(sequence):
            first = pieces.a_start[piece]
            parts += [mark] if number else []
            parts.append(tokens[first : first + pieces.a_len[piece]])
    lengths = np.array([pieces.a_len[sequence].sum() + len(sequence) - 1 for sequence in sequences], np.int64)
    none = np.zeros(len(sequences), np.int64)
    return (
        np.concatenate(parts) if parts else tokens,
        Pairs(np.cumsum(lengths) - lengths, lengths, none, none.copy(), none.astype(np.bool_)),
    )


def fill(sizes: list[int], most: int) -> list[list[int]]:
    """Return the pieces of each sequence, ascending, for pieces of these sizes, at most `most`.

    Between two pieces there is one token more.
    """
    sequences: list[list[int]] = []
    free: list[list[int]] = [[] for _ in range(most + 1)]  # sequences by their free places
    some = 0  # bit f is set where free[f] has a sequence
    for piece in sorted(range(len(sizes)), key=lambda piece: -sizes[piece]):
        need = sizes[piece] + 1
        enough = some >> need
        if enough:
            place = need + (enough & -enough).bit_length() - 1
            number = free[place].pop()
            if not free[place]:
                some ^= 1 << place
            left = place - need
        else:
            number, left = len(sequences), most - sizes[piece]
            sequences.append([])
        sequences[number].append(piece)
        free[left].append(number)
        some |= 1 << left
    return [sorted(sequence) for sequence in sequences]


def cut_documents(
    documents: Documents,
    max_tokens: int,
    key: np.uint64,
    separator: int | None,
    chosen: Ints,
    packing: str,
    starts: Ints,
) -> int:
    """Return how many of the chosen documents are in more than one sequence.

    `starts` are those of the sequences, ascending, of sequential packing.
    """
    sizes = np.diff(documents.sentences[documents.starts])
    if packing == "best_fit" or separator is None:
        return int((sizes[chosen] > max_tokens).sum())
    order = chosen[np.argsort(counter_rng.random_bits(key, documents.keys[chosen]), kind="stable")]
    ends = np.cumsum(sizes[order] + 1)
    before = np.searchsorted(starts, ends - sizes[order] - 1, "right")
    inside = np.searchsorted(starts, ends) - before
    return int((inside > 0).sum())
