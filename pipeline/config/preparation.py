"""The schemas from text to shards: `download`, `vocab`, `prepare`, `tasks`, `pairs`, and what they share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pipeline.common import language_codes
from pipeline.common.schema import Section, StageConfig, check, group, input_path, option, runtime_option
from pipeline.console.formatting import byte_count
from pipeline.errors import ConfigError, named

if TYPE_CHECKING:
    from omegaconf import DictConfig

ENGINES = ("local", "prism", "flink", "spark", "dataflow")


@dataclass(kw_only=True)
class DownloadFile:
    """One file with an address, and the publisher's list of checksums that names it."""

    url: str = option(help="Address of the file.")
    sums: str | None = option(None, "Address of a file of lines `DIGEST  NAME`.")
    digest: str | None = option(None, "The digest, instead of `sums`: md5, sha1 or sha256, by its length.")


@dataclass(kw_only=True)
class CorpusConfig(Section, key="corpus"):
    """Where text comes from and how it is read."""

    _only = dict.fromkeys(["limit_seed"], ("limit",))

    name: str = option(help="Name of the corpus and of its download folder in work/.")
    reader: str = option(help="Module of pipeline.readers that reads the files.")
    language: str = option(
        "en",
        "Language code as in Wikipedia's addresses (vi, ceb, simple). It sets the rules for ends "
        "of sentences (`sentencex`, English where it has none), the dump and likely encodings.",
    )
    path: str | None = option(None, "File, folder or glob; null: the files that `download` made.")
    files: list[DownloadFile] = option([], "Files that `download` fetches.")
    subset: str | None = option(
        None, "Part of a published data set, where `path` in the corpus's file names it: nld_Latn."
    )
    limit: str | None = option(
        None,
        "Bytes of files to read, as stored: 500MB, 20GB; null: all. Files are taken in a random "
        "order, a function of their names and `limit_seed`, the last one in part.",
    )
    limit_seed: int = option(0, "Seed of the order of files, with `limit`.")
    encoding: str | None = option(None, "Encoding of text files; null: detected per file.")
    mend: bool = option(False, "Repair text that was once decoded with the wrong encoding, using ftfy.")
    on_error: str = option(
        "fail", "What to do with a broken document; skip counts and names it.", choices=("fail", "skip")
    )
    parts: dict[str, Any] = option({}, "Corpora of a mixture, each with a weight.")
    options: dict[str, Any] = option({}, "Options of the reader; of rows also where, such as 'date >= 2026-09'.")

    def check_rules(self) -> None:
        """Check the language and the encoding."""
        self.require(
            language_codes.is_code(self.language),
            "not a language code; use the one in Wikipedia's addresses: vi, de, ceb, simple",
            "language",
        )
        old, new = f"/{self.language}wiki", f"/{language_codes.dump_name(self.language)}"
        for file in self.files if self.path is None else ():  # else none is read, and fingerprints stay
            file.url, file.sums = file.url.replace(old, new), file.sums and file.sums.replace(old, new)
        check(
            self.subset != "",
            f"is required for {self.name.rstrip('-')}; add corpus.subset=NAME, the folder of the language: nld_Latn",
            "corpus.subset",
        )
        cure = f"selects nothing of corpus.path={self.path}; leave it out"
        self.require((self.subset or "") in f"{self.path}", cure, "subset")
        if self.limit is not None:
            self.require(self.limit_bytes > 0, "must be a number of bytes above 0, such as 500MB or 20GB", "limit")
            self.require(
                self.reader not in ("mix", "sample"),
                f"reader {self.reader} does not read files of its own; limit the corpora of a mix with "
                "corpus.parts.NAME.limit",
                "limit",
            )
        if self.encoding is not None:
            try:
                " ".encode(self.encoding)  # Python looks up codecs too that are not for text
            except (LookupError, UnicodeError) as error:  # of idna, undefined: no text's either
                raise ConfigError(
                    "encoding not found; use a name that Python knows, such as utf-8 or cp1252",
                    "corpus.encoding",
                    self.encoding,
                ) from error

    def with_places(self, change: Callable[[str], str]) -> "CorpusConfig":
        """Return the corpus with its path, and those of its parts, changed."""
        parts = {
            name: {**part, "path": change(str(part["path"]))}
            if isinstance(part, Mapping) and part.get("path")
            else part
            for name, part in self.parts.items()
        }
        return replace(self, path=self.path and change(self.path), parts=parts)

    @property
    def limit_bytes(self) -> int:
        """`limit` as a number; 0 if it is not one."""
        return byte_count(self.limit)


@dataclass(kw_only=True)
class FiltersConfig(Section, key="filters"):
    """Which documents `prepare` leaves out, in addition to empty, short and equal ones."""

    _only = dict.fromkeys(("shingle", "permutations"), ("near_duplicates",)) | {"ngram": ("decontaminate",)}

    maximum_characters: int | None = option(None, "Longest document, in characters; null: any.", at_least=1)
    maximum_non_letters: float | None = option(
        None, "Largest share of characters that are not letters, spaces excluded; null: any.", at_least=0, at_most=1
    )
    banned: list[str] = option([], "Regular expressions that no document may match.")
    banned_file: str | None = input_path(None, "File of such expressions, one per line.")
    remove: str | None = input_path(
        None, "File of documents to leave out, one per line: the id that _dropped.feather has, or a text's hash."
    )
    decontaminate: list[str] = input_path(
        [], "Evaluation files, folders of them or globs, whose text no document may contain."
    )
    ngram: int = option(13, "Words in a row that a document may not share with an evaluation file.", at_least=1)
    near_duplicates: float | None = option(
        None, "Jaccard similarity from which the second of two documents is left out; null: never.", above=0, at_most=1
    )
    shingle: int = option(5, "Words in a row that are compared for near duplicates.", at_least=1)
    permutations: int = option(128, "Size of a MinHash signature; larger is more exact and slower.", at_least=1)


@dataclass(kw_only=True)
class RunnerConfig(Section, key="runner"):
    """The engine that runs the Beam graph."""

    name: str = option("local", "Engine.", choices=ENGINES)
    workers: int = option(1, "Processes of local; of flink and spark, next to each pool.", at_least=1)
    start_timeout: float = option(
        50.0, "Seconds until the first worker has to start once the service runs the job; not for local.", above=0
    )
    retries: int = option(
        2, "Times that a service gets the job again after one of its processes died; not for local.", at_least=0
    )
    exchange: str | None = option(
        None,
        "What carries documents between the phases: files in the folder of `out`, or the engine; "
        "null: engine with flink, spark and prism, files with all others.",
        choices=("files", "engine"),
    )
    task_bytes: int = option(
        2 * 2**20,
        "Bytes of text of a task, at least: it reads several splits, and writes several shards, "
        "where these are smaller.",
        at_least=1,
    )
    options: dict[str, Any] = option({}, "Further Beam pipeline options.")

    @property
    def by_engine(self) -> bool:
        """Return whether the engine carries documents between the phases, instead of files."""
        if self.exchange is None:
            return self.name in ("flink", "spark", "prism")  # those where it was tested
        return self.exchange == "engine"


@dataclass(kw_only=True)
class DownloadConfig(StageConfig):
    """`python -m pipeline.download`."""

    corpus: CorpusConfig = option()
    timeout: float = runtime_option(60.0, "Seconds without data before an attempt fails.", above=0)
    tries: int = runtime_option(8, "Attempts per file; each resumes where the last one failed.", at_least=1)


@dataclass(kw_only=True)
class ReadingConfig(StageConfig):
    """The options of every stage that reads a corpus."""

    _yields = dict.fromkeys(["corpus.path"], ("source",))

    corpus: CorpusConfig = option()
    source: str = input_path(help="Download folder, read if corpus.path is null.")


@dataclass(kw_only=True)
class VocabConfig(ReadingConfig):
    """`python -m pipeline.vocab`."""

    _only = {"size": ("existing", None), "learn": ("existing",)} | dict.fromkeys(("sample_bytes", "seed"), ("learn",))
    _yields = dict.fromkeys(["existing"], ("size",)) | ReadingConfig._yields

    existing: str | None = input_path(None, "Folder, vocab.txt or tokenizer.json to use instead of learning one.")
    additions: str | None = input_path(None, "File of entries, one per line, to append to the existing ones.")
    learn: int = option(0, "Entries to learn from the corpus and append to the existing ones.", at_least=0)
    size: int = option(30522, "Entries of a learnt vocabulary.", at_least=100)
    lowercase: bool | None = option(
        None,
        "Convert to lower case, which strips accents too unless strip_accents=false; null: true, "
        "or as the entries of an existing vocab.txt show.",
    )
    strip_accents: bool | None = option(None, "Strip accents: é becomes e, and so does ế; null: as lowercase.")
    split_chinese: bool = option(True, "Make each CJK character a word of its own.")
    sample_bytes: int = option(100_000_000, "Bytes of text to learn from, spread over the corpus.", at_least=1)
    seed: int = option(0, "Seed of the sample.")

    def check_rules(self) -> None:
        """Check that there is something to append to."""
        self.require(
            self.existing is not None or (self.additions is None and not self.learn),
            "additions and learn need a vocabulary to append to; set existing=FOLDER",
            "existing",
        )

    @staticmethod
    def complete(config: "DictConfig") -> None:
        """Do without a corpus where an existing vocabulary is used as it is."""
        from omegaconf import OmegaConf

        if OmegaConf.is_missing(config, "corpus") and config.existing and not config.learn:
            config.corpus = OmegaConf.structured(CorpusConfig(name="existing", reader="none"))


@dataclass(kw_only=True)
class PrepareConfig(ReadingConfig):
    """`python -m pipeline.prepare`."""

    _only = dict.fromkeys(["short_sequence_probability"], ("pairs", "nsp", "sop"))
    _only |= dict.fromkeys(["cross_documents"], ("pairs", "none"))

    filters: FiltersConfig = group(FiltersConfig)
    runner: RunnerConfig = runtime_option()
    vocab: str = input_path(help="Vocabulary folder.")
    pairs: str = option(
        "nsp",
        "Second part of a sequence: next or random (nsp), next or swapped (sop); none: sequences "
        "of full sentences without a second part.",
        choices=("nsp", "sop", "none"),
    )
    cross_documents: bool = option(True, "With pairs=none: let a sequence continue with the next document.")
    packing: str = option(
        "sequential",
        "With pairs=none: documents one after another, cut where a sequence is full (sequential); "
        "or each where it fits best, and cut only if longer than a sequence (best_fit).",
        choices=("sequential", "best_fit"),
    )
    sequence_length: int = option(128, "Tokens per sequence, with [CLS] and two [SEP].", at_least=8, at_most=65535)
    short_sequence_probability: float = option(0.1, "Share of shorter sequences, of nsp and sop.", at_least=0, below=1)
    duplicates: int = option(1, "Times that each document is divided into pairs, differently each time.", at_least=1)
    validation_share: float = option(
        0.01, "Share of documents for validation, by the hash of their text; 1: all.", at_least=0, at_most=1
    )
    words: str | None = option(
        None, "Word segmentation of text without spaces, stored for whole-word masks; null: none.", choices=("jieba",)
    )
    minimum_sentences: int = option(
        1, "Documents with fewer sentences count as short; with sop at least 2.", at_least=1
    )
    minimum_characters: int = option(50, "Documents with fewer characters count as short.", at_least=0)
    maximum_words: int | None = option(
        None, "Words, separated by white space, of all distinct documents; a larger corpus is refused.", at_least=1
    )
    split_bytes: int = option(64 * 2**20, "Bytes of an input file per reading task.", at_least=1)
    shard_bytes: int = option(64 * 2**20, "Bytes of input text per shard, about.", at_least=1)
    seed: int = option(0, "Seed of pairs and order.")
    keep_reading: bool = runtime_option(
        False, "Keep what was read next to `out`: after a change, only new files are read; half the bytes of the text."
    )
    dry_run: bool = runtime_option(
        False, "Print the plan with an estimate of time, disk and memory, and write nothing."
    )

    def check_rules(self) -> None:
        """Check that documents may share a sequence where they are to fit."""
        self.require(
            self.packing == "sequential" or (self.pairs == "none" and self.cross_documents),
            f"requires {named('pairs')}=none and {named('cross_documents')}=true; set both",
            "packing",
        )


@dataclass(kw_only=True)
class TasksConfig(ReadingConfig):
    """`python -m pipeline.tasks`: sample tasks in the GLUE layout, from held-out documents."""

    validation_share: float = option(
        0.01, "Share of held-out documents, the same as for `prepare`: training never sees them.", above=0, below=1
    )
    remove: str | None = input_path(None, "File of documents to leave out; in a run `filters.remove` of `prepare`.")
    train_rows: int = option(4000, "Training rows per task, at most.", at_least=2)
    dev_rows: int = option(1000, "Development rows per task, at most.", at_least=2)
    seed: int = option(0, "Seed of the rows.")


@dataclass(kw_only=True)
class PairsConfig(ReadingConfig):
    """`python -m pipeline.pairs`: pairs of texts of one's own, and a retrieval set of held-out documents."""

    pretrained: str = input_path(
        help="Model that is to be trained on pairs, in Hugging Face's format: texts are as long as it has learnt."
    )
    validation_share: float = option(
        0.01, "Share of held-out documents, the same as for `prepare`: the retrieval set's queries.", above=0, below=1
    )
    remove: str | None = input_path(None, "File of documents to leave out, as `filters.remove` of `prepare`.")
    kinds: list[str] = option(
        ["title", "heading"],
        "Kinds of pairs; the first is that of the retrieval set.",
        choices=("title", "heading", "neighbour"),
    )
    rows: int = option(100_000, "Pairs of each kind, at most.", at_least=1)
    queries: int = option(1000, "Queries of the retrieval set, at most.", at_least=1)
    per_document: int = option(3, "Pairs of a document by its headings, and by neighbours, at most.", at_least=1)
    longest: int = option(256, "Tokens of a text, at most; fewer where the model has learnt fewer.", at_least=16)
    seed: int = option(0, "Seed of the sample.")

    def check_rules(self) -> None:
        """Check that there is a kind."""
        self.require(0 < len(self.kinds) == len({*self.kinds}), "must be one or more, each once", "kinds")
