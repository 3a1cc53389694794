"""The second phase of `prepare`: from the documents of some buckets to their shards.

All buckets of a task are sorted and drawn from together: the cost of a shard is that of its bytes.
"""

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.common import counter_rng
from pipeline.common.ranges import bounds_of
from pipeline.config import PrepareConfig, check
from pipeline.filtering import filters
from pipeline.preparation import timings
from pipeline.preparation.dedup import GONE, as_numbers
from pipeline.preparation.documents import DocumentCounts
from pipeline.preparation.dropped import from_bytes
from pipeline.preparation.plan import PreparePlan
from pipeline.preparation.shard_sizes import MOST_TOKENS
from pipeline.preparation.shuffle import take, token_count, token_counts
from pipeline.records.metrics import ShardCounts
from pipeline.shards import write_shard
from pipeline.shards.full_sentences import best_fit, full_sentences
from pipeline.shards.sentence_pairs import Documents, Pairs, gather, next_sentence_pairs
from pipeline.storage.checksums import sha256

TokenPairs = tuple[np.ndarray, Pairs]  # tokens, and pairs of them in keyed order
Drawn = list[TokenPairs]  # per bucket


@dataclasses.dataclass(frozen=True)
class Buckets:
    """The documents of consecutive buckets that are kept: by bucket, in the order of hashes."""

    names: list[str]  # of the shards, (B,)
    documents: Documents  # (D,)
    copies: np.ndarray  # (D,) 1 where held out
    words: np.ndarray  # (D,) separated by white space
    read: np.ndarray  # (B,) documents of each bucket before any was left out


def load(plan: PreparePlan, write: int, table: pa.Table, found: np.ndarray, account: DocumentCounts) -> Buckets:
    """Return the buckets of a writing task from its documents `table`, in the corpus's order; count those left out.

    `found` `(N,)` has the hashes of near duplicates, 16 bytes each.
    """
    first, end = plan.layout.first_bucket(write), plan.layout.first_bucket(write + 1)
    check_tokens(plan.config, f"writing task {write}", token_count(table))
    table = table.combine_chunks()
    digests, copies = table["hash"].to_pylist(), table["copies"].to_numpy()
    raw = as_numbers(digests)
    bucket = table["bucket"].to_numpy() - first
    # Keep the equal document with the most copies (weights differ between corpora), and none where one is gone:
    # it comes first, and was counted when it was read.
    order = np.lexsort((-copies.astype(np.int64), raw[:, 1], raw[:, 0], bucket))
    new, gone = np.ones(len(order), np.bool_), copies[order] == GONE
    new[1:] = (raw[order][1:] != raw[order][:-1]).any(axis=1)
    equal, order = order[~new & ~gone], order[new & ~gone]
    near = np.isin(np.array(digests, "V16")[order], found)
    tokens = token_counts(table["ids"].combine_chunks())
    for rows, outcome, reason in ((equal, "duplicate", ""), (order[near], "filtered", filters.NEAR)):
        left = map(from_bytes, table["id"].take(pa.array(rows)).to_pylist())
        account.left_out.merge((name, outcome, reason) for name in left)
        account.documents[outcome] += len(rows)
        account.lost[outcome] += int(tokens[rows].sum())
    if near.any():
        account.filtered[filters.NEAR] += int(near.sum())
    read = np.bincount(bucket, minlength=end - first)
    order = order[~near]
    ids = take(table["ids"].combine_chunks(), order)
    bucket, words = bucket[order], table["words"].to_numpy()[order]
    copies = np.where(first + bucket < plan.buckets["train"], copies[order], 1)  # a score counts each document once
    del table
    pa.default_memory_pool().release_unused()
    inner = ids.flatten()
    documents = Documents(
        tokens=inner.flatten().to_numpy(zero_copy_only=True),
        sentences=bounds_of(inner.value_lengths()),
        starts=bounds_of(ids.value_lengths()),
        keys=raw[order, 0] ^ raw[order, 1],
        buckets=np.searchsorted(bucket, np.arange(end - first + 1)),
    )
    names = [plan.shard_name(number) for number in range(first, end)]
    return Buckets(names, documents, copies, words, read)


def write(plan: PreparePlan, buckets: Buckets, account: DocumentCounts, report: Callable[[float], None]) -> None:
    """Write the shards of some buckets, and add their counts."""
    with timings.on("pairs"):
        drawn = draw_pairs(plan, buckets, account, report)
    for k in range(len(buckets.names)):
        if buckets.read[k]:
            with timings.on("write"):
                write_bucket(plan, buckets, k, drawn[k], account)


def write_bucket(plan: PreparePlan, buckets: Buckets, k: int, drawn: TokenPairs, account: DocumentCounts) -> None:
    """Write the shard of bucket `k`, unless it is empty, and add its counts."""
    mine, name = slice(*buckets.documents.buckets[k : k + 2]), buckets.names[k]
    written, split = int(mine.stop - mine.start), name.partition("-")[0]
    tokens, pairs = drawn
    special = np.where(pairs.b_len > 0, 3, 2)
    account.documents["written"] += written
    random_next = int(pairs.is_random_next.sum())
    words, documents = buckets.words[mine], buckets.documents
    sentences = documents.starts[[mine.start, mine.stop]]
    kept = int(np.diff(documents.sentences[sentences])[0])  # tokens of documents, each once
    totals = {
        split: len(pairs),
        "random_next": random_next,
        "repeats": int(buckets.copies[mine].sum()) - written,
        "sentences": int(np.diff(sentences)[0]),
        "tokens": kept,
    }
    if split == "validation":
        totals |= {"validation_documents": written, "validation_random_next": random_next}
    account.totals.update(totals)
    account.lengths.update((pairs.a_len + pairs.b_len + special).tolist())
    if not len(pairs):
        return
    path = Path(plan.out) / f"{name}.arrow"
    check_tokens(plan.config, name, int((pairs.a_len + pairs.b_len).sum(dtype=np.int64)))
    values, offsets = gather(tokens, pairs)
    used = int(np.count_nonzero(values != plan.separator))
    if plan.config.pairs == "none":  # which loses none: what is missing has no name, and the account does not balance
        account.totals["tokens_used"] += kept - (own_tokens(plan, buckets, mine) - used)
    info = dataclasses.replace(plan.info, split=split)
    write_shard(path, info, values, offsets, pairs.a_len, pairs.is_random_next)
    account.shards[path.name] = ShardCounts(
        name=path.name,
        sha256=sha256(path),
        rows=len(pairs),
        tokens=len(values),
        # A token counts as many words as in its documents on average: exact if all appear equally often.
        words=float(words.sum() * (used / max(kept, 1))),
        text_words=int(words.sum()),
    )


def check_tokens(config: PrepareConfig, what: str, tokens: int) -> None:
    """Raise where a task has more tokens than a shard may have, which the plan did not expect.

    Raises:
        ConfigError: it has.
    """
    why = f"{what} has {tokens:,} tokens, more than {MOST_TOKENS:,}; reduce shard_bytes"
    check(tokens <= MOST_TOKENS, why, "shard_bytes", config.shard_bytes)


def own_tokens(plan: PreparePlan, buckets: Buckets, mine: slice) -> int:
    """Return the tokens, but for separators, of some documents in all rounds."""
    documents = buckets.documents
    bounds = documents.sentences[documents.starts[mine.start : mine.stop + 1]]
    own = documents.tokens[bounds[0] : bounds[-1]] != plan.separator
    counts = np.add.reduceat(own, bounds[:-1] - bounds[0], dtype=np.int64)
    return int(counts @ buckets.copies[mine].astype(np.int64)) * plan.config.duplicates


def draw_pairs(plan: PreparePlan, buckets: Buckets, account: DocumentCounts, report: Callable[[float], None]) -> Drawn:
    """Draw pairs of each bucket `duplicates` times per copy; count the tokens in them, and those that are not."""
    config, most = plan.config, plan.config.sequence_length - 3
    documents = buckets.documents if config.pairs == "none" else buckets.documents.fitted(most)
    rounds = config.duplicates * buckets.copies.astype(np.int64)
    count = int(rounds.max(initial=config.duplicates))
    drawn = []
    for duplicate in range(count):
        report(duplicate / (count + 1))
        key = counter_rng.key(config.seed, "pairs", duplicate)
        chosen = np.flatnonzero(rounds > duplicate)
        if config.pairs == "none":
            drawn.append(sequences(documents, chosen, plan, key, account))
        else:
            short, by_order = config.short_sequence_probability, config.pairs == "sop"
            pairs = next_sentence_pairs(documents, most, short, key, chosen, by_order=by_order)
            drawn.append([(documents.tokens, part) for part in divided(documents, pairs)])
    shards = []
    sizes = np.diff(documents.sentences[documents.starts[documents.buckets]]).tolist()
    for name, size, parts in zip(buckets.names, sizes, zip(*drawn, strict=True), strict=True):
        tokens, pairs = joined(parts, shared=config.pairs != "none")
        if config.pairs != "none":
            reached, pairs = pairs.covered(), pairs[pairs.b_len > 0]
            used = pairs.covered()
            account.totals["tokens_used"] += used
            account.lost.update({"truncated": size - reached, "no pair": reached - used})
        key = counter_rng.key(config.seed, "shard", name)
        shards.append((tokens, pairs[counter_rng.permutation(key, len(pairs))]))
    return shards


def sequences(
    documents: Documents, chosen: np.ndarray, plan: PreparePlan, key: np.uint64, account: DocumentCounts
) -> Drawn:
    """Return the packed sequences of each bucket, with tokens of their own; count them and how full they are."""
    config, most = plan.config, plan.config.sequence_length - 2
    separator = plan.separator if config.cross_documents else None
    bounds = documents.buckets.tolist()
    places = np.searchsorted(chosen, bounds)
    packed = []
    for k, (low, high) in enumerate(itertools.pairwise(bounds)):
        part = dataclasses.replace(documents, starts=documents.starts[low : high + 1], keys=documents.keys[low:high])
        mine = chosen[places[k] : places[k + 1]] - low
        if config.packing == "best_fit":
            stream, pairs, cut = best_fit(part, most, key, separator=plan.separator, chosen=mine)
        else:
            stream, pairs, cut = full_sentences(part, most, key, separator=separator, chosen=mine)
        account.packing.update(documents=len(mine), cut=cut, tokens=int(pairs.a_len.sum()), places=most * len(pairs))
        packed.append((stream, pairs))
    return packed


def divided(documents: Documents, pairs: Pairs) -> list[Pairs]:
    """Return the pairs of each bucket, in their order."""
    edges = documents.sentences[documents.starts[documents.buckets]]
    owner = np.searchsorted(edges, pairs.a_start, side="right") - 1
    order = np.argsort(owner, kind="stable")
    places = np.searchsorted(owner[order], np.arange(len(edges)))
    ordered = pairs[order]
    return [ordered[low:high] for low, high in itertools.pairwise(places)]


def joined(parts: tuple[TokenPairs, ...], shared: bool) -> TokenPairs:
    """Join the rounds of a bucket, whose tokens are `shared` or those of each round."""
    if len(parts) == 1:
        return parts[0]
    if shared:
        return parts[0][0], Pairs.concatenate([pairs for _, pairs in parts])
    laid, pairs = 0, []
    for tokens, found in parts:
        pairs.append(dataclasses.replace(found, a_start=found.a_start + laid))
        laid += len(tokens)
    return np.concatenate([tokens for tokens, _ in parts]), Pairs.concatenate(pairs)
