"""Batches from the rows of shards, without padding and without Python code per sample or token.

Shapes: B sequences, T tokens, M masked positions.
"""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from model.encoders.batch import Batch
from model.loader.masking import Masker
from model.loader.sample_table import SampleTable
from pipeline.common.counter_rng import Ints
from pipeline.common.ranges import bounds_of, ranges
from pipeline.shards import Shard
from pipeline.tokenization.wordpiece import WordPiece


class Collator:
    """Gathers the tokens of rows, adds the special ones, and masks."""

    def __init__(self, shards: list[Shard], tokenizer: WordPiece, masker: Masker):
        self._shards, self._tokenizer, self._masker = shards, tokenizer, masker
        # The token format of a batch: with word bits if any folder has them.
        self._info = max((shard.info for shard in shards), key=lambda info: info.word_bit)

    def ids(self, rows: SampleTable) -> npt.NDArray[Any]:
        """Return the ids of the text in some rows, in no order: `(T,)`."""
        tokens, _ = self.gather(rows)
        return tokens & (self._info.word_bit - 1) if self._info.word_bit else tokens

    def batches(self, rows: SampleTable, samples: Ints, masked: Ints, cuts: Ints) -> list[Batch]:
        """Return the micro-batches between `cuts` of some rows, computed together."""
        a_len, b_len = rows.a_len.astype(np.int64), rows.b_len.astype(np.int64)
        # Two runs per sequence: [CLS] A [SEP], and B [SEP] unless B is empty.
        runs = np.stack([a_len + 2, b_len + (b_len > 0)], axis=1)
        starts = bounds_of(runs.sum(axis=1))
        tokens, first = self.gather(rows)
        # Index of each run's tokens in `tokens`: shifted by one for [CLS], two for [CLS] and [SEP].
        # Special tokens get some neighbour's index and are overwritten.
        shift = first - starts[:-1]
        source = np.repeat(np.stack([shift - 1, shift - 2], axis=1).ravel(), runs.ravel())
        position = np.arange(starts[-1])
        source += position
        ids, continues = tokens.take(source, mode="clip"), None
        if word_bit := self._info.word_bit:
            continues = ids >= word_bit
            ids &= word_bit - 1
        ids[starts[:-1]] = self._tokenizer.cls
        ids[starts[:-1] + runs[:, 0] - 1] = self._tokenizer.sep
        ids[starts[1:] - 1] = self._tokenizer.sep
        masks = self._masker.draw(ids, starts, samples, masked, continues)

        lengths = np.diff(starts)
        position -= np.repeat(starts[:-1], lengths)
        whole = Batch(
            input_ids=torch.from_numpy(ids.astype(np.int64)),
            segment_ids=torch.from_numpy(np.repeat(np.arange(2 * len(rows)) & 1, runs.ravel())),
            position_ids=torch.from_numpy(position),
            cu_seqlens=torch.from_numpy(starts),
            max_length=0,  # each micro-batch has its own
            masked_positions=torch.from_numpy(masks.positions),
            masked_labels=torch.from_numpy(masks.labels),
            next_sentence_labels=torch.from_numpy(rows.is_random_next.astype(np.int64)),
        )
        return cut(whole, cuts)

    def gather(self, rows: SampleTable) -> tuple[npt.NDArray[Any], Ints]:
        """Return the stored tokens of `rows`, grouped by shard, and each row's start in them."""
        by_shard = np.argsort(rows.shard, kind="stable")
        ordered = rows.text_lengths()[by_shard]
        ends = np.cumsum(ordered)
        first = np.empty(len(rows), np.int64)
        first[by_shard] = ends - ordered
        source = ranges(rows.start[by_shard], ordered)
        tokens = np.zeros(max(len(source), 1), self._info.dtype)
        shards, count = np.unique(rows.shard, return_counts=True)
        low = 0
        for shard, last in zip(shards, np.cumsum(count), strict=True):
            high = ends[last - 1]
            stored, info = self._shards[shard].values, self._shards[shard].info
            if info.word_bit == self._info.word_bit:
                np.take(stored, source[low:high], out=tokens[low:high], mode="clip")
            else:  # other folders have word bits: derive them from the vocabulary
                ids = stored.take(source[low:high], mode="clip")
                tokens[low:high] = self._info.marked(ids, self._tokenizer.continues[ids])
            low = high
        return tokens, first


def cut(whole: Batch, cuts: Ints) -> list[Batch]:
    """Return micro-batches as views: the i-th holds sequences `cuts[i]` to `cuts[i + 1] - 1`."""
    starts, positions = whole.cu_seqlens.numpy(), whole.masked_positions.numpy()
    lengths, edges = np.diff(starts), starts[cuts]
    masks = np.searchsorted(positions, edges)
    batches = []
    for i, (first, last) in enumerate(itertools.pairwise(cuts.tolist())):
        tokens, masked = slice(edges[i], edges[i + 1]), slice(masks[i], masks[i + 1])
        batches.append(
            Batch(
                input_ids=whole.input_ids[tokens],
                segment_ids=whole.segment_ids[tokens],
                position_ids=whole.position_ids[tokens],
                cu_seqlens=torch.from_numpy((starts[first : last + 1] - edges[i]).astype(np.int32)),
                max_length=int(lengths[first:last].max(initial=0)),
                masked_positions=torch.from_numpy(positions[masked] - edges[i]),
                masked_labels=whole.masked_labels[masked],
                next_sentence_labels=whole.next_sentence_labels[first:last],
            )
        )
    return batches
