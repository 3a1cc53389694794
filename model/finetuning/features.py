"""Token ids of downstream texts, with special tokens as in pre-training. Does not import torch.

Shapes: N samples, S sequences (one or several per sample: chunks of a long text, or choices).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.common import counter_rng
from pipeline.common.counter_rng import Ints
from pipeline.common.ranges import bounds_of
from pipeline.tokenization.wordpiece import PairFrame, WordPiece

Ids = Ints

HEAD_SHARE = 128 / 510  # share of the head in head_tail (Sun et al. 2019, section 5.3.1)
UNLABELLED = -100  # label of tokens without a label


@dataclass(frozen=True)
class TruncationConfig:
    """Maximum length of sequences and truncation of longer texts."""

    longest: int  # tokens with [CLS] and [SEP]
    truncation: str = "head"  # head, tail, head_tail or chunks
    chunks: int = 8  # most chunks per text


@dataclass(frozen=True)
class Samples:
    """Tokenized samples."""

    ids: list[Ids]  # S of (length,), with [CLS] and [SEP]
    second: Ints  # (S,) start of segment B in each
    # (N,) classes or scores; S of (length,) for token labels, (S, 2) for answers
    labels: Any
    groups: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # (N+1,) or empty: S = N

    def __len__(self) -> int:
        return len(self.groups) - 1 if len(self.groups) else len(self.ids)

    def bounds(self) -> Ints:
        """Return the first sequence of each sample, and S: `(N+1,)`."""
        return self.groups if len(self.groups) else np.arange(len(self.ids) + 1)

    def lengths(self) -> Ints:
        """Return the tokens of each sample `(N,)`."""
        each = np.array([len(ids) for ids in self.ids], np.int64)
        return np.diff(bounds_of(each)[self.bounds()])


def texts(wordpiece: WordPiece, sentences: Sequence[str]) -> list[Ids]:
    """Return the token ids of each sentence."""
    if not len(sentences):
        return []
    ids, lengths = wordpiece.encode(list(sentences))
    return np.split(ids.astype(np.int64), np.cumsum(lengths)[:-1])


def tokenize(
    wordpiece: WordPiece, first: list[str], second: list[str] | None, labels: Sequence[float], framing: TruncationConfig
) -> Samples:
    """Encode texts as [CLS] first [SEP] or [CLS] first [SEP] second [SEP], chunked if configured.

    RoBERTa's tokenizers have two [SEP] between the texts of a pair, which is one segment.

    A pair that is too long loses tokens from its longer part first, one at a time, as in the
    published code; `framing` selects which end of a part is truncated.
    """
    framed: list[tuple[Ids, int]] = []
    groups = [0]
    others = texts(wordpiece, second or [])
    for index, part in enumerate(texts(wordpiece, first)):
        other = others[index] if second is not None else None
        if framing.truncation != "chunks":
            whole = len(part) + framing_tokens(wordpiece, other is not None) + (0 if other is None else len(other))
            wordpiece.coverage.shortened += whole > framing.longest
        framed += (frame(wordpiece, a, b) for a, b in pieces(wordpiece, part, other, framing))
        groups.append(len(framed))
    starts, chunked = np.array([start for _, start in framed], np.int64), framing.truncation == "chunks"
    bounds = np.array(groups if chunked else [], np.int64)
    return Samples([ids for ids, _ in framed], starts, np.array(labels, np.float64), bounds)


def frame(wordpiece: WordPiece, a: Ids, b: Ids | None, pairs: PairFrame | None = None) -> tuple[Ids, int]:
    """Return the sequence of one or two parts, framed as the tokenizer's `pairs` by default, and where segment B is.

    That is the end, where it has none.
    """
    pairs = pairs or wordpiece.pairs
    cls, sep = np.array([wordpiece.cls]), np.array([wordpiece.sep])
    before = [cls, a, *[sep] * (1 if b is None else pairs.separators)]
    sequence = np.concatenate(before + ([] if b is None else [b, sep])).astype(np.int64)
    return sequence, sum(map(len, before)) if pairs.segments else len(sequence)


def framing_tokens(wordpiece: WordPiece, pair: bool) -> int:
    """Return how many tokens `frame` adds to one part, or to a pair."""
    return 2 + (wordpiece.pairs.separators if pair else 0)


def pieces(wordpiece: WordPiece, a: Ids, b: Ids | None, framing: TruncationConfig) -> Iterator[tuple[Ids, Ids | None]]:
    """Yield the truncated parts of each sequence; several if the text is chunked."""
    room = framing.longest - framing_tokens(wordpiece, b is not None)
    if framing.truncation == "chunks":
        kept, long = (None, a) if b is None else (cut(a, room // 2, "head"), b)
        width = room - (0 if kept is None else len(kept))
        for start in range(0, min(max(len(long), 1), width * framing.chunks), width):
            chunk = long[start : start + width]
            yield (chunk, None) if kept is None else (kept, chunk)
    elif b is None:
        yield cut(a, room, framing.truncation), None
    else:
        keep = min(len(a), max(room - len(b), (room + 1) // 2))
        yield cut(a, keep, framing.truncation), cut(b, room - keep, framing.truncation)


def cut(part: Ids, keep: int, truncation: str) -> Ids:
    """Truncate a part to `keep` tokens: its head, its tail, or both ends."""
    if len(part) <= keep:
        return part
    head = {"head": keep, "tail": 0, "head_tail": round(keep * HEAD_SHARE)}[truncation]
    return np.concatenate([part[:head], part[len(part) - (keep - head) :]])


def epoch_batches(samples: Samples, size: int, key: np.uint64) -> Iterator[Ints]:
    """Yield each sample once, in random batches, as batches of one length may be of one kind of content.

    Within a batch the order is that of the lengths: attention computes equal ones at once.
    """
    order, lengths = counter_rng.permutation(key, len(samples)), samples.lengths()
    for low in range(0, len(order), size):
        rows = order[low : low + size]
        yield rows[np.argsort(lengths[rows], kind="stable")]


def batch_count(samples: Samples, size: int) -> int:
    """Return the number of batches of `size` that hold all samples."""
    return -(-len(samples) // size)
