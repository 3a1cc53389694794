"""`python -m pipeline.prepare +corpus=NAME`: a corpus -> Arrow shards of sentence pairs.

A Beam job of two phases (see `pipeline.beam.steps`):

1. read file ranges of the corpus -> documents -> sentences -> token ids, in buckets by hash;
2. take a bucket from all file ranges, drop duplicates, draw sentence pairs, write one shard.
"""

import contextlib
import hashlib
import itertools
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from pipeline import readers
from pipeline.beam import documents, estimate, spent, steps
from pipeline.beam.documents import OUTCOMES, DocumentCounts
from pipeline.beam.estimate import text_bytes
from pipeline.beam.exchange import PER_TOKEN, Exchange, portion
from pipeline.beam.plan import PreparePlan
from pipeline.beam.progress import watch
from pipeline.beam.runners import for_workers
from pipeline.beam.shard_sizes import buckets, check_sizes
from pipeline.beam.units import Splits, Units
from pipeline.cli import entry_point
from pipeline.config import PrepareConfig, check
from pipeline.console import terminal
from pipeline.console.formatting import WARNING, pluralize
from pipeline.errors import InputError, named
from pipeline.filtering import filters, minhash
from pipeline.readers.io import byte_ranges
from pipeline.readers.io.row_fields import LEFT_OUT
from pipeline.records.estimate import size
from pipeline.records.manifest import Result
from pipeline.records.metrics import CorpusCounts
from pipeline.shards import ShardInfo
from pipeline.shards.validation_share import LowestHashes, how_to_set, sensible_count
from pipeline.stages import fingerprints, stage
from pipeline.stages.fingerprints import pin
from pipeline.stages.store_folder import root_of
from pipeline.storage.cached_folders import addressed
from pipeline.tokenization.coverage import Coverage
from pipeline.tokenization.word_segmentation import segmenter
from pipeline.tokenization.wordpiece import WordPiece

MOST_HELD_OUT = 0.35  # of the instances; more is worth a warning

# The fix if a single document cannot be divided between training and validation.
FEWER = (
    f"add documents, split them into smaller ones, or set {named('validation_share')}=0 for shards that are trained "
    "on together with others"
)

# The fix if documents are too short for pairs.
MORE_TEXT = f"add documents of several sentences, or set {named('pairs')}=none for packed sentences"


Layout = tuple[Splits, dict[str, int], list[Splits], Exchange]


def laid_out(config: PrepareConfig) -> Layout:
    """Return the splits, the number of shards, the splits of each reading task, and the exchange.

    Raises:
        ConfigError, InputError: the corpus is invalid or empty, or would give too many or too
            large shards.
    """
    splits = readers.open_corpus(config.corpus, config.source).splits(config.split_bytes)
    if not splits:
        place = config.corpus.path or f"corpus {config.corpus.name}"
        raise InputError("all files are empty; give it files with text", "corpus.path", path=place)
    shards = buckets(splits, config.shard_bytes, config.validation_share)
    check_sizes(config, splits, shards)
    task_bytes, most = config.runner.task_bytes, portion(config) * PER_TOKEN
    firsts = byte_ranges.firsts(((str(split.identity), text_bytes([split])) for split in splits), task_bytes)
    tasks = [splits[low:high] for low, high in itertools.pairwise([*firsts, len(splits)])]
    portions = sum(math.ceil(text_bytes(task) / most) for task in tasks)
    exchange = Exchange.choose(len(tasks), sum(shards.values()), text_bytes(splits), task_bytes, portions)
    return splits, shards, tasks, exchange


def plan(config: PrepareConfig, out: Path) -> PreparePlan:
    """Return everything that the workers need, decided before any work starts.

    Raises:
        ConfigError, InputError: the corpus or vocabulary is invalid, or they are incompatible.
    """
    config = for_workers(config)
    short = check_filters(config)
    _, shards, tasks, exchange = laid_out(config)
    steps.loaded.cache_clear()
    wordpiece = steps.loaded(config.vocab)
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
    return PreparePlan(
        config=config,
        out=str(out.absolute()),
        info=info,
        tasks=tasks,
        buckets=shards,
        separator=wordpiece.sep,
        exchange=exchange,
        short=short,
        removed=filters.removed(config.filters.remove),
        units=units_of(config, out),
        reading=reading_key(config, info),
    )


def units_of(config: PrepareConfig, out: Path) -> Units:
    """Return where what was read is kept: next to the folder that is made, and in a store where that is put."""
    folder = out.absolute().with_suffix(".reading")
    address = addressed(root_of(config.mirror), str(folder))
    return Units(folder, "" if address == str(folder) else address)


# Of the second phase, or in the splits and the vocabulary.
NOT_OF_READING = (
    "pairs",
    "cross_documents",
    "packing",
    "sequence_length",
    "short_sequence_probability",
    "duplicates",
    "validation_share",
    "maximum_words",
    "split_bytes",
    "shard_bytes",
    "seed",
    "source",
    "corpus.path",
    "vocab",
)


def reading_key(config: PrepareConfig, info: ShardInfo) -> str:
    """Return a hash of all but the splits that determines what a reading task reads.

    Code counts as it is: that of a later version may read otherwise.
    """
    settings = {k: v for k, v in fingerprints.changed_settings(config).items() if k not in NOT_OF_READING}
    settings["minimum_sentences"] = documents.minimum_sentences(config)
    settings["filters.near_duplicates"] = config.filters.near_duplicates is not None
    files = {k: path for k, path in fingerprints.inputs(config).items() if k.startswith("filters.")}
    files.pop("filters.remove", None)
    sources = {k: fingerprints.fingerprint_path(path) for k, path in files.items()}
    known = fingerprints.fingerprint_of("prepare", settings, sources)
    digest = hashlib.sha256(f"{info.tokenizer}{known}".encode())
    for path in sorted(Path(__file__).parent.rglob("*")):
        if path.suffix in (".py", ".yaml"):  # its tables are data
            digest.update(path.read_bytes())
    packages = sorted(f"{each.name} {each.version}" for each in metadata.distributions())
    digest.update("\n".join([sys.version, *packages]).encode())
    return digest.hexdigest()


def check_filters(config: PrepareConfig) -> dict[str, int]:
    """Raise before any work starts if a filter is invalid; return the `short` files of the decontamination.

    Raises:
        ConfigError, InputError: a bad pattern or evaluation file, or a missing library.
    """
    chosen = filters.build(config.filters, config.corpus.language)
    if config.filters.near_duplicates is not None:
        minhash.MinHasher(config.filters)
    short = next((each.short for each in chosen if isinstance(each, filters.Decontamination)), {})
    if short:
        terminal.say(f"prepare: warning: {filters.short_warning(config.filters, short)}")
    return short


def check_words(config: PrepareConfig, wordpiece: WordPiece) -> None:
    """Raise before any work starts if words cannot be segmented.

    Raises:
        ConfigError: a library is missing, or the vocabulary does not split Chinese characters.
    """
    if config.words is not None:
        segmenter(config.words)
        check(
            wordpiece.cuts_chinese,
            f"requires one token per Chinese character, but vocab={config.vocab} merges them; rebuild it with "
            f"{named('split_chinese')}=true, or unset words",
            "words",
            config.words,
        )


def collect(plan: PreparePlan) -> tuple[CorpusCounts, DocumentCounts]:
    """Merge the counts of all tasks; return them for the manifest, and with hashes and what was dropped.

    Raises:
        RuntimeError: the engine lost or duplicated documents.
    """
    account = DocumentCounts()
    if plan.short:
        said = [f"{path}: {most} words at most" for path, most in plan.short.items()]
        account.named[filters.SHORT] = said[: readers.SkipCounts.NAMED]
    for part in steps.accounts(plan):
        account.take(part)
    account.balance()
    account.dropped.trim()
    figures = {
        **vars(account),
        "dropped": len(account.dropped),
        "tokenizer": plan.info.tokenizer,
        "vocab_size": plan.info.vocab_size,
        "sequence_length": plan.info.sequence_length,
    }
    return CorpusCounts.from_json(figures), account


def taken_up(work: PreparePlan) -> int:
    """Return how many reading tasks an earlier start has done; with `force` none."""
    if work.config.force:
        work.units.remove_all_but(set())
    there = work.units.names()
    kept = sum(name in there for name in work.unit_names) if there else 0
    if there:
        tasks = pluralize(len(work.tasks), "reading task")
        terminal.say(f"prepare: {kept:,} of {tasks} were done by an earlier start")
    return kept


@contextlib.contextmanager
def resumable(work: PreparePlan) -> Iterator[None]:
    """Say what stays for the next start where the body fails."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            work.units.folder.rmdir()
        if work.units.folder.exists():
            terminal.say(f"prepare: what was read stays in {work.units.folder} for the next start")
        raise


def make(config: PrepareConfig, out: Path) -> Result:
    """Write the shards of a corpus into `out`.

    Raises:
        ConfigError: raised by `plan` or the engine.
        InputError: the corpus is unreadable, or gives no training or no validation instances.
    """
    work = plan(config, out)
    kept = taken_up(work)
    # A worker of a killed run may have made it again: it writes no more, see `check_current`.
    work.scratch.mkdir(parents=True, exist_ok=True)
    if not kept and (expected := estimate.of(config, work.splits)):
        terminal.say(f"prepare: {expected}")
    began = time.monotonic()
    with resumable(work):
        with watch(work):
            steps.run(work)
        if not kept:
            estimate.remember(config, work.splits, time.monotonic() - began)
        counts, account = collect(work)
        used = spent.total(work.scratch.glob(f"*{spent.ENDING}"))
        shutil.rmtree(work.scratch)
        if not counts.documents.get("read"):
            work.units.remove_all_but(set())
        check_train(config, counts)
        check_word_limit(config, counts)
        check_held_out(config, counts, account.lowest)
    terminal.say(f"prepare: {spent.line(used)}")
    account.dropped.write(out, counts.documents["read"] - counts.written)
    counts.warnings.extend(warnings(work, counts, account.lowest))
    left = work.units.remove_all_but(set(work.unit_names) if config.keep_reading else set())
    return Result(
        summary=WARNING.join([made_line(config, counts, left), *counts.warnings]),
        figures=counts.to_json(),
        spent=used,
        sums={name: shard.sha256 for name, shard in counts.shards.items()},
    )


def made_line(config: PrepareConfig, counts: CorpusCounts, kept: int) -> str:
    """Return what was made, and with `keep_reading` how many bytes are kept of what was read."""
    found, but = documents_line(config, counts), ", but for tasks with removed documents" if counts.removed else ""
    parts = [
        f"{found}{';' if ':' in found else ','} {pluralize(counts.tokens, 'token')}",
        f"{pluralize(counts.instances, 'instance')} in {pluralize(len(counts.shards), 'shard')}",
        str(Coverage.of(counts.totals)),
        counts.packing_line if config.packing != "sequential" else "",
        f"what was read is kept ({size(kept)}{but})" if config.keep_reading else "",
    ]
    return ", ".join(filter(None, parts))


def documents_line(config: PrepareConfig, counts: CorpusCounts) -> str:
    """Return the number of documents used, out of how many, and the outcomes of the others."""
    lost = Counter(counts.skipped)
    lost.update({name: counts.documents.get(name, 0) for name in OUTCOMES if name != "written"})
    unit = getattr(readers.reader_class(config.corpus.reader), "UNIT", "document")
    if counts.written == counts.found:
        return pluralize(counts.written, unit)
    return f"{counts.written:,} of {pluralize(counts.found, unit)}: {readers.passed_over(lost)}"


def check_train(config: PrepareConfig, counts: CorpusCounts) -> None:
    """Raise InputError if there are no training instances: all held out, or none can be made."""
    share, held = config.validation_share, counts.held_documents
    if counts.train or (share == 1 and counts.held_out):
        return
    start = f"no training instances of corpus {config.corpus.name}"
    if left := counts.written - held:
        raise InputError(
            f"{start}, as {pluralize(left, 'training document')} cannot give any; {MORE_TEXT}", "pairs", config.pairs
        )
    if held:
        raise InputError(
            f"{start}, as {'the only document is' if held == 1 else f'all {held} documents are'} held out; {FEWER}",
            "validation_share",
            share,
        )
    by_filter = ", ".join(f"{count:,} {name}" for name, count in counts.filtered.items())
    filtered = f" (by filter: {by_filter})" if by_filter else ""
    broken = "".join(f"; the first broken one: {each}" for each in counts.named.get("broken", [])[:1])
    raise InputError(f"{start}: {documents_line(config, counts)}{filtered}{broken}", "corpus.path")


def check_word_limit(config: PrepareConfig, counts: CorpusCounts) -> None:
    """Raise where the corpus has more words than `maximum_words`.

    Raises:
        InputError: it has; what is held out counts too, equal documents once.
    """
    most = config.maximum_words
    if most is not None and counts.words > most:
        raise InputError(
            f"corpus {config.corpus.name} has {counts.words:,} words; take fewer documents, or raise the limit",
            "maximum_words",
            most,
        )


def check_held_out(config: PrepareConfig, counts: CorpusCounts, lowest: LowestHashes) -> None:
    """Raise InputError if `validation_share` holds out no documents, or none that give pairs."""
    if config.validation_share == 0 or counts.held_out:
        return
    written = counts.written
    none = "or 0 for shards that are trained on together with others"
    if held := counts.held_documents:
        start = f"holds out {pluralize(held, 'document')}, which cannot give any {named('pairs')}={config.pairs}; "
        count = min(max(2 * held, sensible_count(written)), written - 1, len(lowest))
        larger = f"{how_to_set(lowest.share_for(count))}, {none}; or " if count > held else ""
        raise InputError(start + larger + MORE_TEXT, "validation_share", config.validation_share)
    start = f"holds out none of {pluralize(written, 'document')}, but training needs some for validation; "
    cure = FEWER
    if written > 1:
        cure = f"{how_to_set(lowest.share_for(sensible_count(written)))}, {none}"
    raise InputError(start + cure, "validation_share", config.validation_share)


def warnings(plan: PreparePlan, counts: CorpusCounts, lowest: LowestHashes) -> list[str]:
    """Return warnings about the shards."""
    config, held, instances, found = plan.config, counts.held_documents, counts.held_out, []
    if config.pairs == "nsp" and instances and not counts.totals["validation_random_next"]:
        count = sensible_count(counts.written)
        cure = how_to_set(lowest.share_for(count)) if count > held else "raise validation_share"
        found.append(
            f"{pluralize(held, 'held-out document')} cannot give random next segments, so "
            f"next-sentence scores will be meaningless; {cure}"
        )
    if instances > MOST_HELD_OUT * counts.instances and config.validation_share < 1:
        found.append(
            f"{instances:,} of {counts.instances:,} instances ({instances / counts.instances:.0%}) "
            f"are held out with {pluralize(held, 'document')}; a smaller validation_share leaves "
            "more to train on"
        )
    found += filter(None, [Coverage.of(counts.totals).warning])
    if missed := sorted(plan.removed - counts.removed.keys()):
        found.append(
            f"{pluralize(len(missed), 'line')} of {config.filters.remove} name no document that was left, such as "
            f"{missed[0]}; ids are as in dropped.feather"
        )
    found += ["filters.remove names no document; its file is empty"] * bool(config.filters.remove and not plan.removed)
    if config.corpus.options.get("where") and LEFT_OUT not in counts.skipped:
        found.append("corpus.options.where leaves out no row; check its value")
    if plan.short:
        found.append(filters.short_warning(config.filters, plan.short))
    return found


def execute(config: PrepareConfig) -> None:
    """Run the stage, or print its plan.

    Raises:
        UserError: raised by `make`, or `out` cannot be written.
    """
    if not config.dry_run:
        stage.run("prepare", config, make)
        return
    pin(config)
    splits, _, _, exchange = laid_out(config)
    for line in estimate.plan(config, splits, exchange):
        terminal.say(line)


def main() -> None:
    """Run the command."""
    entry_point.run("prepare", PrepareConfig, execute)


if __name__ == "__main__":
    main()
