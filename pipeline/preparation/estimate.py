"""What `prepare` will take: measured for a second on a part of the corpus, never by reading it all.

Only reading, cleaning and cutting into sentences are timed, so that no vocabulary is needed: a run says
what it will take before its vocabulary is there. Where it is, the tokens of the part are counted.
"""

import time
from pathlib import Path
from typing import NamedTuple

from pipeline.config import PrepareConfig
from pipeline.errors import Restart, UserError
from pipeline.filtering import minhash
from pipeline.preparation.documents import DocumentCounts, DocumentReader, Kept
from pipeline.preparation.read_cache import Splits
from pipeline.preparation.shuffle import ShuffleLayout, batch_tokens
from pipeline.readers import FileRange, ReadLog, open_corpus
from pipeline.records import estimate
from pipeline.records.estimate import Estimate, rounded, size
from pipeline.tokenization.coverage import Coverage
from pipeline.tokenization.wordpiece import WordPiece

# Bytes of text that a byte of such a file becomes, about: enough to choose the number of shards.
EXPANSION = {".bz2": 3.0, ".gz": 3.0, ".zst": 3.0, ".xz": 4.0, ".xml": 0.7}
CALIBRATION = 0.1  # seconds of a processor
ENOUGH = 2_000  # sentences whose tokens are counted
MEASURED = 10.0  # seconds at most, on a busy machine
SMALL = 10e6  # bytes of text
REST = 3.0  # time of the rest of prepare, in that of cleaning and cutting (25 MB of English)
START = 2.0  # seconds of a job's start
BYTES_OF_TOKEN, TEXT_OF_TOKEN = 2, 4.4  # in a shard; in text
WORKER = 0.25e9  # bytes of memory of a worker without documents
PER_TEXT = 4.8  # bytes of memory per byte of text of a worker's task


def text_bytes(splits: Splits) -> float:
    """Return the bytes of text in the input, about."""
    return sum(split.size * EXPANSION.get(Path(split.path).suffix, 1.0) for split in splits)


EXCHANGED = 2.0  # bytes per token between the phases, compressed
READ = 2.2  # bytes per token of what was read, kept until the end
SIGNED = 3000  # bytes of text of a document that has a signature
PART = 2300  # bytes of a part without documents
RATE = 6e6  # bytes of text per second and core, where nothing can be measured
WORKERS = (1, 8, 64, 512)


class Calibration(NamedTuple):
    """What a worker did with a part of a split."""

    bytes: int  # of the file
    characters: int  # of text in them
    seconds: float  # that all of prepare would have taken
    kept: Kept


def calibrate(config: PrepareConfig, split: FileRange) -> Calibration | None:
    """Read a split for about a second; None if nothing can be said of it."""
    reader, counts, kept = DocumentReader(config), DocumentCounts(), Kept()
    marks = [(0, 0)]  # bytes, and the characters of the documents in them

    def mark(position: int) -> None:
        marks.append((position, counts.totals["characters"]))

    began, worked, accepting = time.perf_counter(), time.thread_time(), 0.0
    try:
        for document in reader.reader.read(split, ReadLog(config.corpus.on_error, mark)):
            before = time.perf_counter()
            kept += reader.accept([document], counts)
            accepting += time.perf_counter() - before
            enough = all(marks[-1]) and time.thread_time() - worked > CALIBRATION  # as much on a busy machine
            if enough or time.perf_counter() - began > MEASURED:
                break
        else:
            mark(split.size)
    except (UserError, Restart):  # the job itself will say it
        return None
    seconds = time.perf_counter() - began + REST * accepting
    if not all(marks[-1]):
        return None
    return Calibration(*marks[-1], seconds * marks[-1][1] / counts.totals["characters"], kept)


def per_token(config: PrepareConfig, documents: Kept) -> float:
    """Return the characters per token of some documents, of English where the vocabulary is not there yet."""
    try:
        wordpiece = WordPiece.load(config.vocab)
    except UserError:
        return TEXT_OF_TOKEN
    sentences = [sentence for each in documents for sentence in each.sentences][:ENOUGH]
    gaps = [gap for each in documents for gap in each.gaps][:ENOUGH]
    ids, _ = wordpiece.encode_within(sentences, gaps, Coverage())
    return sum(map(len, sentences)) / len(ids) if len(ids) else TEXT_OF_TOKEN


def measured(config: PrepareConfig, splits: Splits) -> tuple[int, float, float, float | None]:
    """Return the bytes of the files, the characters and tokens in them, and the bytes per second of a worker.

    The rate is that of the last run in this folder, else that of a short calibration.
    """
    whole = sum(split.size for split in splits)
    # A small file may be broken or unlike the others; of equal splits, the middle one.
    typical = min(range(len(splits)), key=lambda n: (-splits[n].size, abs(n - len(splits) // 2)))
    sample = calibrate(config, splits[typical])
    text = whole * sample.characters / sample.bytes if sample else text_bytes(splits)
    rate = estimate.rate_of(config.workdir, "prepare")
    tokens = text / (per_token(config, sample.kept) if sample else TEXT_OF_TOKEN)
    return whole, text, tokens, rate or (sample.bytes / sample.seconds if sample else None)


def remember(config: PrepareConfig, splits: Splits, seconds: float) -> None:
    """Keep the bytes that a worker prepared per second, where the start did not weigh much."""
    if config.runner.name == "local" and splits and seconds > 5 * START:
        busy = min(config.runner.workers, len(splits))
        rate = sum(split.size for split in splits) / (seconds - START) / busy
        estimate.remember_rate(config.workdir, "prepare", rate)


def memory(config: PrepareConfig, splits: Splits, text: float) -> float:
    """Return the bytes of memory of a worker, which its largest task needs.

    `text` are the bytes of text in the corpus.
    """
    task_bytes, guess = config.runner.task_bytes, text_bytes(splits)
    text = max(text, guess)  # a compressed file is read ahead of the part that was measured
    largest = max(text_bytes([split]) for split in splits) * text / max(guess, 1.0)
    reading = min(max(largest, task_bytes), batch_tokens(config) * TEXT_OF_TOKEN)
    # Validation shards are larger where nearly all is held out.
    writing = max(config.shard_bytes / max(1 - config.validation_share, 0.5), task_bytes)
    return WORKER + PER_TEXT * min(text, max(reading, writing))


def estimate_preparation(config: PrepareConfig, splits: Splits | None = None) -> Estimate | None:
    """Return the estimate of a configuration, from the last run's rate or a short calibration.

    None where the corpus is so small that the line would be longer than the wait.

    Raises:
        ConfigError, InputError: the corpus cannot be read.
    """
    if splits is None:
        reader = open_corpus(config.corpus, config.source)
        splits = reader.splits(config.split_bytes)
        for split in splits[:1]:  # the name of a field, say, is wrong in its first row
            next(iter(reader.read(split, ReadLog(config.corpus.on_error))), None)
    if text_bytes(splits) < SMALL:
        return None
    whole, text, tokens, rate = measured(config, splits)
    workers = config.runner.workers
    busy = min(workers, max(1, len(splits)))
    return Estimate(
        seconds=START + whole / rate / busy if rate and config.runner.name == "local" else None,
        disk=BYTES_OF_TOKEN * tokens * (config.duplicates + 1) + kept(config, text, tokens),
        memory=memory(config, splits, text) * workers,
        about=f"{size(text)} of text, {tokens / 1e6:,.1f} M tokens",
    )


def kept(config: PrepareConfig, text: float, tokens: float) -> float:
    """Return the bytes of what was read of a text, by its characters and tokens, and of what is compared of it."""
    threshold, permutations = config.filters.near_duplicates, config.filters.permutations
    signed = 0 if threshold is None else 4 * permutations + minhash.sent_bytes(permutations, threshold)
    return READ * tokens + signed * text / SIGNED


def describe_plan(config: PrepareConfig, splits: Splits, layout: ShuffleLayout) -> list[str]:
    """Return what `prepare dry_run=true` prints: the layout, as the job computes it, and its cost.

    Time is that of a second of reading on this machine, or of the last run in this folder. The
    other constants were measured; docs/scale.md says how.
    """
    calibrate(config, splits[0])  # loads what only the first document needs
    whole, text, tokens, rate = measured(config, splits)
    seconds = whole / rate if rate else text / RATE
    engine = config.runner.by_engine
    parts = layout.batches * layout.ranges + layout.merges * layout.groups * layout.writes
    moved = EXCHANGED * tokens * (1 + layout.merges) + PART * parts
    made = BYTES_OF_TOKEN * tokens * config.duplicates
    tasks = max(layout.reads, layout.writes)
    times = "; ".join(
        f"{count:,}: {rounded(START + seconds / count)}" for count in WORKERS if count == 1 or count <= tasks
    )
    carrier, each = "the engine" if engine else "files in out", f"{max(1, round(moved / parts / 1e3)):,} KB"
    step = f", merged in {layout.groups * layout.ranges:,} tasks" if layout.merges else ""
    needed = made + kept(config, text, tokens) + (0 if engine else moved)
    rows = {
        "corpus": f"{size(whole)} in files, {size(text)} of text, {tokens / 1e6:,.1f} M tokens",
        "splits": f"{len(splits):,}, read in {layout.reads:,} tasks",
        "shards": f"{layout.buckets:,}, written in {layout.writes:,} tasks",
        "exchange": f"{size(moved)} in {parts:,} parts of {each} through {carrier}{step}",
        "time": f"by workers of one core, if a start takes no longer than here: {times}",
        "disk": f"{size(needed)} in and next to out, of which {size(made)} are shards"
        + (f"; the engine's own store: {size(moved)} over all workers" if engine else ""),
        "memory": f"{size(memory(config, splits, text))} per worker",
    }
    return ["prepare: estimate, nothing is written", *(f"  {k:<9} {v}" for k, v in rows.items())]
