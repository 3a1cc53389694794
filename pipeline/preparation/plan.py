"""The plan made by the driver of `prepare`, and the paths of its tasks' files."""

import dataclasses
import functools
import glob
import hashlib
import itertools
import json
import math
import os
import secrets
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pipeline import readers
from pipeline.config import PrepareConfig, check
from pipeline.console import terminal
from pipeline.errors import InputError, named
from pipeline.filtering import filters, minhash
from pipeline.preparation import documents
from pipeline.preparation.estimate import text_bytes
from pipeline.preparation.read_cache import ReadCache, Splits, entry_name
from pipeline.preparation.shard_sizes import buckets, check_sizes
from pipeline.preparation.shuffle import PER_TOKEN, ShuffleLayout, batch_tokens
from pipeline.readers import FileRange
from pipeline.readers.io import byte_ranges
from pipeline.shards import ShardInfo
from pipeline.shards.holdout import is_held_out
from pipeline.stages import fingerprints
from pipeline.stages.fetch_inputs import root_of
from pipeline.storage import places
from pipeline.storage.cached_folders import restore_addresses
from pipeline.tokenization.word_segmentation import segmenter
from pipeline.tokenization.wordpiece import WordPiece

PACKED = 4096  # reading tasks per packet
Text = TypeVar("Text", str, str | None)

# Splits, shards per split of the data, the splits of each reading task.
Layout = tuple[Splits, dict[str, int], list[Splits], ShuffleLayout]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparePlan:
    """The driver's decisions, sent to every task without the splits.

    Splits are sent once, in compressed packets, to the tasks that read them: the graph has a few
    bytes per split.
    """

    config: PrepareConfig
    out: str
    info: ShardInfo
    tasks: list[Splits]  # those of each reading task
    buckets: dict[str, int]  # train, validation -> number of buckets
    separator: int  # the id of [SEP]
    layout: ShuffleLayout
    short: dict[str, int]  # evaluation files that no document can match, see `filters.Decontamination`
    removed: frozenset[str]  # what `filters.remove` names; tasks read it themselves
    units: ReadCache
    notes: Counter[str]  # on files of the corpus that no task reads
    reading: str  # a hash of all but the splits that determines what a reading task reads
    token: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state sent to workers."""
        return {**vars(self), "tasks": [], "removed": frozenset()}

    def check_current(self) -> None:
        """Raise where another run owns the folder.

        The job of a killed driver may continue for a while, concurrently with its successor.
        """
        if not (self.scratch / f"run-{self.token}").exists():
            raise RuntimeError("another run is writing to this folder")

    def claim(self) -> None:
        """Write the marker of this run."""
        (self.scratch / f"run-{self.token}").touch()

    @property
    def splits(self) -> Splits:
        """Return the splits of all reading tasks."""
        return [split for task in self.tasks for split in task]

    def packets(self) -> Iterator[bytes]:
        """Yield all reading tasks for `unpack`, many at a time."""
        tasks = [(read, list(map(dataclasses.astuple, splits))) for read, splits in enumerate(self.tasks)]
        for start in range(0, len(tasks), PACKED):
            yield zlib.compress(json.dumps(tasks[start : start + PACKED]).encode())

    @property
    def scratch(self) -> Path:
        """Return the folder of temporary files."""
        return Path(self.out) / ".scratch"

    @property
    def unit_names(self) -> list[str]:
        """Return the names of the units of all reading tasks."""
        return [entry_name(self.reading, splits) for splits in self.tasks]

    @property
    def error_note(self) -> Path:
        """Return the file where a task records a user error; all tasks stop once it exists."""
        return self.scratch / "error.json"

    def read_account(self, read: int) -> Path:
        """Return the file of the document counts of a reading task."""
        return self.scratch / f"read-{read:05d}.json"

    def write_account(self, write: int) -> Path:
        """Return the file of the document counts of a writing task."""
        return self.scratch / f"write-{write:05d}.json"

    def accounts(self) -> Iterator[Path]:
        """Yield the files of the counts of all tasks, those that read before those that write."""
        yield from map(self.read_account, range(self.layout.reads))
        # Where no document fell into its buckets, a task that writes leaves none.
        yield from filter(Path.exists, map(self.write_account, range(self.layout.writes)))

    def report(self, account: Path) -> Path:
        """Return the progress file of the task that will write these counts."""
        return account.with_suffix(".progress")

    def shard_name(self, bucket: int) -> str:
        """Return the name of a bucket's shard."""
        train = self.buckets["train"]
        split, index = ("train", bucket) if bucket < train else ("validation", bucket - train)
        return f"{split}-{index:05d}-of-{self.buckets[split]:05d}"

    def bucket(self, digest: bytes) -> int:
        """Return the bucket of a document."""
        number = int.from_bytes(digest[8:], "big")
        if is_held_out(digest, self.config.validation_share):
            return self.buckets["train"] + number % self.buckets["validation"]
        return number % self.buckets["train"]


def unpack(packet: bytes) -> Iterator[tuple[int, Splits]]:
    """Yield the reading tasks of a packet, with their splits."""
    for read, splits in json.loads(zlib.decompress(packet)):
        yield read, [FileRange(*each) for each in splits]


@functools.lru_cache(maxsize=1)
def loaded_vocabulary(place: str) -> WordPiece:
    """Return a vocabulary, cached per process: loading takes 0.2 s."""
    return WordPiece.load(place)


def vocabulary(place: str, sha256: str) -> WordPiece:
    """Return the vocabulary of a plan.

    Raises:
        InputError: it has changed since the plan was made.
    """
    wordpiece = loaded_vocabulary(place)
    if wordpiece.sha256 != sha256:
        loaded_vocabulary.cache_clear()
        wordpiece = loaded_vocabulary(place)
    if wordpiece.sha256 != sha256:
        raise InputError("was changed during the run; rerun the command", "vocab", place)
    return wordpiece


def plan_layout(config: PrepareConfig) -> Layout:
    """Return the splits, the number of shards, the splits of each reading task, and the shuffle layout.

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
    task_bytes, most = config.runner.task_bytes, batch_tokens(config) * PER_TOKEN
    firsts = byte_ranges.firsts(((str(split.identity), text_bytes([split])) for split in splits), task_bytes)
    tasks = [splits[low:high] for low, high in itertools.pairwise([*firsts, len(splits)])]
    batches = sum(math.ceil(text_bytes(task) / most) for task in tasks)
    layout = ShuffleLayout.choose(len(tasks), sum(shards.values()), text_bytes(splits), task_bytes, batches)
    return splits, shards, tasks, layout


def make_plan(config: PrepareConfig, out: Path) -> PreparePlan:
    """Return everything that the workers need, decided before any work starts.

    Raises:
        ConfigError, InputError: the corpus or vocabulary is invalid, or they are incompatible.
    """
    config = for_workers(config)
    short = check_filters(config)
    splits, shards, tasks, layout = plan_layout(config)
    loaded_vocabulary.cache_clear()
    wordpiece = loaded_vocabulary(config.vocab)
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
        layout=layout,
        short=short,
        notes=readers.notes_of(splits),
        removed=filters.removed(config.filters.remove),
        units=read_cache_of(config, out),
        reading=reading_key(config, info),
    )


def read_cache_of(config: PrepareConfig, out: Path) -> ReadCache:
    """Return where what was read is kept: next to the folder that is made, and in a store where that is put."""
    folder = out.absolute().with_suffix(".reading")
    address = restore_addresses(root_of(config.mirror), str(folder))
    return ReadCache(folder, "" if address == str(folder) else address)


_OF_PAIRS = ("pairs", "cross_documents", "packing", "sequence_length", "short_sequence_probability", "duplicates")
_OF_SHARDS = ("validation_share", "maximum_words", "shard_bytes", "seed")
# Of the second phase, or in the splits and the vocabulary.
NOT_OF_READING = (*_OF_PAIRS, *_OF_SHARDS, "split_bytes", "source", "corpus.path", "vocab")


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
    for path in sorted(Path(__file__).parents[1].rglob("*")):
        if path.suffix in (".py", ".yaml"):  # its tables are data
            digest.update(path.read_bytes())
    # Names of folders have the version; to parse what is in them takes 0.2 s.
    packages = sorted(each.name for folder in sys.path for each in Path(folder).glob("*-info"))
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
    short = {path: most for each in chosen for path, most in each.short.items()}
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


def for_workers(config: PrepareConfig) -> PrepareConfig:
    """Return a configuration whose paths mean the same to workers as here.

    Workers that this process starts have its directory: paths stay as typed, as in ids of
    documents.
    """
    if config.runner.name in ("local", "prism") or config.runner.options.get("environment_type") == "LOOPBACK":
        return config
    return dataclasses.replace(
        config,
        corpus=config.corpus.with_places(absolute),
        filters=dataclasses.replace(
            config.filters,
            banned_file=absolute(config.filters.banned_file),
            remove=absolute(config.filters.remove),
            decontaminate=[absolute(place) for place in config.filters.decontaminate],
        ),
        source=absolute(config.source),
        vocab=absolute(config.vocab),
    )


def absolute(place: Text) -> Text:
    """Return a local path from the root of the file system, an address as it is."""
    here = os.getcwd()
    if not place or places.is_address(place) or glob.has_magic(here):  # no part of a pattern
        return place
    return os.path.join(here, place)
