"""Stateless loading of shards: a batch is a function of its position in the sample order.

Rows are gathered from memory-mapped columns for many sequences at once, without padding and without
Python code per sample or token. Every rank computes its own part and, without communication, the
number of masked tokens in the global batch.

Shapes: N samples, B sequences, T tokens, M masked positions.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from model.config import DataConfig, ObjectiveConfig
from model.encoders.batch import Batch
from model.loader.masking import Masker
from model.loader.sample_order import Mixture, Order, Span, Window, even_cuts
from model.loader.shard_cache import ShardCache
from pipeline.common import counter_rng
from pipeline.common.counter_rng import Bools, Ints
from pipeline.common.ranges import bounds_of, ranges
from pipeline.errors import ConfigError, InputError, named
from pipeline.records.manifest import require_manifest
from pipeline.records.metrics import CorpusCounts
from pipeline.shards import Columns, Shard, open_folder, words_per_token
from pipeline.storage.checksums import sha256, sha256_of
from pipeline.tokenization.wordpiece import WordPiece

SCAN = 2**20  # tokens scanned at once
_NONE = np.zeros(0, np.int64)
# Sequences computed at once: enough to amortise numpy's calls, few enough for the cache.
BLOCK = 512


@dataclass(frozen=True)
class SampleTable(Columns):
    """Properties of samples without their tokens; each field `(N,)`, in sample order."""

    shard: npt.NDArray[np.int32]
    start: npt.NDArray[np.int32]  # of segment A in the shard's values
    a_len: npt.NDArray[np.uint16]
    b_len: npt.NDArray[np.uint16]
    maskable: npt.NDArray[np.uint16]  # tokens that are not special: as many can be masked
    is_random_next: Bools

    def lengths(self) -> Ints:
        """Return the tokens of each sample, including special ones: `(N,)`."""
        b_len = self.b_len.astype(np.int64)
        return self.a_len + 2 + b_len + (b_len > 0)  # [CLS] A [SEP], B [SEP]


class SampleStream:
    """Rows of some shards by their position in the order."""

    def __init__(self, shards: list[Shard], first: int, order: Order, masker: Masker):
        """Take the shards; rows refer to the first of them by the number `first`."""
        self._shards, self._first, self._order, self._masker = shards, first, order, masker
        self._tables: list[tuple[Window, SampleTable]] = []
        self.samples = order.samples  # of an epoch

    def rows(self, start: int, stop: int) -> SampleTable:
        """Return the rows of samples `start` to `stop - 1`, sliced from their windows' tables."""
        parts = []
        while True:
            window, table = self._table(start)
            parts.append(table[start - window.first : stop - window.first])
            start = window.last
            if start >= stop:
                return SampleTable.concatenate(parts)

    def _table(self, index: int) -> tuple[Window, SampleTable]:
        """Return the window of a sample and its rows in order; caches the last two."""
        for window, table in self._tables:
            if index in window:
                return window, table
        window = self._order.window(index)
        parts = [self._columns(shard) for shard in window.shards.tolist()]
        for shard in window.following:
            self._shards[shard].read_ahead()
        self._tables = [(window, SampleTable.concatenate(parts)[window.order]), *self._tables[:1]]
        return self._tables[0]

    def spans(self, start: int) -> Iterator[Span]:
        """Yield the spans from that of a sample on, with the numbers that rows have for shards."""
        for span in self._order.spans(start):
            yield replace(span, shards=span.shards + self._first)

    def _columns(self, number: int) -> SampleTable:
        """Return all rows of a shard in file order.

        Raises:
            InputError: The columns are inconsistent.
        """
        shard = self._shards[number]
        lengths = np.diff(shard.offsets)
        special = _special_tokens(shard, self._masker)
        b_len = lengths - shard.a_len
        full = lengths + 2 + (b_len > 0)
        if len(full) and (min(lengths.min(), b_len.min()) < 0 or full.max() > shard.info.sequence_length):
            raise InputError("lengths out of range; rerun prepare", path=shard.path)
        return SampleTable(
            shard=np.full(shard.rows, self._first + number, np.int32),
            start=shard.offsets[:-1],
            a_len=shard.a_len,
            b_len=b_len.astype(np.uint16),
            maskable=(lengths - special).astype(np.uint16),
            is_random_next=shard.is_random_next,
        )


def _special_tokens(shard: Shard, masker: Masker) -> Ints:
    """Count the special tokens, mostly [UNK], in the text of each row of a shard: `(rows,)`.

    Raises:
        InputError: An id is outside the vocabulary.
    """
    found = []
    for low in range(0, len(shard.values), SCAN):
        values = shard.ids(low, low + SCAN)
        if values.max() >= shard.info.vocab_size:
            raise InputError("an id is outside the vocabulary; rerun prepare", path=shard.path)
        found.append(low + np.flatnonzero(masker.is_special(values)))
    before = np.searchsorted(np.concatenate([*found, _NONE]), shard.offsets)
    return np.diff(before)


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
        cache: ShardCache | None = None,
    ):
        """Open and check the shards; those of a `cache` are opened when they are needed.

        Raises:
            InputError: Shards are missing, broken, empty, or made with another tokenizer.
            ConfigError: The objective needs sentence pairs that the shards do not have.
        """
        self._cache, self._tokenizer = cache, tokenizer
        folders = [open_folder(folder, split) if cache is None else cache.shards(folder) for folder in data.folders]
        self._shards = [shard for folder in folders for shard in folder]
        for folder, shards in zip(data.folders, folders, strict=True):
            _check(folder, shards, objective, tokenizer)
        self.words_per_token = words_per_token(self._shards)  # of each shard's text; None: one does not know
        # The token format of a batch: with word bits if any folder has them.
        self._info = max((shard.info for shard in self._shards), key=lambda info: info.word_bit)
        self.sequence_length = max(shard.info.sequence_length for shard in self._shards)
        shuffle = split == "train"
        key = counter_rng.key(seed, "masks") if shuffle else counter_rng.key(0, "validation masks")
        self._masker = Masker(tokenizer, objective, self.sequence_length, key)
        if shuffle and not data.weights:
            folders = [self._shards]  # as one folder
        starts = itertools.accumulate(map(len, folders), initial=0)
        self._streams = [
            SampleStream(shards, first, order_of(shards, data, seed, number, shuffle), self._masker)
            for number, (shards, first) in enumerate(zip(folders, starts, strict=False))
        ]
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

    def most_frequent_shares(self, count: int) -> tuple[float, float]:
        """Return the shares of the most frequent token and pair class in the first samples, scores of always giving it.

        Special tokens are not counted.
        """
        counts, random = np.zeros(len(self._tokenizer.vocab), np.int64), 0
        for first in range(0, count, BLOCK):
            rows = self._rows(first, min(first + BLOCK, count))
            tokens, _ = self._gather(rows, rows.a_len.astype(np.int64) + rows.b_len)
            if self._info.word_bit:
                tokens &= self._info.word_bit - 1
            counts += np.bincount(tokens, minlength=len(counts))
            random += int(rows.is_random_next.sum())
        counts[self._masker.is_special(np.arange(len(counts)))] = 0
        return float(counts.max() / max(counts.sum(), 1)), max(random, count - random) / count

    def _batches(self, rows: SampleTable, samples: Ints, masked: Ints, cuts: Ints) -> list[Batch]:
        """Return the micro-batches between `cuts` of some rows, computed together."""
        a_len, b_len = rows.a_len.astype(np.int64), rows.b_len.astype(np.int64)
        # Two runs per sequence: [CLS] A [SEP], and B [SEP] unless B is empty.
        runs = np.stack([a_len + 2, b_len + (b_len > 0)], axis=1)
        starts = bounds_of(runs.sum(axis=1))
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
        return _cut(whole, cuts)

    def _gather(self, rows: SampleTable, lengths: Ints) -> tuple[npt.NDArray[Any], Ints]:
        """Return the stored tokens of `rows`, grouped by shard, and each row's start in them."""
        by_shard = np.argsort(rows.shard, kind="stable")
        ordered = lengths[by_shard]
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
                tokens[low:high] = self._info.marked(ids, self._masker.continues[ids])
            low = high
        return tokens, first


def order_of(shards: list[Shard], data: DataConfig, seed: int, number: int, shuffle: bool) -> Order:
    """Return the order of the rows of a source, the first of which has the seed itself."""
    own = int(counter_rng.key(seed, "source", number)) if number else seed
    return Order(np.array([shard.rows for shard in shards], np.int64), own, data.window_rows, shuffle)


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
    if objective.next_sentence and info.pairs != objective.pairs:
        found = "no sentence pairs" if info.pairs == "none" else f"{info.pairs} pairs"
        raise ConfigError(
            f"requires {objective.pairs} pairs, but the shards in {folder} have {found}; rerun prepare with "
            f"{named('pairs')}={objective.pairs}, or set {named('objective.next_sentence')}=false",
            "objective",
            objective.name,
            path=folder,
        )


def _cut(whole: Batch, cuts: Ints) -> list[Batch]:
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


class ShardFiles:
    """All shards of some of a run's data folders, as listed in the folders' manifests."""

    def __init__(self, data: DataConfig, folders: list[str]):
        """Read the manifests; raises InputError if a folder has none."""
        manifests = {Path(d): require_manifest(d, "prepare", data.key_of(d)) for d in folders}
        self.sequence_length = max(CorpusCounts.of(m).sequence_length for m in manifests.values())
        self._listed = {
            folder / name: entry
            for folder, manifest in manifests.items()
            for name, entry in manifest.files.items()
            if name.endswith(".arrow")
        }
        self._folders = list(manifests)

    def held_out_folders(self) -> set[Path]:
        """Return the folders of which `prepare` has held a part out."""
        return {path.parent for path in self._listed if path.name.startswith("validation-")}

    def checksum(self) -> str:
        """Return a checksum over all shards' checksums in the order of the folders."""
        sums = (f"{path.name} {entry['sha256']}\n" for path, entry in self._listed.items())
        return sha256_of("".join(sums))

    def verify(
        self,
        rank: int,
        world: int,
        gather: Callable[[list[str]], list[list[str]]],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Compare all shards with their manifests' checksums, each rank a part of them.

        Every rank must call it, and all raise the same error: `gather` returns every rank's value.
        `beat` is called for each shard.

        Raises:
            InputError: A shard is missing, damaged, changed, or not in the manifest.
        """
        found = [path for folder in self._folders for path in sorted(folder.glob("*.arrow"))]
        wrong = [f"{path} is not in this folder's manifest" for path in found[rank::world] if path not in self._listed]
        for path in list(self._listed)[rank::world]:
            beat()
            if not path.exists():
                wrong.append(f"{path} is missing")
            elif path.stat().st_size != self._listed[path]["bytes"] or (sha256(path) != self._listed[path]["sha256"]):
                wrong.append(f"{path} has changed since prepare")
        problems = [problem for of_rank in gather(wrong) for problem in of_rank]
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise InputError(f"{problems[0]}{more}; rerun prepare or restore the original file")
