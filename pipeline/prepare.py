"""`python -m pipeline.prepare +corpus=NAME`: a corpus -> Arrow shards of sentence pairs.

A Beam job of two phases that sends only paths over the wire (see `pipeline.beam.transforms`):

1. read a split of the corpus -> documents -> sentences -> token ids, sorted into buckets by hash;
2. read one bucket from every split, drop duplicates, draw sentence pairs, write one shard.
"""

import json
import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline import readers
from pipeline.beam import transforms
from pipeline.beam.documents import DocumentCounts
from pipeline.beam.exchange import Exchange
from pipeline.beam.plan import PreparePlan
from pipeline.beam.progress import watch
from pipeline.cli import entry_point
from pipeline.common.errors import InputError
from pipeline.common.formatting import pluralize
from pipeline.common.manifest import Result
from pipeline.config import PrepareConfig, check
from pipeline.filtering import filters, minhash
from pipeline.shards import ShardInfo
from pipeline.stages import stage
from pipeline.tokenization.word_segmentation import segmenter
from pipeline.tokenization.wordpiece import WordPiece

# Bytes of text that a byte of such a file becomes, about: enough to choose the number of shards.
EXPANSION = {".bz2": 3.0, ".gz": 3.0, ".zst": 3.0, ".xz": 4.0, ".xml": 0.7}


def buckets(splits: list[readers.FileRange], shard_bytes: int, share: float) -> dict[str, int]:
    """How many shards each split of the data gets: a function of the input's size alone."""
    text = text_bytes(splits)
    train = max(1, math.ceil(text * (1 - share) / shard_bytes))
    return {"train": train, "validation": math.ceil(train * share)}


def text_bytes(splits: list[readers.FileRange]) -> float:
    """Bytes of text in the input, about."""
    return sum(
        (split.end - split.start) * EXPANSION.get(Path(split.path).suffix, 1.0) for split in splits
    )


def plan(config: PrepareConfig, out: Path) -> PreparePlan:
    """Everything that the workers need, decided before any work starts.

    Raises:
        ConfigError, InputError: the corpus, the vocabulary or the two together cannot work.
    """
    check_filters(config)
    reader = readers.open_corpus(config.corpus, config.source)
    splits = reader.splits(config.split_bytes)
    transforms.loaded.cache_clear()
    wordpiece = transforms.loaded(config.vocab)
    check_words(config, wordpiece)
    info = ShardInfo(
        split="train",
        pairs=config.pairs,
        tokenizer=wordpiece.sha256,
        vocab_size=wordpiece.size,
        sequence_length=config.sequence_length,
        seed=config.seed,
        words=config.words,
    )
    shards = buckets(splits, config.shard_bytes, config.validation_share)
    return PreparePlan(
        config=config,
        out=str(out),
        info=info,
        splits=splits,
        buckets=shards,
        separator=wordpiece.sep,
        exchange=Exchange.choose(len(splits), sum(shards.values()), text_bytes(splits)),
    )


def check_filters(config: PrepareConfig) -> None:
    """Raise before any work starts if a filter cannot work.

    Raises:
        ConfigError, InputError: a pattern, an evaluation file or a library.
    """
    filters.build(config.filters)
    if config.filters.near_duplicates is not None:
        minhash.MinHasher(config.filters)


def check_words(config: PrepareConfig, wordpiece: WordPiece) -> None:
    """Raise before any work starts if words cannot be marked.

    Raises:
        ConfigError: a library is not there, or the vocabulary leaves nothing to mark.
    """
    if config.words is not None:
        segmenter(config.words)
        check(
            wordpiece.cuts_chinese,
            f"words={config.words}: in vocab={config.vocab} a Chinese character is no token of its "
            "own; make a vocabulary with split_chinese=true, or leave words away",
        )


def collect(plan: PreparePlan) -> dict[str, Any]:
    """The account of all splits and shards, from the files that the tasks left."""
    account, lengths, shards = DocumentCounts(), Counter[int](), {}
    for index in range(len(plan.splits)):
        account.take(json.loads(plan.split_account(index).read_text()))
    for name in plan.shard_names():
        part = json.loads(plan.shard_account(name).read_text())
        lengths.update({int(length): count for length, count in part.pop("lengths").items()})
        if shard := part.pop("shard"):
            shards[shard["name"]] = shard
        account.take(part)
    account.balance()
    return {
        **{name: dict(counts) for name, counts in vars(account).items()},
        "documents": {"read": 0, **account.documents},
        "lengths": {str(length): lengths[length] for length in sorted(lengths)},
        "shards": shards,
        "tokenizer": plan.info.tokenizer,
        "vocab_size": plan.info.vocab_size,
        "sequence_length": plan.info.sequence_length,
    }


def make(config: PrepareConfig, out: Path) -> Result:
    """Write the shards of a corpus into `out`.

    Raises:
        ConfigError: what `plan` or the engine says.
        InputError: the corpus cannot be read, or gives no training or no validation instance.
    """
    work = plan(config, out)
    work.scratch.mkdir(parents=True)
    with watch(work):
        transforms.run(work)
    figures = collect(work)
    shutil.rmtree(work.scratch)
    documents, totals = figures["documents"], figures["totals"]
    if not totals.get("train"):
        raise InputError(
            f"corpus {config.corpus.name}: {pluralize(documents['read'], 'document')} read, no "
            f"training instance made ({documents.get('empty', 0)} empty, "
            f"{documents.get('short', 0)} short, "
            f"{documents.get('duplicate', 0)} duplicates, {documents.get('filtered', 0)} filtered)"
        )
    check_held_out(config, figures)
    instances = totals["train"] + totals.get("validation", 0)
    shards = figures["shards"]
    return Result(
        summary=f"{pluralize(documents['read'], 'document')}, "
        f"{pluralize(totals['tokens'], 'token')}, "
        f"{pluralize(instances, 'instance')} in {pluralize(len(shards), 'shard')}",
        figures=figures,
        sums={name: shard["sha256"] for name, shard in shards.items()},
    )


def check_held_out(config: PrepareConfig, figures: dict[str, Any]) -> None:
    """Raise where documents were to be held out, and so few were written that none was.

    Raises:
        InputError: training would have nothing to score on.
    """
    if config.validation_share == 0 or figures["totals"].get("validation"):
        return
    written = figures["documents"].get("written", 0)
    enough = min(0.5, max(2 * config.validation_share, 3 / written))  # three, more or less
    raise InputError(
        f"corpus {config.corpus.name}: validation_share={config.validation_share} held out none of "
        f"{written} documents, and training needs some to score: set validation_share="
        f"{enough:.2f}, or 0 for shards that are not trained on alone"
    )


def main() -> None:
    """The command."""
    entry_point.run("prepare", PrepareConfig, lambda config: stage.run("prepare", config, make))


if __name__ == "__main__":
    main()
