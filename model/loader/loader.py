"""Stateless loading of shards: a batch is a function of its position in the sample order.

Rows are gathered from memory-mapped columns for many sequences at once, without padding and without
Python code per sample or token. Every rank computes its own part and, without communication, the
number of masked tokens in the global batch.

Shapes: N samples, B sequences, T tokens, M masked positions.
"""

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from model.config import DataConfig, ObjectiveConfig
from model.encoders.batch import Batch
from model.loader.masking import Ints, Masker, Tokenizer
from model.loader.sample_order import Mixture, Order, Span, even_cuts
from model.loader.sample_stream import SCAN, SampleStream, SampleTable
from model.loader.shard_cache import ShardCache
from pipeline.common import counter_rng
from pipeline.common.errors import ConfigError, InputError
from pipeline.shards import Shard, open_folder, words_per_token

# Sequences computed at once: enough to amortise numpy's calls, few enough for the cache.
BLOCK = 512


@dataclass(frozen=True)
class GlobalBatch:
    """One rank's part of a global batch, and the global batch's sizes."""

    batches: list[Batch]  # the same number on every rank
    masked: int  # positions, over all ranks
    sequences: int  # over all ranks
    words: float | None = None  # of the text, over all ranks; None: the shards do not know
    last: bool = False  # the run ends with it


class Loader:
    """Batches from folders of shards, by global sample index.

    The training split is reshuffled each epoch. The validation split keeps file order, and its
    masks depend only on the position: all runs are evaluated on the same task.
    """

    def __init__(
        self,
        data: DataConfig,
        objective: ObjectiveConfig,
        tokenizer: Tokenizer,
        seed: int,
        split: str,
        cache: ShardCache | None = None,
    ):
        """Open and check the shards; those of a `cache` are opened when they are needed.

        Raises:
            InputError: Shards are missing, broken, empty, or made with another tokenizer.
            ConfigError: The objective needs sentence pairs that the shards do not have.
        """
        check_whole_words(objective, tokenizer)
        self._cache = cache
        folders = [open_folder(folder, split) if cache is None else cache.shards(folder) for folder in data.folders]
        self._shards = [shard for folder in folders for shard in folder]
        for folder, shards in zip(data.folders, folders, strict=True):
            _check(folder, shards, objective, tokenizer)
        # The token format of a batch: with word bits if any folder has them.
        self._info = max((shard.info for shard in self._shards), key=lambda info: info.word_bit)
        self.sequence_length = max(shard.info.sequence_length for shard in self._shards)
        shuffle = split == "train"
        key = counter_rng.key(seed, "masks") if shuffle else counter_rng.key(0, "validation masks")
        self._masker = Masker(tokenizer, objective, self.sequence_length, key)
        self._cls, self._sep, self._vocab_size = tokenizer.cls, tokenizer.sep, len(tokenizer.vocab)
        if shuffle and not data.weights:
            folders = [self._shards]  # as one folder
        self._streams, first = [], 0
        for number, shards in enumerate(folders):
            rows = np.array([shard.rows for shard in shards], np.int64)
            own = int(counter_rng.key(seed, "source", number)) if number else seed
            order = Order(rows, own, data.window_rows, shuffle)
            self._streams.append(SampleStream(shards, first, order, self._masker))
            first += len(shards)
        samples = [stream.samples for stream in self._streams]
        self._mixture = Mixture.by_weight(data.weights or samples)
        # An epoch's samples without weights; for validation, as many as fit without repetition.
        self.samples = sum(samples) if shuffle else self._mixture.once(samples)
        if cache is None:
            self._rows(0, min(len(samples), self.samples))  # fail now on unreadable shards

    def batch(
        self,
        start: int,
        count: int,
        rank: int = 0,
        world: int = 1,
        micro_batch: int = 2**31,
        share: float | None = None,
    ) -> GlobalBatch:
        """Return rank `rank`'s part of the global batch of samples `start` to `start + count - 1`.

        Concatenated over ranks, the parts are the same sequences with the same masks for every
        `world` and `micro_batch`. Every rank has the same number of micro-batches, on average of
        at most `micro_batch` samples, with token counts as equal as possible, so that no rank waits
        for another's longer sentences. A micro-batch is empty (no sequence, all fields of length
        0) only if there are fewer samples than micro-batches on all ranks.

        `share` is that of the tokens to mask in this step; None: the objective's last one.
        """
        if self._cache is not None:
            self._cache.ready(start, start + count)
        rows = self._rows(start, start + count)
        masked = self._masker.counts(rows.lengths(), rows.maskable, share)
        each = -(-count // world)  # samples per rank
        parts = -(-each // micro_batch)
        cuts = even_cuts(rows.lengths(), world * parts)[rank * parts : (rank + 1) * parts + 1]
        at_once = max(1, BLOCK // micro_batch)
        batches: list[Batch] = []
        for first in range(0, parts, at_once):
            block = cuts[first : first + at_once + 1]
            samples = np.arange(start + block[0], start + block[-1])
            part = slice(block[0], block[-1])
            batches += self._batches(rows[part], samples, masked[part], block - block[0])
        return GlobalBatch(batches, int(masked.sum()), count, self._words(rows))

    @cached_property
    def words_per_token(self) -> npt.NDArray[np.float64] | None:
        """Words of the text for each token of every shard; None where one does not know."""
        return words_per_token(self._shards)

    def _words(self, rows: SampleTable) -> float | None:
        """Return the words of the text in some rows: per token as many as in the row's shard."""
        if self.words_per_token is None:
            return None
        tokens = rows.a_len.astype(np.int64) + rows.b_len
        return float(tokens @ self.words_per_token[rows.shard])

    def _rows(self, start: int, stop: int) -> SampleTable:
        """Return the rows of samples `start` to `stop - 1`."""
        if len(self._streams) == 1:
            return self._streams[0].rows(start, stop)
        ranges = zip(self._mixture.before(start), self._mixture.before(stop), strict=True)
        parts = [
            stream.rows(low, high) for stream, (low, high) in zip(self._streams, ranges, strict=True) if high > low
        ]
        position = np.empty(stop - start, np.int64)
        by_source = np.argsort(self._mixture.sources(start, stop), kind="stable")
        position[by_source] = np.arange(stop - start)
        return SampleTable.concatenate(parts)[position]

    def spans(self, start: int) -> Iterator[Span]:
        """Yield which shards sample `start` and later ones need, by the first of these samples."""
        if len(self._streams) == 1:
            return self._streams[0].spans(start)
        numbers = self._mixture.before(start)
        return heapq.merge(*map(self._mixed, range(len(numbers)), numbers), key=lambda s: s.first)

    def _mixed(self, source: int, number: int) -> Iterator[Span]:
        """Yield the spans of a source from its sample `number` on, with the mixture's indices."""
        for span in self._streams[source].spans(number):
            first, last = (self._mixture.place(source, n) for n in (span.first, span.last - 1))
            yield replace(span, first=first, last=last + 1)

    @property
    def failure(self) -> Exception | None:
        """Why no more shards will come; None as long as they do."""
        return None if self._cache is None else self._cache.failure

    def close(self) -> None:
        """Stop to wait for shards."""
        if self._cache is not None:
            self._cache.close()

    def remove_cache(self) -> None:
        """Remove the local copies of shards: the training is done."""
        if self._cache is not None:
            self._cache.remove()

    def most_frequent_share(self) -> float:
        """Return the share of the most frequent token, the score of always predicting it."""
        counts = np.zeros(self._vocab_size, np.int64)
        for shard in self._shards:
            for low in range(0, len(shard.values), SCAN):
                counts += np.bincount(shard.ids(low, low + SCAN), minlength=len(counts))
        counts[self._masker.is_special(np.arange(len(counts)))] = 0
        return float(counts.max() / max(counts.sum(), 1))

    def most_frequent_pair_share(self) -> float:
        """Return the share of the more frequent class of sentence pairs, in all samples."""
        rows = sum(shard.rows for shard in self._shards)
        share = sum(int(shard.is_random_next.sum()) for shard in self._shards) / max(rows, 1)
        return max(share, 1 - share)

    def _batches(self, rows: SampleTable, samples: Ints, masked: Ints, cuts: Ints) -> list[Batch]:
        """Return the micro-batches between `cuts` of some rows, computed together."""
        a_len, b_len = rows.a_len.astype(np.int64), rows.b_len.astype(np.int64)
        # Two runs per sequence: [CLS] A [SEP], and B [SEP] unless B is empty.
        runs = np.stack([a_len + 2, b_len + (b_len > 0)], axis=1)
        starts = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(runs.sum(axis=1), out=starts[1:])
        tokens, first = self._gather(rows, a_len + b_len)
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
        ids[starts[:-1]] = self._cls
        ids[starts[:-1] + runs[:, 0] - 1] = self._sep
        ids[starts[1:] - 1] = self._sep
        masks = self._masker.draw(ids, starts, samples, masked, continues)

        lengths = np.diff(starts)
        position -= np.repeat(starts[:-1], lengths)
        return _cut(
            cuts,
            starts,
            input_ids=torch.from_numpy(ids.astype(np.int64)),
            segment_ids=torch.from_numpy(np.repeat(_segments(len(rows)), runs.ravel())),
            position_ids=torch.from_numpy(position),
            masked_positions=masks.positions,
            masked_labels=torch.from_numpy(masks.labels),
            next_sentence_labels=torch.from_numpy(rows.is_random_next.astype(np.int64)),
        )

    def _gather(self, rows: SampleTable, lengths: Ints) -> tuple[npt.NDArray[Any], Ints]:
        """Return the stored tokens of `rows`, grouped by shard, and each row's start in them."""
        by_shard = np.argsort(rows.shard, kind="stable")
        ordered = lengths[by_shard]
        ends = np.cumsum(ordered)
        first = np.empty(len(rows), np.int64)
        first[by_shard] = ends - ordered
        source = np.repeat(rows.start[by_shard] - (ends - ordered), ordered)
        source += np.arange(len(source))
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
                tokens[low:high] = self._info.marked(ids, self._masker.continues[ids])
            low = high
        return tokens, first


def check_whole_words(objective: ObjectiveConfig, tokenizer: Tokenizer) -> None:
    """Raise ConfigError if whole words are to be masked and the tokenizer does not mark them."""
    if objective.whole_word and not tokenizer.is_wordpiece:
        raise ConfigError(
            "requires a WordPiece tokenizer, whose entries show where words begin; set objective.whole_word=false",
            "objective.whole_word",
            True,
        )


def _check(folder: str, shards: list[Shard], objective: ObjectiveConfig, tokenizer: Tokenizer) -> None:
    info = shards[0].info
    if not sum(shard.rows for shard in shards):
        more = " or raise validation_share" if info.split == "validation" else ""
        raise InputError(f"the {info.split} shards contain no samples; prepare a larger corpus{more}", path=folder)
    if info.tokenizer != tokenizer.sha256 or info.vocab_size != len(tokenizer.vocab):
        raise InputError(
            f"made with the tokenizer {info.tokenizer[:12]} ({info.vocab_size} entries), but this one is "
            f"{tokenizer.sha256[:12]} ({len(tokenizer.vocab)} entries); use the vocabulary of these shards or rerun "
            "prepare",
            path=folder,
        )
    if objective.next_sentence and info.pairs != objective.pairs:
        found = "no sentence pairs" if info.pairs == "none" else f"{info.pairs} pairs"
        raise ConfigError(
            f"requires {objective.pairs} pairs, but the shards in {folder} have {found}; rerun prepare with "
            f"pairs={objective.pairs}, or set objective.next_sentence=false",
            "objective",
            objective.name,
            path=folder,
        )


def _segments(sequences: int) -> Ints:
    """Return 0 and 1 for the runs of each sequence, `(2 B,)`."""
    return np.arange(2 * sequences) & 1


def _cut(
    cuts: Ints,
    starts: Ints,
    *,
    input_ids: torch.Tensor,
    segment_ids: torch.Tensor,
    position_ids: torch.Tensor,
    masked_positions: Ints,
    masked_labels: torch.Tensor,
    next_sentence_labels: torch.Tensor,
) -> list[Batch]:
    """Return micro-batches as views: the i-th holds sequences `cuts[i]` to `cuts[i + 1] - 1`."""
    lengths, edges = np.diff(starts), starts[cuts]
    masks = np.searchsorted(masked_positions, edges)
    batches = []
    for i, (first, last) in enumerate(itertools.pairwise(cuts.tolist())):
        tokens, masked = slice(edges[i], edges[i + 1]), slice(masks[i], masks[i + 1])
        batches.append(
            Batch(
                input_ids=input_ids[tokens],
                segment_ids=segment_ids[tokens],
                position_ids=position_ids[tokens],
                cu_seqlens=torch.from_numpy((starts[first : last + 1] - edges[i]).astype(np.int32)),
                max_length=int(lengths[first:last].max(initial=0)),
                masked_positions=torch.from_numpy(masked_positions[masked] - edges[i]),
                masked_labels=masked_labels[masked],
                next_sentence_labels=next_sentence_labels[first:last],
            )
        )
    return batches
