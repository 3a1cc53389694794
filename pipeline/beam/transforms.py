"""The Beam graph of `prepare`, and the tasks that its workers run.

Text is exchanged through files, only indices through Beam: the documents of a split are written to
one lz4 Arrow file whose record batch k holds the documents of bucket k, and (bucket, split) pairs
cross the wire. The graph uses only Create, Reshuffle, ParDo and GroupByKey: every Beam runner
supports it. A task writes its own files atomically, and their bytes depend only on its input:
retries and concurrent attempts are harmless.
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

from pipeline.beam import runners, trace
from pipeline.beam.buckets import Bucket, SplitDocuments, load_bucket, merge
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
from pipeline.shards.best_fit import best_fit, cut_documents
from pipeline.shards.full_sentences import full_sentences
from pipeline.shards.sentence_pairs import Documents, Pairs, gather, next_sentence_pairs
from pipeline.tokenization.wordpiece import WordPiece


class Task(beam.DoFn):
    """A step of the plan on a worker.

    A user error is written to a file for the driver and the task ends normally, because engines
    retry failed tasks and print tracebacks. The other tasks see the file and end too.
    """

    def __init__(self, plan: PreparePlan):
        self.plan = plan

    def work(self, element: Any) -> Iterator[Any]:
        """Run the step."""
        raise NotImplementedError

    def process(self, element: Any) -> Iterator[Any]:
        """Run the step, unless a task has found an error."""
        if not self.plan.is_current:
            raise RuntimeError("another run is writing to this folder")
        if not self.cancelled():
            with self.noted():
                yield from self.work(element)

    def cancelled(self) -> bool:
        """Return whether a task has found an error."""
        return self.plan.error_note.exists()

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Write a user error raised in the body to the file that the driver reads."""
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
    """Phase 1: read the documents of a split, tokenize them, and write them by bucket."""

    def setup(self) -> None:
        """Load the vocabulary and open the corpus, once per worker."""
        (self.plan.scratch / "begun").touch()
        with self.noted():
            self.splits = self.plan.read_splits()
            self.intake = DocumentReader(self.plan.config)
            self.wordpiece = vocabulary(self.plan.config.vocab, self.plan.info.tokenizer)

    def work(self, element: int) -> Iterator[tuple[int, int]]:
        """Process the split of index `element`; yield (bucket or group, split) for those in use."""
        plan, account = self.plan, DocumentCounts()
        split, split_documents = self.splits[element], SplitDocuments(plan)
        report = Report(plan.report(plan.split_account(element)))
        with read_position.followed(split, lambda n: report(n, account.documents["read"])):
            for chunk in self.intake.chunks(split, account):
                if self.cancelled():
                    return
                split_documents.add(self.wordpiece, chunk)
        account.totals["tokens"] += split_documents.tokens
        for lost in split_documents.empty:
            self.intake.drop(lost.id, account, "empty", lost.number)
        for each in account.traced:
            each["split"] = element
        used = split_documents.write(element)
        write_text(plan.split_account(element), json.dumps(vars(account)))
        if not plan.exchange.merges:
            yield from ((bucket, element) for bucket in used)
        elif used:
            yield plan.exchange.group(element), element


class Ranges(beam.DoFn):
    """Between the phases, if splits are merged: fan out a group of splits into bucket ranges."""

    def __init__(self, ranges: int):
        self.ranges = ranges

    def process(self, element: tuple[int, Iterable[int]]) -> Iterator[tuple[int, int, list[int]]]:
        """Yield (group, range of buckets, splits) for each range."""
        group, splits = element[0], sorted(element[1])
        yield from ((group, index, splits) for index in range(self.ranges))


class Merge(Task):
    """Between the phases, if splits are merged: merge one bucket range of one group of splits."""

    def work(self, element: tuple[int, int, list[int]]) -> Iterator[tuple[int, int]]:
        """Merge an `element` of `Ranges`; yield (bucket, group) for buckets in use."""
        group, index, splits = element
        yield from ((bucket, group) for bucket in merge(self.plan, group, index, splits))


@functools.lru_cache(maxsize=1)
def loaded(place: str) -> WordPiece:
    """Return a vocabulary, cached per process: loading takes 0.2 s."""
    return WordPiece.load(place)


def vocabulary(place: str, sha256: str) -> WordPiece:
    """Return the vocabulary of a plan.

    Raises:
        InputError: it has changed since the plan was made.
    """
    wordpiece = loaded(place)
    if wordpiece.sha256 != sha256:
        loaded.cache_clear()
        wordpiece = loaded(place)
    if wordpiece.sha256 != sha256:
        raise InputError(
            f"vocab={place}: was changed during the run; rerun the command", key="vocab", path=place
        )
    return wordpiece


class ToOne(beam.DoFn):
    """Assign a single key to all elements, to make one task wait for all of them."""

    def process(self, element: tuple[int, Iterable[int]]) -> Iterator[tuple[int, Any]]:
        """Yield the bucket and its splits under key 0."""
        bucket, splits = element
        yield 0, (bucket, sorted(splits))


class NearDuplicates(Task):
    """Between the phases: find near duplicates among the documents of all splits."""

    def work(self, element: tuple[int, Iterable[Any]]) -> Iterator[tuple[int, Iterable[int]]]:
        """Write the near duplicates, then yield all buckets with their splits from `element`."""
        plan, config = self.plan, self.plan.config.filters
        assert config.near_duplicates is not None
        paths = [plan.signatures(index) for index in range(plan.exchange.splits)]
        paths = [path for path in paths if path.exists()]  # a split may have no documents
        found = minhash.find_duplicates(paths, config.permutations, config.near_duplicates)
        with atomic_path(plan.near_duplicates()) as path:
            np.concatenate(found, axis=1).tofile(path)
        yield from ((bucket, sorted(splits)) for bucket, splits in element[1])


class WriteShard(Task):
    """Phase 2: write the shard of one bucket of documents."""

    def work(self, element: tuple[int, Iterable[int]]) -> Iterator[str]:
        """Write the shard of `element`, a bucket and the splits (or groups) that have documents."""
        bucket, sources = element
        plan, name = self.plan, self.plan.shard_name(bucket)
        split = name.partition("-")[0]
        loaded = load_bucket(plan, bucket, sorted(sources))
        documents, copies, dropped = loaded.documents, loaded.copies, loaded.dropped
        words = loaded.words
        if split != "train":  # a score counts each document once
            copies = np.ones_like(copies)
        packing = Counter[str]()
        tokens, pairs = draw_pairs(documents, copies, plan, name, packing)
        special = np.where(pairs.b_len > 0, 3, 2)
        account: dict[str, Any] = {
            "documents": dropped | {"written": len(documents)},
            "filtered": {filters.NEAR: dropped["filtered"]} if dropped["filtered"] else {},
            "totals": {
                split: len(pairs),
                "random_next": int(pairs.is_random_next.sum()),
                "repeats": int(copies.sum()) - len(copies),
            },
            "packing": packing,
            "lengths": Counter((pairs.a_len + pairs.b_len + special).tolist()),
            "shard": None,
        }
        if split == "validation":
            account["totals"] |= {
                "validation_documents": len(documents),
                "validation_random_next": int(pairs.is_random_next.sum()),
            }
        if not plan.is_current:
            raise RuntimeError("another run is writing to this folder")
        account |= self.traced(loaded, copies, name)
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

    def traced(self, bucket: Bucket, copies: np.ndarray, name: str) -> dict[str, Any]:
        """Return the part of the account that says what became of traced documents."""
        following = trace.Trace.of(self.plan.config)
        if following is None or bucket.origins is None:
            return {}
        documents, plan = bucket.documents, dataclasses.replace(self.plan, separator=-1)

        def rows() -> list[list[int]]:
            """Draw the same pairs from the numbers of the documents in place of their tokens."""
            sizes = np.diff(documents.sentences[documents.starts])
            numbers = np.repeat(np.arange(len(documents)), sizes)
            tokens, pairs = draw_pairs(
                dataclasses.replace(documents, tokens=numbers), copies, plan, name
            )
            return trace.rows_of_documents(*gather(tokens, pairs), len(documents))

        return bucket.origins.account(following, f"{name}.arrow", rows)


def words_of(documents: Documents, words: np.ndarray, separator: int, values: np.ndarray) -> float:
    """Return the number of words of the text that the tokens `values` of a shard are.

    A token counts as many words as in its documents on average: exact if all appear equally often.
    """
    tokens = np.count_nonzero(values != separator)
    return float(words.sum() * (tokens / max(len(documents.tokens), 1)))


def draw_pairs(
    documents: Documents,
    copies: np.ndarray,
    plan: PreparePlan,
    name: str,
    packing: Counter[str] | None = None,
) -> tuple[np.ndarray, Pairs]:
    """Draw pairs `duplicates` times per copy; return tokens and, in keyed order, slices of them.

    With pairs=none, `packing` counts how full sequences are and how many documents were cut.
    """
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
            if config.packing == "best_fit":
                stream, pairs = best_fit(
                    documents, most, key, separator=plan.separator, chosen=chosen
                )
            else:
                stream, pairs = full_sentences(
                    documents, most, key, separator=separator, chosen=chosen
                )
            if packing is not None:
                cut = cut_documents(
                    documents, most, key, separator, chosen, config.packing, pairs.a_start
                )
                packing.update(
                    documents=len(chosen), cut=cut,
                    tokens=int(pairs.a_len.sum()), places=most * len(pairs),
                )  # fmt: skip
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
    """Build the graph: split indices -> (bucket, split or group of splits) -> shard names."""
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
    """Raise the error that a task has written, if any.

    Raises:
        InputError: a worker found an error in the input.
        Restart: an object store did not respond.
        OSError: the disk is full, over quota or read-only.
    """
    if plan.error_note.exists():
        note = json.loads(plan.error_note.read_text(encoding="utf-8"))
        if "disk" in note:
            raise OSError(note["disk"])
        if note.pop("restart", False):
            raise Restart(note["message"])
        raise InputError(note.pop("message"), **note)


def run(plan: PreparePlan) -> None:
    """Run the graph to completion.

    Raises:
        UserError: a worker found an error in the input.
        RuntimeError: a task failed.
    """
    plan.write_splits()
    # Exceptions of tasks are raised by `run`; Beam would also log their tracebacks.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    try:
        with runners.start(plan.config.runner, len(plan.splits)) as (engine, flags):
            if plan.config.runner.name not in runners.PORTABLE:
                with beam.Pipeline(runner=engine, options=flags) as pipeline:
                    build(pipeline, plan)
            else:
                from pipeline.beam import services  # imports an HTTP client

                services.run(plan, engine, flags, lambda pipeline: build(pipeline, plan))
    finally:
        raise_noted(plan)
    for bucket_name in plan.shard_names():
        if not plan.shard_account(bucket_name).exists():  # no document fell into it
            empty: dict[str, Any] = {"documents": {}, "lengths": {}, "shard": None}
            write_text(plan.shard_account(bucket_name), json.dumps(empty))
