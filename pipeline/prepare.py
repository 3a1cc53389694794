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
from pipeline.beam.documents import OUTCOMES, DocumentCounts
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
from pipeline.shards.validation_share import LowestHashes, advice, sensible_count
from pipeline.stages import stage
from pipeline.tokenization.word_segmentation import segmenter
from pipeline.tokenization.wordpiece import WordPiece

# Bytes of text that a byte of such a file becomes, about: enough to choose the number of shards.
EXPANSION = {".bz2": 3.0, ".gz": 3.0, ".zst": 3.0, ".xz": 4.0, ".xml": 0.7}


MOST_SHARDS = 20_000  # 1.2 TB of text by default: each costs a file, and a part of each split's

# What helps where one document cannot be divided between training and its scores.
FEWER = (
    "add documents or cut them into smaller ones, or set validation_share=0 for shards that are "
    "not trained on alone"
)


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
    shards = buckets(splits, config.shard_bytes, config.validation_share)
    check(
        sum(shards.values()) <= MOST_SHARDS,
        f"shard_bytes={config.shard_bytes}: makes {sum(shards.values()):,} shards, more than "
        f"{MOST_SHARDS:,}; raise it",
    )
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
        **{name: dict(counts) for name, counts in vars(account).items() if name != "lowest"},
        "lowest": account.lowest,
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
    lowest = figures.pop("lowest")
    check_train(config, figures)
    check_word_limit(config, figures)
    check_held_out(config, figures, lowest)
    figures["warnings"] = warnings(config, figures, lowest)
    totals, shards = figures["totals"], figures["shards"]
    instances = totals["train"] + totals.get("validation", 0)
    found = documents_line(config, figures)
    made = (
        f"{found}{';' if ':' in found else ','} {pluralize(totals['tokens'], 'token')}, "
        f"{pluralize(instances, 'instance')} in {pluralize(len(shards), 'shard')}"
    )
    return Result(
        summary="; ".join([made, *figures["warnings"]]),
        figures=figures,
        sums={name: shard["sha256"] for name, shard in shards.items()},
    )


def documents_line(config: PrepareConfig, figures: dict[str, Any]) -> str:
    """Return how many documents were used, of how many, and what became of the others."""
    documents = figures["documents"]
    lost = Counter(figures["skipped"])
    lost.update({fate: documents.get(fate, 0) for fate in OUTCOMES if fate != "written"})
    unit = getattr(readers.reader_class(config.corpus.reader), "UNIT", "document")
    used, found = documents.get("written", 0), documents["read"] + sum(figures["skipped"].values())
    if used == found:
        return pluralize(used, unit)
    return f"{used:,} of {pluralize(found, unit)}: {readers.passed_over(lost)}"


def check_train(config: PrepareConfig, figures: dict[str, Any]) -> None:
    """Raise where nothing is left to train on.

    Raises:
        InputError: no document was of use, or all of them are held out.
    """
    totals, share = figures["totals"], config.validation_share
    if totals.get("train"):
        return
    start = f"corpus {config.corpus.name}: no training instance made"
    if held := totals.get("validation_documents"):
        raise InputError(
            f"{start}, as {'the only document is' if held == 1 else f'all {held} documents are'} "
            f"held out by validation_share={share}; {FEWER}",
            key="validation_share",
        )
    raise InputError(f"{start}: {documents_line(config, figures)}", key="corpus.path")


def check_word_limit(config: PrepareConfig, figures: dict[str, Any]) -> None:
    """Raise where the corpus has more words than `maximum_words`.

    Raises:
        InputError: it has; what is held out counts too, equal documents once.
    """
    most = config.maximum_words
    words = sum(shard["text_words"] for shard in figures["shards"].values())
    if most is not None and words > most:
        raise InputError(
            f"maximum_words={most}: corpus {config.corpus.name} has {words:,} words; take fewer "
            "documents, or raise the limit",
            key="maximum_words",
        )


def check_held_out(config: PrepareConfig, figures: dict[str, Any], lowest: LowestHashes) -> None:
    """Raise where documents were to be held out, and so few were written that none was.

    Raises:
        InputError: training would have nothing to score on.
    """
    if config.validation_share == 0 or figures["totals"].get("validation"):
        return
    written = figures["documents"].get("written", 0)
    start = (
        f"corpus {config.corpus.name}: validation_share={config.validation_share} holds out none "
        f"of {pluralize(written, 'document')}, and training needs some to score; "
    )
    cure = FEWER
    if written > 1:
        share = lowest.share_for(sensible_count(written))
        cure = f"{advice(share)}, or 0 for shards that are not trained on alone"
    raise InputError(start + cure, key="validation_share")


def warnings(config: PrepareConfig, figures: dict[str, Any], lowest: LowestHashes) -> list[str]:
    """Return what a user should know of shards that were made."""
    totals = figures["totals"]
    held, instances = totals.get("validation_documents", 0), totals.get("validation", 0)
    if config.pairs != "nsp" or not instances or totals["validation_random_next"]:
        return []
    count = sensible_count(figures["documents"].get("written", 0))
    cure = advice(lowest.share_for(count)) if count > held else "raise validation_share"
    return [
        f"warning: {pluralize(held, 'held-out document')} cannot give random next segments, so "
        f"next-sentence scores will mean nothing; {cure}"
    ]


def main() -> None:
    """The command."""
    entry_point.run("prepare", PrepareConfig, lambda config: stage.run("prepare", config, make))


if __name__ == "__main__":
    main()
