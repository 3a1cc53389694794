"""Sequences of full sentences, without pairs, packed in two ways.

One document after another, cut where a sequence is full: Liu et al. 2019 (RoBERTa), section 4.2. Or
by best fit: Ding et al. 2024, "Fewer truncations improve language modeling". There a document is cut
only where it is longer than a sequence, into runs of whole sentences; all pieces, the longest first,
go into the sequence whose free place they fill best, or into a new one.

Shapes: T tokens, S sentences, D documents, K pieces, N sequences.
"""

import dataclasses

import numpy as np

from pipeline.common.counter_rng import Ints
from pipeline.common.ranges import ranges
from pipeline.shards import Tokens
from pipeline.shards.sentence_pairs import Documents, Pairs


@dataclasses.dataclass(frozen=True)
class Stream:
    """Documents concatenated in some order, optionally with separators."""

    tokens: Tokens  # (T,)
    starts: Ints  # (S,) of each sentence in `tokens`
    ends: Ints  # (S,)
    owner: Ints  # (S,) place of its document in that order


def concatenate_documents(documents: Documents, order: Ints, longest: int, separator: int | None) -> Stream:
    """Concatenate the documents in this order; split sentences of more than `longest` tokens.

    `separator` is an id between documents.
    """
    bounds = documents.sentences[documents.starts]  # (D+1,) of documents in tokens
    sizes = np.diff(bounds)[order] + (separator is not None)
    begins = np.cumsum(sizes) - sizes  # (D,) start of each document in the new tokens
    separators = np.array([] if separator is None else [separator], documents.tokens.dtype)
    spans = zip(bounds[order].tolist(), bounds[order + 1].tolist(), strict=True)
    parts = (part for low, high in spans for part in (documents.tokens[low:high], separators))
    tokens = np.concatenate([separators[:0], *parts])

    counts = np.diff(documents.starts)[order]  # sentences of each document
    which = ranges(documents.starts[order], counts)
    owner = np.repeat(np.arange(len(order)), counts)
    starts = documents.sentences[which] - bounds[order][owner] + begins[owner]
    lengths = np.diff(documents.sentences)[which]
    pieces = -(-lengths // longest)
    part = ranges(np.zeros(len(pieces), np.int64), pieces)
    whole_end = np.repeat(starts + lengths, pieces)
    starts, owner = np.repeat(starts, pieces) + part * longest, np.repeat(owner, pieces)
    return Stream(tokens, starts, np.minimum(starts + longest, whole_end), owner)


def full_sentences(
    documents: Documents, max_tokens: int, key: np.uint64, *, separator: int | None, chosen: Ints
) -> tuple[Tokens, Pairs, int]:
    """Pack whole sentences into slices of at most `max_tokens` of the returned tokens `(T,)`.

    Segment B is empty. The `chosen` documents are in keyed order. No token is lost: an overlong
    sentence is cut. `separator` is the id between two documents in one sequence; with None, each
    sequence ends with its document. The number is that of the documents in more than one sequence.
    """
    stream = concatenate_documents(documents, documents.ordered(chosen, key), max_tokens, separator)
    following = np.searchsorted(stream.ends, stream.starts + max_tokens, side="right")
    if separator is None:
        following = np.minimum(following, np.searchsorted(stream.owner, stream.owner, side="right"))
    after, begun, position = following.tolist(), [], 0
    while position < len(after):
        begun.append(position)
        position = after[position]
    first = np.array(begun, np.int64)
    inside = first[1:][stream.owner[first[1:]] == stream.owner[first[1:] - 1]]
    a_start = stream.starts[first]
    a_len = stream.ends[following[first] - 1] - a_start
    return stream.tokens, Pairs.single(a_start, a_len), len(np.unique(stream.owner[inside]))


def best_fit(
    documents: Documents, max_tokens: int, key: np.uint64, *, separator: int, chosen: Ints
) -> tuple[Tokens, Pairs, int]:
    """Pack documents into slices of at most `max_tokens` of the returned tokens `(T,)`.

    Arguments and result are those of `full_sentences`. Pieces of a sequence are in keyed order.
    """
    tokens, pieces, cut = full_sentences(documents, max_tokens, key, separator=None, chosen=chosen)
    sequences = fill(pieces.a_len.tolist(), max_tokens)
    separators = np.array([separator], tokens.dtype)
    parts = [tokens[:0]]
    for sequence in sequences:
        for piece in sequence:
            first = pieces.a_start[piece]
            parts += (tokens[first : first + pieces.a_len[piece]], separators)
        parts.pop()
    lengths = np.array([pieces.a_len[sequence].sum() + len(sequence) - 1 for sequence in sequences], np.int64)
    return np.concatenate(parts), Pairs.single(np.cumsum(lengths) - lengths, lengths), cut


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
