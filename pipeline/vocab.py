"""`python -m pipeline.vocab +corpus=NAME`: the WordPiece vocabulary, learnt or existing.

Learning is deterministic. The sample is a function of the corpus and the seed. The library breaks
ties between counts by token id, and assigns the ids of letters in hash-table order; all letters and
their continuation forms are therefore passed as special tokens, which fixes their ids.
"""

import heapq
import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline import readers
from pipeline.cli import entry_point
from pipeline.common import counter_rng
from pipeline.common.batching import batches
from pipeline.config import VocabConfig
from pipeline.console.bars import Bar
from pipeline.console.formatting import WARNING, pluralize
from pipeline.errors import InputError, named
from pipeline.readers.io import compressed
from pipeline.readers.io.compressed import TARS
from pipeline.records.manifest import Result
from pipeline.stages import stage
from pipeline.storage import places
from pipeline.storage.atomic import write_text
from pipeline.text import clean
from pipeline.tokenization import alphabet, existing_vocabulary, normalization, tokenizer_folder, wordpiece
from pipeline.tokenization.learning import learn_entries
from pipeline.tokenization.pretokenize import CHUNK
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece

ACCENTED = 0.05  # share of characters that lose accents, above which a vocabulary is doubtful; German has 0.02
PIECE = 64 * 2**10  # minimum characters of a piece, except for the last one of a split
_BETWEEN = "\0"  # separates the documents of a piece; does not occur in cleaned text


Piece = tuple[int, int]  # its offset and size in bytes


class TextSample:
    """Cleaned documents, possibly truncated, in corpus order: in a file, for several passes in constant memory.

    Texts are kept in pieces: consecutive documents, or one long document. Most splits contribute their
    first pieces. A compressed file is one split of any size: it is read to its end and contributes the
    pieces with the smallest keyed random numbers.
    """

    def __init__(self, folder: Path | None = None):
        """Create the temporary file in `folder`; None: the system's temporary folder."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (lives as long as this)
        self._pieces: list[Piece] = []
        self.bytes = 0
        self.splits = 0  # sampled

    def __iter__(self) -> Iterator[str]:
        for start, size in self._pieces:
            self._file.seek(start)
            # Drops a character cut in two at the end.
            text = self._file.read(size).decode("utf-8", "ignore")
            yield from filter(None, text.split(_BETWEEN))

    def add_beginning(self, texts: Iterable[str], most: int) -> int:
        """Add the first `most` bytes of raw texts and return the number added."""
        before = self.bytes
        for piece in batches(texts, PIECE):
            start, size = self._write(piece)
            missing = most - (self.bytes - before)
            self._keep([(start, min(size, missing))])
            if size >= missing:
                break
        return self.bytes - before

    def add_drawn(self, texts: Iterable[str], most: int, key: np.uint64) -> int:
        """Add `most` bytes drawn from all raw texts and return the number added."""
        kept: list[tuple[float, int, int]] = []  # heap of negated random numbers: largest first
        total = 0
        for number, piece in enumerate(batches(texts, PIECE)):
            drawn = -float(counter_rng.uniform(key, number))
            if total >= most and drawn < kept[0][0]:
                continue
            start, size = self._write(piece)
            heapq.heappush(kept, (drawn, start, size))
            total += size
            while total - kept[0][2] >= most:
                total -= heapq.heappop(kept)[2]
        if total > most:
            drawn, start, size = kept[0]
            kept[0] = drawn, start, size - (total - most)
        self._keep(sorted((start, size) for _, start, size in kept))
        return min(total, most)

    def _write(self, texts: list[str]) -> Piece:
        """Append a piece; return its offset and size in bytes."""
        cleaned = filter(None, map(clean.clean, texts))
        start = self._file.seek(0, 2)
        return start, self._file.write(_BETWEEN.join(cleaned).encode())

    def _keep(self, pieces: list[Piece]) -> None:
        self._pieces += (piece for piece in pieces if piece[1])
        self.bytes += sum(size for _, size in pieces)


def is_uncut(split: readers.FileRange) -> bool:
    """Return whether the split is a whole file that its reader does not cut: compressed, a tar archive, or large.

    False for unreadable files; their reader reports the error.
    """
    try:
        file = places.at(split.path)
        if file.is_dir() or split.start > 0 or split.end < file.stat().st_size:
            return False
        large = split.end - split.start > SPLIT_BYTES
        return large or split.path.lower().endswith(TARS) or compressed.CompressedFile(file).kind != "plain"
    except (OSError, InputError):
        return False


SPLIT_BYTES = 16 * 2**20  # of a file range; each gives a part of the sample
LEAST_BYTES = 2**20  # of text from one file range, as opening one takes time


def sample_corpus(config: VocabConfig, folder: Path | None = None) -> TextSample:
    """Return about `sample_bytes` of the corpus, stored in `folder`: a part of each file range.

    File ranges are visited in a keyed order. Each gives an equal share of the missing bytes, but at
    least a megabyte: a small corpus is read whole; some ranges of a large one are never opened.

    Raises:
        InputError: the corpus has no text.
    """
    reader = readers.open_corpus(config.corpus, config.source)
    splits = reader.splits(SPLIT_BYTES)
    key = counter_rng.key(config.seed, "vocab")
    sample, tally = TextSample(folder), readers.ReadLog(config.corpus.on_error)
    read = 0

    def texts(split: readers.FileRange) -> Iterator[str]:
        nonlocal read
        for document in reader.read(split, tally):
            read += 1
            yield document.text

    with Bar("sample", config.sample_bytes, "B") as bar:
        for visited, index in enumerate(counter_rng.permutation(key, len(splits))):
            missing = config.sample_bytes - sample.bytes
            share = min(missing, max(missing // (len(splits) - visited), LEAST_BYTES))
            if share <= 0:
                break
            sample.splits += 1
            if is_uncut(splits[index]):
                drawn = counter_rng.key(config.seed, "vocab", int(index))
                bar.update(sample.add_drawn(texts(splits[index]), share, drawn))
            else:
                bar.update(sample.add_beginning(texts(splits[index]), share))
    if not sample.bytes:
        raise no_text_error(config.corpus.name, splits, read, tally)
    return sample


def no_text_error(name: str, splits: list[readers.FileRange], read: int, tally: readers.ReadLog) -> InputError:
    """Return the error for a corpus without text, with its files and skipped documents."""
    files = list(dict.fromkeys(split.path for split in splits)) or ["no file"]
    more = f" and {pluralize(len(files) - 1, 'other file')}" if len(files) > 1 else ""
    passed = readers.passed_over(tally)
    skipped = f" (skipped: {passed})" if passed else ""
    return InputError(
        f"no text to learn a vocabulary from in {pluralize(read, 'document')} of {files[0]}{more}{skipped}",
        "corpus",
        name,
    )


def measure(sample: TextSample, tokenizer: WordPiece) -> dict[str, Any]:
    """Return statistics of the vocabulary on the text that it was learnt from."""
    documents = size = words = tokens = 0
    for texts in batches(sample, CHUNK):
        ids, _ = tokenizer.encode(texts)
        documents += len(texts)
        size += sum(len(text.encode()) for text in texts)
        words += sum(len(text.split()) for text in texts)
        tokens += len(ids)
    characters = tokenizer.coverage.characters
    return {
        "documents": documents,
        "bytes": size,
        "splits": sample.splits,
        "characters": characters,
        "words": words,
        "tokens": tokens,
        "unknown_share": tokenizer.coverage.share,
        "tokens_per_word": tokens / max(words, 1),
        "characters_per_token": characters / max(tokens, 1),
    }


def extend_vocabulary(config: VocabConfig, source: str, folder: Path | None = None) -> tuple[str, int, int]:
    """Return a tokenizer.json with the entries of `additions` and then learnt ones appended, and the number of each.

    Existing ids do not change, so that a model's embeddings only have to be extended. The sample to
    learn from is stored in `folder` meanwhile.

    Raises:
        InputError: the tokenizer is not WordPiece, or splits an addition.
    """
    spec = json.loads(Tokenizer.from_str(source).to_str())
    if (kind := spec["model"]["type"]) != "WordPiece":
        raise InputError(
            f"is a {kind} tokenizer; entries can only be added to WordPiece; omit learn= and additions=",
            "existing",
            config.existing,
        )
    known = dict.fromkeys(WordPiece(source).vocab)
    added, learnt = list[str](), list[str]()
    if config.additions is not None:
        listed = wordpiece.read_vocab(Path(config.additions))
        added = [word for word in listed if word not in known]
        for word, tokens in find_altered(append_entries(spec, added), added).items():
            raise InputError(
                f"{word!r} can never match, as the tokenizer turns it into {' '.join(tokens)}; add the normalized form",
                "additions",
                path=config.additions,
                line=listed.index(word) + 1,
            )
        known |= dict.fromkeys(added)
    if config.learn:
        size = max(len(known) + config.learn, 100)
        learnt = [word for word in learn_entries(sample_corpus(config, folder), source, size) if word not in known]
        lost = find_altered(append_entries(spec, added + learnt), learnt)
        learnt = [word for word in learnt if word not in lost][: config.learn]
    return str(append_entries(spec, added + learnt).to_str(pretty=True)), len(added), len(learnt)


def append_entries(spec: dict[str, Any], added: list[str]) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json with entries appended."""
    ids = Tokenizer.from_str(json.dumps(spec)).get_vocab(with_added_tokens=True)
    first = max(ids.values()) + 1
    entries = dict(zip(added, range(first, first + len(added)), strict=True))
    model = spec["model"] | {"vocab": spec["model"]["vocab"] | entries}
    return Tokenizer.from_str(json.dumps(spec | {"model": model}))


def find_altered(tokenizer: Tokenizer, words: list[str]) -> dict[str, list[str]]:
    """Return the entries that the tokenizer splits or changes, with the resulting tokens.

    Continuation entries (`##`) are not checked.
    """
    asked = [word for word in words if not word.startswith("##")]
    tokens = [each.tokens for each in tokenizer.encode_batch(asked, add_special_tokens=False)]
    return {word: parts for word, parts in zip(asked, tokens, strict=True) if parts != [word]}


def take_existing(config: VocabConfig, place: str, out: Path) -> tuple[str, int, str]:
    """Return the tokenizer.json of an existing vocabulary, the number of entries added to it, and what to say of it."""
    source = existing_vocabulary.load(config)
    summary, added, learnt = f"{WordPiece(source).size:,} entries from {place}", 0, 0
    if config.additions is not None or config.learn:
        source, added, learnt = extend_vocabulary(config, source, out)
    if added + learnt:
        summary += f", {added + learnt:,} added"
    else:
        tokenizer_folder.keep_files(Path(place), out)
    if learnt < config.learn:
        summary += f"; {learnt:,} of learn={config.learn:,}, the sample has no more"
    return source, added + learnt, summary


def make(config: VocabConfig, out: Path) -> Result:
    """Write vocab.txt and tokenizer.json into `out`."""
    figures: dict[str, Any] = {"asked": config.size}
    sample: Iterable[str] = ()
    if config.existing is not None:
        source, figures["added"], summary = take_existing(config, config.existing, out)
        tokenizer = WordPiece(source)
    else:
        sample = sample_corpus(config, out)
        options = (config.lowercase is not False, config.strip_accents, config.split_chinese)
        vocab = learn_entries(sample, wordpiece.build(list(SPECIAL), *options, new=True), config.size)
        source = wordpiece.build(vocab, *options, new=True)
        tokenizer = WordPiece(source)
        figures |= measure(sample, tokenizer)
        summary = (
            f"{tokenizer.size:,} entries from {figures['characters']:,} characters; "
            f"{figures['tokens_per_word']:.2f} tokens per word, {tokenizer.coverage}"
        )
        if tokenizer.size < config.size:
            summary += f"; fewer than size={config.size:,}, the sample has no more"
    # An entry of other kinds may be a line break, and an unused id has no line.
    if tokenizer.is_wordpiece and "" not in tokenizer.vocab:
        write_text(out / "vocab.txt", "".join(f"{entry}\n" for entry in tokenizer.vocab))
    write_text(out / "tokenizer.json", source)
    treated = normalization.of_tokenizer(source)
    summary += f"; {treatment(treated)}"
    if tokenizer.uncached:
        summary += f"; encoded by the tokenizers library, slower than ours ({tokenizer.uncached})"
    if warning := tokenizer.coverage.warning:
        summary += f"{WARNING}{warning}"
    if treated["strip_accents"] and (accented := alphabet.accented_share(sample)) > ACCENTED:
        summary += (
            f"{WARNING}{accented:.0%} of the characters lose an accent or a vowel sign, which makes words equal; "
            f"{named('strip_accents')}=false keeps them"
        )
    figures |= {
        "size": tokenizer.size,
        "sha256": tokenizer.sha256,
        "lowercase": treated["lowercase"],
        "existing": config.existing,
    }
    return Result(summary=summary, figures=figures)


def treatment(treated: normalization.Options) -> str:
    """Describe the treatment of capitals and accents, which distinguish words in some languages."""
    if not treated["lowercase"] and not treated["strip_accents"]:
        return "capitals and accents kept"
    capitals = "lowercased" if treated["lowercase"] else "capitals kept"
    return f"{capitals}, accents {'stripped' if treated['strip_accents'] else 'kept'}"


def main() -> None:
    """Run the command."""
    entry_point.run("vocab", VocabConfig, lambda config: stage.run("vocab", config, make))


if __name__ == "__main__":
    main()
