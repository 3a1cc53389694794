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

import numpy as np

from model.config import DataConfig, ObjectiveConfig
from model.config.training import check_pairs
from model.encoders.batch import Batch
from model.loader.collate import Collator
from model.loader.masking import Masker
from model.loader.sample_order import Mixture, Span, even_cuts
from model.loader.sample_table import SampleStream, SampleTable, order_of
from model.loader.sources import LOCAL, ShardSource
from pipeline.common import counter_rng
from pipeline.errors import ConfigError, InputError, named
from pipeline.shards import Shard, words_per_token
from pipeline.tokenization.piece_bytes import piece_bytes
from pipeline.tokenization.wordpiece import WordPiece

# Sequences computed at once: enough to amortise numpy's calls, few enough for the cache.
BLOCK = 512


@dataclass(frozen=True)
class GlobalBatch:
    """One rank's part of a global batch, and the global batch's sizes."""

    batches: list[Batch]  # the same number on every rank
    masked: int  # positions, over all ranks
    sequences: int  # over all ranks
    words: float | None  # of the text, over all ranks; None: the shards do not know
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
        tokenizer: WordPiece,
        seed: int,
        split: str,
        source: ShardSource = LOCAL,
    ):
        """Open and check the shards; a `source` may have them only later.

        Raises:
            InputError: Shards are missing, broken, empty, or made with another tokenizer.
            ConfigError: The objective needs sentence pairs that the shards do not have.
        """
        self.source, self._tokenizer = source, tokenizer
        folders = [source.shards(folder, split) for folder in data.folders]
        every = [shard for folder in folders for shard in folder]
        for folder, shards in zip(data.folders, folders, strict=True):
            _check(folder, shards, objective, tokenizer)
        self.words_per_token = words_per_token(every)  # of each shard's text; None: one does not know
        self.sequence_length = max(shard.info.sequence_length for shard in every)
        shuffle = split == "train"
        key = counter_rng.key(seed, "masks") if shuffle else counter_rng.key(0, "validation masks")
        self._masker = Masker(tokenizer, objective, self.sequence_length, key)
        self._collator = Collator(every, tokenizer, self._masker)
        if shuffle and not data.weights:
            folders = [every]  # as one folder
        starts = itertools.accumulate(map(len, folders), initial=0)
        self._streams = [
            SampleStream(shards, first, order_of(shards, data, seed, number, shuffle), self._masker)
            for number, (shards, first) in enumerate(zip(folders, starts, strict=False))
        ]
        samples = [stream.samples for stream in self._streams]
        self._mixture = Mixture.by_weight(data.weights or samples)
        # An epoch's samples without weights; for validation, as many as fit without repetition.
        self.samples = sum(samples) if shuffle else self._mixture.once(samples)
        if source.complete:
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
        self.source.ready(start, start + count)
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
            batches += self._collator.batches(rows[part], samples, masked[part], block - block[0])
        return GlobalBatch(batches, int(masked.sum()), count, self._words(rows))

    def _words(self, rows: SampleTable) -> float | None:
        """Return the words of the text in some rows: per token as many as in the row's shard."""
        if self.words_per_token is None:
            return None
        return float(rows.text_lengths() @ self.words_per_token[rows.shard])

    def _rows(self, start: int, stop: int) -> SampleTable:
        """Return the rows of samples `start` to `stop - 1`."""
        if len(self._streams) == 1:
            return self._streams[0].rows(start, stop)
        bounds = zip(self._mixture.before(start), self._mixture.before(stop), strict=True)
        parts = [
            stream.rows(low, high) for stream, (low, high) in zip(self._streams, bounds, strict=True) if high > low
        ]
        position = np.empty(stop - start, np.int64)
        by_source = np.argsort(self._mixture.sources(start, stop), kind="stable")
        position[by_source] = np.arange(stop - start)
        return SampleTable.concatenate(parts)[position]

    def spans(self, start: int) -> Iterator[Span]:
        """Yield which shards sample `start` and later ones need, by the first of these samples."""
        numbers = self._mixture.before(start)
        return heapq.merge(*map(self._mixed, range(len(numbers)), numbers), key=lambda s: s.first)

    def _mixed(self, source: int, number: int) -> Iterator[Span]:
        """Yield the spans of a source from its sample `number` on, with the mixture's indices."""
        for span in self._streams[source].spans(number):
            first, last = (self._mixture.place(source, n) for n in (span.first, span.last - 1))
            yield replace(span, first=first, last=last + 1)

    def bytes_per_mask(self, count: int) -> float:
        """Return the bytes of text of a masked token of the first samples, on average."""
        tokens, size, sizes = 0, 0, piece_bytes(self._tokenizer)
        for first in range(0, count, BLOCK):
            for batch in self.batch(first, min(BLOCK, count - first)).batches:
                tokens += len(batch.masked_labels)
                size += int(sizes[batch.masked_labels.numpy()].sum())
        return size / max(tokens, 1)

    def most_frequent_shares(self, count: int) -> tuple[float, float]:
        """Return the shares of the most frequent token and pair class in the first samples, scores of always giving it.

        Special tokens are not counted.
        """
        counts, random = np.zeros(len(self._tokenizer.vocab), np.int64), 0
        for first in range(0, count, BLOCK):
            rows = self._rows(first, min(first + BLOCK, count))
            counts += np.bincount(self._collator.ids(rows), minlength=len(counts))
            random += int(rows.is_random_next.sum())
        counts[self._masker.is_special(np.arange(len(counts)))] = 0
        return float(counts.max() / max(counts.sum(), 1)), max(random, count - random) / count


def _check(folder: str, shards: list[Shard], objective: ObjectiveConfig, tokenizer: WordPiece) -> None:
    if objective.whole_word and not tokenizer.is_wordpiece:
        raise ConfigError(
            "requires a WordPiece tokenizer, whose entries show where words begin; set "
            f"{named('objective.whole_word')}=false",
            "objective.whole_word",
            True,
        )
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
    check_pairs(objective, info.pairs, folder)
