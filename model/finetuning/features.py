"""Texts of a downstream task -> sequences of token ids, framed as in pre-training. No torch here.

Shapes: N samples, S sequences (a sample has one, or several: chunks of a long text, or choices).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.common import counter_rng
from pipeline.tokenization.wordpiece import WordPiece

Ids = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int64]

SORTED = 32  # batches whose samples are sorted by length together: short ones cost little
HEAD_SHARE = 128 / 510  # of a text cut to head and tail (Sun et al. 2019, section 5.3.1)
UNLABELLED = -100  # a token that has no label of its own


@dataclass(frozen=True)
class TruncationConfig:
    """How texts become sequences: the longest, and what a text that is longer loses."""

    longest: int  # tokens with [CLS] and [SEP]
    truncation: str = "head"  # head, tail, head_tail or chunks
    chunks: int = 8  # at most, of one text


@dataclass(frozen=True)
class Samples:
    """Tokenized samples."""

    ids: list[Ids]  # S of (length,), with [CLS] and [SEP]
    second: Ints  # (S,) where segment B starts in each
    # (N,) classes or scores; for labels of tokens S of (length,), for answers (S, 2)
    labels: Any
    groups: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # (N+1,) empty: one each

    def __len__(self) -> int:
        return len(self.groups) - 1 if len(self.groups) else len(self.ids)

    def bounds(self) -> Ints:
        """Where each sample's sequences start, and S: `(N+1,)`."""
        return self.groups if len(self.groups) else np.arange(len(self.ids) + 1)

    def lengths(self) -> Ints:
        """Tokens of each sample `(N,)`."""
        each = np.array([len(ids) for ids in self.ids], np.int64)
        total = np.concatenate([[0], np.cumsum(each)])
        return np.asarray(np.diff(total[self.bounds()]))


def texts(wordpiece: WordPiece, sentences: Sequence[str]) -> list[Ids]:
    """The ids of each sentence."""
    if not len(sentences):
        return []
    ids, lengths = wordpiece.encode(list(sentences))
    return np.split(ids.astype(np.int64), np.cumsum(lengths)[:-1])


def tokenize(
    wordpiece: WordPiece, first: list[str], second: list[str] | None, labels: Sequence[float],
    framing: TruncationConfig,
) -> Samples:  # fmt: skip
    """[CLS] first [SEP] or [CLS] first [SEP] second [SEP]; several of them where text is chunked.

    Of a pair that is too long, the longer part loses tokens first, one at a time, as in the
    published code; which tokens a part loses, `framing` says.
    """
    ids: list[Ids] = []
    starts: list[int] = []
    groups = [0]
    others = texts(wordpiece, second or [])
    for index, part in enumerate(texts(wordpiece, first)):
        for a, b in pieces(part, others[index] if second is not None else None, framing):
            sequence, start = frame(wordpiece, a, b)
            ids.append(sequence)
            starts.append(start)
        groups.append(len(ids))
    chunked = framing.truncation == "chunks"
    return Samples(
        ids, np.array(starts, np.int64), np.array(labels, np.float64),
        np.array(groups if chunked else [], np.int64),
    )  # fmt: skip


def frame(wordpiece: WordPiece, a: Ids, b: Ids | None) -> tuple[Ids, int]:
    """The sequence of one or two parts, and where segment B starts."""
    cls, sep = np.array([wordpiece.cls]), np.array([wordpiece.sep])
    parts = [cls, a, sep] if b is None else [cls, a, sep, b, sep]
    return np.concatenate(parts).astype(np.int64), len(a) + 2


def pieces(a: Ids, b: Ids | None, framing: TruncationConfig) -> Iterator[tuple[Ids, Ids | None]]:
    """What of one or two parts goes into a sequence; several where a text is chunked."""
    room = framing.longest - (2 if b is None else 3)
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
    """At most `keep` tokens of a part: its head, its tail, or both ends."""
    if len(part) <= keep:
        return part
    head = {"head": keep, "tail": 0, "head_tail": round(keep * HEAD_SHARE)}[truncation]
    return np.concatenate([part[:head], part[len(part) - (keep - head) :]])


def epoch_batches(samples: Samples, size: int, key: np.uint64) -> Iterator[Ints]:
    """Every sample once, in batches of like length, in a keyed order."""
    order = counter_rng.permutation(key, len(samples))
    lengths = samples.lengths()
    batches = []
    for start in range(0, len(order), size * SORTED):
        pool = order[start : start + size * SORTED]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[low : low + size] for low in range(0, len(pool), size)]
    for index in counter_rng.permutation(key ^ np.uint64(1), len(batches)):
        yield batches[index]


def batch_count(samples: Samples, size: int) -> int:
    """How many batches of `size` hold all samples."""
    return -(-len(samples) // size)
