"""The Beam graph of `prepare`, and the tasks that its workers run.

Files carry text, Beam carries paths: a split's documents go into one lz4 Arrow file whose record
batch k holds the documents of bucket k, and only (bucket, path) pairs cross the wire. The graph
uses Create, Reshuffle, ParDo and GroupByKey alone, so that every Beam engine runs it. A task writes
files of its own and renames them, and its bytes depend on its input alone: a retry is harmless, and
so are two attempts at the same time.
"""

import contextlib
import dataclasses
import functools
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.beam import runners, services
from pipeline.beam.buckets import SplitDocuments, load_bucket, merge
from pipeline.beam.documents import DocumentCounts, DocumentReader
from pipeline.beam.fast_import import beam
from pipeline.beam.plan import PreparePlan
from pipeline.beam.progress import Report
from pipeline.common import counter_rng
from pipeline.common.atomic import atomic_path, write_text
from pipeline.common.errors import InputError, Restart, UserError, disk_failure
from pipeline.common.manifest import sha256
from pipeline.filtering import filters, minhash
from pipeline.readers.io import read_position
from pipeline.shards import write_shard
from pipeline.shards.full_sentences import full_sentences
from pipeline.shards.sentence_pairs import Documents, Pairs, gather, next_sentence_pairs
from pipeline.tokenization.wordpiece import WordPiece


class Task(beam.DoFn):
    """A step of the plan on a worker.

    A user's error is left in a file for the driver, and the task ends as if it were done: engines
    try a task that fails again, and print traces. The other tasks see the file and end too.
    """

    def __init__(self, plan: PreparePlan):
        self.plan = plan

    def work(self, element: Any) -> Iterator[Any]:
        """Do the step."""
        raise NotImplementedError

    def process(self, element: Any) -> Iterator[Any]:
        """Do the step, unless an error was found."""
        if not self.plan.is_current:
            raise RuntimeError("another run makes this folder now")
        if not self.cancelled():
            with self.noted():
                yield from self.work(element)

    def cancelled(self) -> bool:
        """Return whether a task has found an error."""
        return self.plan.error_note.exists()

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Leave a user's error where the driver finds it."""
        try:
            yield
        except (UserError, Restart) as error:
            about = {name: getattr(error, name, None) for name in ("key", "path", "line")}
            kind = {"restart": isinstance(error, Restart)}
            note = {"message": str(error), **about, **kind}
            write_text(self.plan.error_note, json.dumps(note))
        except Exception as error:
            if disk_failure(error) is None:
                raise
            write_text(self.plan.error_note, json.dumps({"disk": str(error)}))


class Tokenize(Task):
    """Phase 1: the documents of a split, cleaned, cut into sentences, tokenized, by bucket."""

    def setup(self) -> None:
        """Once a worker."""
        (self.plan.scratch / "begun").touch()
        with self.noted():
            self.splits = self.plan.read_splits()
            self.intake = DocumentReader(self.plan.config)
            self.wordpiece = vocabulary(self.plan.config.vocab, self.plan.info.tokenizer)

    def work(self, element: int) -> Iterator[tuple[int, int]]:
        """`element` is a split's index; yields (bucket or group, split) for all that are in use."""
        plan, account = self.plan, DocumentCounts()
        split, split_documents = self.splits[element], SplitDocuments(plan)
        report = Report(plan.report(plan.split_account(element)))
        with read_position.followed(split, lambda n: report(n, account.documents["read"])):
            for chunk in self.intake.chunks(split, account):
                if self.cancelled():
                    return
                split_documents.add(self.wordpiece, chunk)
        account.totals["tokens"] += split_documents.tokens
        account.documents["empty"] += split_documents.empty
        used = split_documents.write(element)
        write_text(plan.split_account(element), json.dumps(vars(account)))
        if not plan.exchange.merges:
            yield from ((bucket, element) for bucket in used)
        elif used:
            yield plan.exchange.group(element), element


class Ranges(beam.DoFn):
    """Between the phases, where splits are merged: what there is to do for a group of splits."""

    def __init__(self, ranges: int):
        self.ranges = ranges

    def process(self, element: tuple[int, Iterable[int]]) -> Iterator[tuple[int, int, list[int]]]:
        """A group and its splits; yields them with each range of buckets."""
        group, splits = element[0], sorted(element[1])
        yield from ((group, index, splits) for index in range(self.ranges))


class Merge(Task):
    """Between the phases, where splits are merged: one range of buckets of one group of splits."""

    def work(self, element: tuple[int, int, list[int]]) -> Iterator[tuple[int, int]]:
        """`element` is as `Ranges` has it; yields (bucket, group) for buckets in use."""
        group, index, splits = element
        yield from ((bucket, group) for bucket in merge(self.plan, group, index, splits))


@functools.lru_cache(maxsize=1)
def loaded(place: str) -> WordPiece:
    """A vocabulary, once a process: it takes a fifth of a second."""
    return WordPiece.load(place)


def vocabulary(place: str, sha256: str) -> WordPiece:
    """The vocabulary of a plan.

    Raises:
        InputError: it is not what it was when the plan was made.
    """
    wordpiece = loaded(place)
    if wordpiece.sha256 != sha256:
        loaded.cache_clear()
        wordpiece = loaded(place)
    if wordpiece.sha256 != sha256:
        raise InputError(f"vocab={place}: changed during the run; start it again", key="vocab")
    return wordpiece


class ToOne(beam.DoFn):
    """Gives everything one key, so that one task waits for all of it."""

    def process(self, element: tuple[int, Iterable[int]]) -> Iterator[tuple[int, Any]]:
        """A bucket and its splits."""
        bucket, splits = element
        yield 0, (bucket, sorted(splits))


class NearDuplicates(Task):
    """Between the phases: which documents of all splits are too much like others."""

    def work(self, element: tuple[int, Iterable[Any]]) -> Iterator[tuple[int, Iterable[int]]]:
        """`element` has all buckets with their splits; they go on once the verdict is written."""
        plan, config = self.plan, self.plan.config.filters
        assert config.near_duplicates is not None
        paths = [plan.signatures(index) for index in range(plan.exchange.splits)]
        there = [path for path in paths if path.exists()]  # a split may have no documents
        found = minhash.find_duplicates(there, config.permutations, config.near_duplicates)
        with atomic_path(plan.near_duplicates()) as path:
            found.tofile(path)
        yield from ((bucket, sorted(splits)) for bucket, splits in element[1])


class WriteShard(Task):
    """Phase 2: one bucket of documents -> one shard."""

    def work(self, element: tuple[int, Iterable[int]]) -> Iterator[str]:
        """`element` is a bucket and the splits, or groups of them, that have documents of it."""
        bucket, sources = element
        plan, name = self.plan, self.plan.shard_name(bucket)
        split = name.partition("-")[0]
        documents, copies, words, taken = load_bucket(plan, bucket, sorted(sources))
        if split != "train":  # a score counts each document once
            copies = np.ones_like(copies)
        tokens, pairs = draw_pairs(documents, copies, plan, name)
        special = np.where(pairs.b_len > 0, 3, 2)
        account: dict[str, Any] = {
            "documents": taken | {"written": len(documents)},
            "filtered": {filters.NEAR: taken["filtered"]} if taken["filtered"] else {},
            "totals": {
                split: len(pairs),
                "random_next": int(pairs.is_random_next.sum()),
                "repeats": int(copies.sum()) - len(copies),
            },
            "lengths": Counter((pairs.a_len + pairs.b_len + special).tolist()),
            "shard": None,
        }
        if split == "validation":
            account["totals"] |= {
                "validation_documents": len(documents),
                "validation_random_next": int(pairs.is_random_next.sum()),
            }
        if not plan.is_current:
            raise RuntimeError("another run makes this folder now")
        if len(pairs):
            path = Path(plan.out) / f"{name}.arrow"
            values, offsets = gather(tokens, pairs)
            info = dataclasses.replace(plan.info, split=split)
            write_shard(path, info, values, offsets, pairs.a_len, pairs.is_random_next)
            sums = {"sha256": sha256(path), "rows": len(pairs), "tokens": len(values)}
            sums["words"] = words_of(documents, words, plan.separator, values)
            sums["text_words"] = int(words.sum())
            account["shard"] = {"name": path.name, **sums}
        write_text(plan.shard_account(name), json.dumps(account))
        yield name


def words_of(documents: Documents, words: np.ndarray, separator: int, values: np.ndarray) -> float:
    """Return how many words of the text the tokens `values` of a shard are.

    They are as many for a token as in its documents: exact where all of these are there as often.
    """
    tokens = np.count_nonzero(values != separator)
    return float(words.sum() * (tokens / max(len(documents.tokens), 1)))


def draw_pairs(
    documents: Documents, copies: np.ndarray, plan: PreparePlan, name: str
) -> tuple[np.ndarray, Pairs]:
    """Tokens, and pairs as slices of them: `duplicates` times for each copy, in a keyed order."""
    config = plan.config
    rounds = config.duplicates * copies.astype(np.int64)
    drawn, tokens, laid = [], [], 0
    report = Report(plan.report(plan.shard_account(name)))
    count = int(rounds.max(initial=config.duplicates))
    for duplicate in range(count):
        report(duplicate / (count + 1))
        key = counter_rng.key(config.seed, "pairs", duplicate)
        chosen = np.flatnonzero(rounds > duplicate)
        if config.pairs == "none":
            separator = plan.separator if config.cross_documents else None
            most = config.sequence_length - 2
            stream, pairs = full_sentences(documents, most, key, separator=separator, chosen=chosen)
            drawn.append(dataclasses.replace(pairs, a_start=pairs.a_start + laid))
            tokens.append(stream)
            laid += len(stream)
        else:
            most, short = config.sequence_length - 3, config.short_sequence_probability
            by_order = config.pairs == "sop"
            drawn.append(
                next_sentence_pairs(documents, most, short, key, chosen, by_order=by_order)
            )
    pairs = Pairs.concatenate(drawn)
    order = counter_rng.permutation(counter_rng.key(config.seed, "shard", name), len(pairs))
    return np.concatenate(tokens) if tokens else documents.tokens, pairs[order]


def build(pipeline: beam.Pipeline, plan: PreparePlan) -> beam.PCollection:
    """The graph: split indices -> (bucket, split or group of splits) -> shard names."""
    found = (
        pipeline
        | "Splits" >> beam.Create(range(len(plan.splits)))
        | "Spread splits" >> beam.Reshuffle()
        | "Tokenize" >> beam.ParDo(Tokenize(plan))
    )
    if plan.exchange.merges:
        found = (
            found
            | "By group" >> beam.GroupByKey()
            | "Ranges" >> beam.ParDo(Ranges(plan.exchange.ranges))
            | "Spread ranges" >> beam.Reshuffle()
            | "Merge" >> beam.ParDo(Merge(plan))
        )
    buckets = found | "By bucket" >> beam.GroupByKey()
    if plan.config.filters.near_duplicates is not None:
        buckets = (
            buckets
            | "To one" >> beam.ParDo(ToOne())
            | "Together" >> beam.GroupByKey()
            | "Near duplicates" >> beam.ParDo(NearDuplicates(plan))
        )
    return (
        buckets
        | "Spread buckets" >> beam.Reshuffle()
        | "Write shards" >> beam.ParDo(WriteShard(plan))
    )


def raise_noted(plan: PreparePlan) -> None:
    """Raise the error that a task has left, if one did.

    Raises:
        InputError: what a worker found wrong with the input.
        Restart: an object store did not answer.
        OSError: the disk is full, limited, or not to be written.
    """
    if plan.error_note.exists():
        note = json.loads(plan.error_note.read_text(encoding="utf-8"))
        if "disk" in note:
            raise OSError(note["disk"])
        if note.pop("restart", False):
            raise Restart(note["message"])
        raise InputError(note.pop("message"), **note)


def run(plan: PreparePlan) -> None:
    """Run the graph to its end.

    Raises:
        UserError: what a worker found wrong with the input.
        RuntimeError: a bucket was lost on the way.
    """
    plan.write_splits()
    # What a task raises comes out of `run`; a trace of it in the log as well would say it twice.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    try:
        with runners.start(plan.config.runner, len(plan.splits)) as (engine, flags):
            if plan.config.runner.name not in services.PORTABLE:
                with beam.Pipeline(runner=engine, options=flags) as pipeline:
                    build(pipeline, plan)
            else:
                services.run(plan, engine, flags, lambda pipeline: build(pipeline, plan))
    finally:
        raise_noted(plan)
    for bucket_name in plan.shard_names():
        if not plan.shard_account(bucket_name).exists():  # no document fell into it
            empty: dict[str, Any] = {"documents": {}, "lengths": {}, "shard": None}
            write_text(plan.shard_account(bucket_name), json.dumps(empty))
