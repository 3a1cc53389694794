"""The schemas from text to shards: `download`, `vocab`, `prepare`, `tasks`, and what they share."""

import re
from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf

from pipeline.common.errors import ConfigError
from pipeline.common.schema import StageConfig, check, check_choice, input_path, runtime_option

LANGUAGE = re.compile(r"([A-Za-z]{2,3}|simple)([-_][A-Za-z0-9]+)*")  # de, simple, zh-min-nan


@dataclass(kw_only=True)
class DownloadFile:
    """One file with an address, and the publisher's list of checksums that names it."""

    url: str = MISSING
    sums: str | None = None  # address of a file of lines `DIGEST  NAME`
    digest: str | None = None  # or the digest itself; md5, sha1 or sha256 by its length


@dataclass(kw_only=True)
class CorpusConfig:
    """Where text comes from and how it is read."""

    name: str = MISSING  # and that of its folder in work/
    reader: str = MISSING  # a module of pipeline.readers
    # its code, as Wikipedia's addresses begin (vi, ceb, simple): how sentences end, by the rules of
    # `sentencex` for it, or of English where it has none; which dump; which encodings
    language: str = "en"
    path: str | None = None  # file, folder or glob; null: the files that `download` fetched
    files: list[DownloadFile] = field(default_factory=list)  # what `download` fetches
    encoding: str | None = None  # of text files; null: found out file by file
    mend: bool = False  # put right what was once decoded in a wrong encoding, with ftfy
    on_error: str = "fail"  # a single document that is broken: fail, or skip and name it
    parts: dict[str, Any] = field(default_factory=dict)  # of a mix: corpora, each with a weight
    options: dict[str, Any] = field(default_factory=dict)  # the reader's own options

    def __post_init__(self) -> None:
        """Check the choices."""
        check(
            LANGUAGE.fullmatch(self.language) is not None,
            f"corpus.language={self.language}: no code of a language; write it as the addresses of "
            "Wikipedia begin: vi, de, ceb, simple",
        )
        check_choice("corpus.on_error", self.on_error, ("fail", "skip"))
        check(self.path != "", "corpus.path=: name a file or folder, or leave this key out")
        if self.encoding is not None:
            try:
                " ".encode(self.encoding)  # of text, which not all that Python can look up is
            except LookupError as error:
                raise ConfigError(f"corpus.encoding={self.encoding}: no such encoding") from error


@dataclass(kw_only=True)
class FiltersConfig:
    """Which documents `prepare` leaves out, beside those that are empty, short or equal."""

    maximum_characters: int | None = None  # of a document
    maximum_non_letters: float | None = None  # share of its characters, spaces apart
    banned: list[str] = field(default_factory=list)  # regular expressions
    banned_file: str | None = input_path(None)  # or a file of them, one a line
    decontaminate: list[str] = field(  # evaluation files, folders of them, globs
        default_factory=list, metadata={"role": "input"}
    )
    ngram: int = 13  # words in a row that a document may not share with an evaluation file
    near_duplicates: float | None = None  # Jaccard similarity from which the second one goes
    shingle: int = 5  # words in a row that are compared for it
    permutations: int = 128  # of a MinHash signature: more are more exact, and cost more

    def __post_init__(self) -> None:
        """Check the ranges."""
        for key in ("maximum_characters", "ngram", "shingle", "permutations"):
            value = getattr(self, key)
            check(value is None or value >= 1, f"filters.{key}={value}: at least 1")
        share, near = self.maximum_non_letters, self.near_duplicates
        check(share is None or 0 <= share <= 1, f"filters.maximum_non_letters={share}: from 0 to 1")
        check(near is None or 0 < near <= 1, f"filters.near_duplicates={near}: above 0, up to 1")


@dataclass(kw_only=True)
class RunnerConfig:
    """The engine that runs the Beam graph."""

    name: str = "local"
    workers: int = 1  # processes that local, portable and a Dask cluster of our own have
    # seconds in which the first worker has to begin, once the service runs the job; not of local
    # and dask
    start_timeout: float = 50.0
    # times that a service gets the job again after a process of it died; not of local and dask
    retries: int = 2
    options: dict[str, Any] = field(default_factory=dict)  # further Beam pipeline options

    def __post_init__(self) -> None:
        """Check the name and the range."""
        engines = ("local", "dask", "prism", "portable", "flink", "spark", "dataflow")
        check_choice("runner.name", self.name, engines)
        check(self.retries >= 0, f"runner.retries={self.retries}: at least 0")
        check(self.start_timeout > 0, f"runner.start_timeout={self.start_timeout}: above 0 seconds")
        check(self.workers >= 1, f"runner.workers={self.workers}: at least 1")


@dataclass(kw_only=True)
class DownloadConfig(StageConfig):
    """`python -m pipeline.download`."""

    corpus: CorpusConfig = MISSING
    timeout: float = runtime_option(60.0)  # seconds without a byte before a try is given up
    tries: int = runtime_option(8)  # per file; a try goes on where the last one broke off

    def __post_init__(self) -> None:
        """Check the ranges."""
        check(self.timeout > 0, f"timeout={self.timeout}: above 0 seconds")
        check(self.tries >= 1, f"tries={self.tries}: at least 1")


@dataclass(kw_only=True)
class VocabConfig(StageConfig):
    """`python -m pipeline.vocab`."""

    corpus: CorpusConfig = MISSING
    source: str = input_path()  # the download folder, read where corpus.path is null
    existing: str | None = input_path(None)  # a vocab.txt or tokenizer.json to take as it is
    additions: str | None = input_path(None)  # a file of entries, one a line, to put after those
    learn: int = 0  # so many entries learnt from the corpus, to put after those
    size: int = 30522  # entries of a learnt vocabulary
    # lower case, which strips accents too unless strip_accents=false; null: true, and of an
    # existing vocab.txt as its entries say
    lowercase: bool | None = None
    strip_accents: bool | None = None  # é is e, and so is ế; null: as lowercase says
    split_chinese: bool = True  # every CJK character a word of its own
    sample_bytes: int = 100_000_000  # text to learn from, spread over the corpus
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check(self.size >= 100, f"size={self.size}: at least 100 entries")
        check(self.sample_bytes >= 1, f"sample_bytes={self.sample_bytes}: at least 1")
        check(self.learn >= 0, f"learn={self.learn}: at least 0")
        check(
            self.existing is not None or (self.additions is None and not self.learn),
            "additions, learn: only to a vocabulary that is there, existing=FOLDER",
        )

    @staticmethod
    def complete(config: DictConfig) -> None:
        """Without a corpus an existing vocabulary is taken as it is: nothing is read for it."""
        if OmegaConf.is_missing(config, "corpus") and config.existing and not config.learn:
            config.corpus = OmegaConf.structured(CorpusConfig(name="existing", reader="none"))


@dataclass(kw_only=True)
class PrepareConfig(StageConfig):
    """`python -m pipeline.prepare`."""

    corpus: CorpusConfig = MISSING
    filters: FiltersConfig = field(default_factory=FiltersConfig)
    runner: RunnerConfig = runtime_option(MISSING)
    source: str = input_path()  # the download folder, read where corpus.path is null
    vocab: str = input_path()  # the vocabulary folder
    pairs: str = "nsp"  # B is next or random; sop: next or swapped with A; none: full sentences
    cross_documents: bool = True  # of pairs=none: a sequence may go on with the next document
    sequence_length: int = 128  # with [CLS] and two [SEP]
    short_sequence_probability: float = 0.1  # of nsp and sop
    duplicates: int = 1  # times each document is cut into pairs anew
    validation_share: float = 0.01  # of documents, by the hash of their text
    words: str | None = None  # of text without spaces, marked for masks of whole words: jieba
    minimum_sentences: int = 1  # documents with fewer are counted as short; of sop at least 2
    minimum_characters: int = 50  # likewise
    # Words, divided by white space, of all different documents; a corpus of more is refused
    maximum_words: int | None = None
    split_bytes: int = 64 * 2**20  # of an input file that one phase-1 task reads
    shard_bytes: int = 64 * 2**20  # of input text that one shard holds, about
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_choice("pairs", self.pairs, ("nsp", "sop", "none"))
        check_choice("words", self.words or "jieba", ("jieba",))
        length = self.sequence_length
        check(8 <= length <= 65535, f"sequence_length={length}: from 8 to 65535")
        for key in ("short_sequence_probability", "validation_share"):
            value = getattr(self, key)
            check(0 <= value < 1, f"{key}={value}: from 0 to below 1")
        for key in ("duplicates", "split_bytes", "shard_bytes", "minimum_sentences"):
            value = getattr(self, key)
            check(value >= 1, f"{key}={value}: at least 1")
        most = self.maximum_words
        check(most is None or most >= 1, f"maximum_words={most}: at least 1, or null")
        least = self.minimum_characters
        check(least >= 0, f"minimum_characters={least}: at least 0")


@dataclass(kw_only=True)
class TasksConfig(StageConfig):
    """`python -m pipeline.tasks`: sample tasks in the GLUE layout, from held-out documents."""

    corpus: CorpusConfig = MISSING
    source: str = input_path()  # the download folder, read where corpus.path is null
    validation_share: float = 0.01  # as `prepare` has it: the documents that training never sees
    train_rows: int = 4000  # of each task, at most
    dev_rows: int = 1000  # likewise
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        share = self.validation_share
        check(0 < share < 1, f"validation_share={share}: above 0 and below 1")
        check(self.train_rows >= 2, f"train_rows={self.train_rows}: at least 2")
        check(self.dev_rows >= 2, f"dev_rows={self.dev_rows}: at least 2")
