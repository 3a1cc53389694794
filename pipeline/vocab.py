"""`python -m pipeline.vocab +corpus=NAME`: the WordPiece vocabulary, learnt or taken as it is.

Learning is deterministic. The sample is a function of the corpus and the seed; the library learns
by counts, but breaks ties by ids, which it hands to letters in the order of a hash table: so it is
given all letters, and their forms inside words, beforehand.
"""

import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, models
from tokenizers.trainers import WordPieceTrainer
from tqdm import tqdm

from pipeline import readers
from pipeline.cli import entry_point
from pipeline.common import counter_rng
from pipeline.common.atomic import write_text
from pipeline.common.errors import InputError
from pipeline.common.formatting import pluralize
from pipeline.common.manifest import Result
from pipeline.config import VocabConfig
from pipeline.stages import stage
from pipeline.text import clean
from pipeline.tokenization import wordpiece
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece

SPLIT_BYTES = 16 * 2**20  # of a corpus's files: a sample is taken at the beginning of each split
LEAST_BYTES = 2**20  # of text from one split: opening a split costs time

# Letters are kept, all of ASCII and then by frequency, until they make up this share of the text,
# in at most half of all entries. A word with rarer ones (in a foreign script) becomes [UNK].
COVERAGE = 0.99995

MINIMUM_COUNT = 2  # of a pair of word pieces that becomes an entry


@dataclass
class Sample:
    """Text to learn from."""

    texts: list[str] = field(default_factory=list)  # cleaned documents, perhaps their beginnings
    bytes: int = 0  # in UTF-8
    splits: int = 0  # that were looked into


def sample_corpus(config: VocabConfig) -> Sample:
    """A sample of about `sample_bytes` of the corpus: the beginnings of its splits.

    Splits are visited in a keyed order. Each gives an equal share of what is still wanted, but at
    least a megabyte: a small corpus is read whole, of a large one some splits are never opened.

    Raises:
        InputError: the corpus has no text.
    """
    reader = readers.open_corpus(config.corpus, config.source)
    splits = reader.splits(SPLIT_BYTES)
    order = counter_rng.permutation(counter_rng.key(config.seed, "vocab"), len(splits))
    sample, read, tally = Sample(), 0, readers.SkipCounts(config.corpus.on_error)
    bar = tqdm(total=config.sample_bytes, unit="B", unit_scale=True, desc="sample", disable=None)
    with bar:
        for visited, index in enumerate(order):
            missing = config.sample_bytes - sample.bytes
            share = min(missing, max(missing // (len(splits) - visited), LEAST_BYTES))
            if share <= 0:
                break
            sample.splits += 1
            for document in reader.read(splits[index], tally):
                read += 1
                text, size = truncate_utf8(clean.clean(document.text), share)
                if text:
                    sample.texts.append(text)
                sample.bytes += size
                share -= size
                bar.update(size)
                if share <= 0:
                    break
    if not sample.texts:
        raise no_text_error(config.corpus.name, splits, read, tally)
    return sample


def no_text_error(
    name: str, splits: list[readers.FileRange], read: int, tally: readers.SkipCounts
) -> InputError:
    """What was looked into, and what was passed over there."""
    files = list(dict.fromkeys(split.path for split in splits)) or ["no file"]
    more = f" and {pluralize(len(files) - 1, 'other file')}" if len(files) > 1 else ""
    passed = ", ".join(f"{number:,} {reason}" for reason, number in tally.items())
    return InputError(
        f"corpus {name}: no text to learn a vocabulary from in {pluralize(read, 'document')} of "
        f"{files[0]}{more}" + (f" (passed over: {passed})" if passed else "")
    )


def truncate_utf8(text: str, most: int) -> tuple[str, int]:
    """At most the first `most` bytes of the text, and their number."""
    raw = text.encode()
    if len(raw) > most:
        raw = raw[:most]
        text = raw.decode("utf-8", "ignore")
    return text, len(raw)


def count_letters(texts: list[str], tokenizer: Tokenizer) -> dict[str, int]:
    """How often each character stands in the words that the tokenizer makes of the texts."""
    counts: npt.NDArray[np.int64] = np.zeros(sys.maxunicode + 1, np.int64)
    for text in texts:
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        part = np.bincount(codes)
        counts[: len(part)] += part
    letters: dict[str, int] = {}
    for code in np.flatnonzero(counts):
        for letter in tokenizer.normalizer.normalize_str(chr(code)):  # it knows no neighbours
            if not letter.isspace():
                letters[letter] = letters.get(letter, 0) + int(counts[code])
    return letters


def alphabet(
    letters: dict[str, int], tokenizer: Tokenizer, size: int
) -> tuple[list[str], list[str]]:
    """The letters to keep, sorted, and those of them that can stand inside a word."""
    ranked = sorted(letters, key=lambda letter: (letter > "~", -letters[letter], letter))
    total, seen, room = sum(letters.values()), 0, size // 2
    kept, inside = [], []
    for letter in ranked:
        between = tokenizer.normalizer.normalize_str(f"a{letter}a")
        joins = len(tokenizer.pre_tokenizer.pre_tokenize_str(between)) == 1
        room -= 1 + joins
        if room < 0 or (letter > "~" and seen >= COVERAGE * total):
            break
        seen += letters[letter]
        kept.append(letter)
        if joins:
            inside.append(letter)
    return sorted(kept), sorted(inside)


def learn(sample: Sample, config: VocabConfig) -> list[str]:
    """The entries of a new vocabulary: special tokens, letters, then pieces as they were learnt."""
    lowercase = config.lowercase is not False
    options = (lowercase, config.strip_accents, config.split_chinese)
    bert = Tokenizer.from_str(wordpiece.build(list(SPECIAL), *options))
    # Without added tokens: a "[MASK]" in the text would be taken for one word.
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = bert.normalizer, bert.pre_tokenizer
    letters = count_letters(sample.texts, tokenizer)
    kept, inside = alphabet(letters, tokenizer, config.size)
    trainer = WordPieceTrainer(
        vocab_size=config.size,
        min_frequency=MINIMUM_COUNT,
        special_tokens=[*SPECIAL, *kept, *(f"##{letter}" for letter in inside)],
        initial_alphabet=kept,
        limit_alphabet=len(kept),
        show_progress=sys.stderr.isatty(),
    )
    lines = (line for text in sample.texts for line in text.split("\n"))
    tokenizer.train_from_iterator(lines, trainer)
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    return sorted(ids, key=lambda entry: ids[entry])


def measure(sample: Sample, tokenizer: WordPiece) -> dict[str, Any]:
    """How well the vocabulary fits the text that it was learnt from."""
    ids, _ = tokenizer.encode(sample.texts)
    words = sum(len(text.split()) for text in sample.texts)
    characters = sum(map(len, sample.texts))
    return {
        "documents": len(sample.texts),
        "bytes": sample.bytes,
        "splits": sample.splits,
        "characters": characters,
        "words": words,
        "tokens": len(ids),
        "unknown_share": float(np.mean(ids == tokenizer.unk)) if len(ids) else 0.0,
        "tokens_per_word": len(ids) / words,
        "characters_per_token": characters / max(len(ids), 1),
    }


def load_existing(config: VocabConfig, path: Path) -> tuple[str, str]:
    """The texts of vocab.txt and tokenizer.json of an existing vocabulary.

    A tokenizer.json says itself how text is normalized; to a vocab.txt the configuration does,
    and `lowercase=null` asks its entries.

    Raises:
        InputError: it is not there, or no vocabulary of BERT's kind.
    """
    if path.is_dir() or path.suffix == ".json":
        source = wordpiece.read(path)
        return "".join(f"{entry}\n" for entry in WordPiece(source).vocab), source
    vocab = wordpiece.read_vocab(path)
    wordpiece.check_special(vocab, str(path))
    source = wordpiece.build(vocab, config.lowercase, config.strip_accents, config.split_chinese)
    return "".join(f"{entry}\n" for entry in vocab), source


def extend_vocabulary(config: VocabConfig, source: str) -> str:
    """Return a tokenizer.json with the entries of `additions`, then those learnt, after its own.

    Ids stay what they are, so a model that knows the first ones only has to grow.

    Raises:
        InputError: it is no WordPiece tokenizer, or an addition no text that it keeps whole.
    """
    spec = json.loads(Tokenizer.from_str(source).to_str())
    if (kind := spec["model"]["type"]) != "WordPiece":
        raise InputError(
            f"existing={config.existing}: a {kind} tokenizer; entries can be added only to "
            "WordPiece's", key="existing", path=config.existing,
        )  # fmt: skip
    known = dict.fromkeys(WordPiece(source).vocab)
    added: list[str] = []
    if config.additions is not None:
        listed = wordpiece.read_vocab(Path(config.additions))
        added = [word for word in listed if word not in known]
        for word, tokens in cut_up(tokenizer_with(spec, added), added).items():
            raise InputError(
                f"{config.additions}: {word!r} can never be found, as the tokenizer makes "
                f"{' '.join(tokens)} of that text; write it as the tokenizer leaves it",
                key="additions", path=config.additions, line=listed.index(word) + 1,
            )  # fmt: skip
        known |= dict.fromkeys(added)
    if config.learn:
        learnt = learn(sample_corpus(config), like_existing(config, spec, len(known)))
        learnt = [word for word in learnt if word not in known]
        lost = cut_up(tokenizer_with(spec, added + learnt), learnt)
        added += [word for word in learnt if word not in lost][: config.learn]
    return str(tokenizer_with(spec, added).to_str(pretty=True))


def like_existing(config: VocabConfig, spec: dict[str, Any], entries: int) -> VocabConfig:
    """Return the configuration that learns words as the tokenizer `spec` normalizes them."""
    normalizer = spec["normalizer"] or {}
    return replace(
        config, size=max(entries + config.learn, 100), lowercase=normalizer.get("lowercase"),
        strip_accents=normalizer.get("strip_accents"),
        split_chinese=normalizer.get("handle_chinese_chars", config.split_chinese),
    )  # fmt: skip


def tokenizer_with(spec: dict[str, Any], added: list[str]) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json with entries after its own."""
    ids = Tokenizer.from_str(json.dumps(spec)).get_vocab(with_added_tokens=True)
    first = max(ids.values()) + 1
    entries = dict(zip(added, range(first, first + len(added)), strict=True))
    model = spec["model"] | {"vocab": spec["model"]["vocab"] | entries}
    return Tokenizer.from_str(json.dumps(spec | {"model": model}))


def cut_up(tokenizer: Tokenizer, words: list[str]) -> dict[str, list[str]]:
    """Return those of the entries that the tokenizer never gives, with what it makes of them.

    Entries that go on with a word are not asked about.
    """
    asked = [word for word in words if not word.startswith("##")]
    found = tokenizer.encode_batch(asked, add_special_tokens=False)
    tokens = {word: list(each.tokens) for word, each in zip(asked, found, strict=True)}
    return {word: parts for word, parts in tokens.items() if parts != [word]}


def make(config: VocabConfig, out: Path) -> Result:
    """Write vocab.txt and tokenizer.json into `out`."""
    figures: dict[str, Any] = {"asked": config.size}
    if config.existing is not None:
        entries, source = load_existing(config, Path(config.existing))
        before = entries.count("\n")
        if config.additions is not None or config.learn:
            source = extend_vocabulary(config, source)
            entries = "".join(f"{entry}\n" for entry in WordPiece(source).vocab)
        tokenizer = WordPiece(source)
        summary = f"{before:,} entries, as {config.existing} has them"
        figures["added"] = tokenizer.size - before
        if figures["added"]:
            summary += f", and {figures['added']:,} after them"
    else:
        sample = sample_corpus(config)
        vocab = learn(sample, config)
        entries = "".join(f"{entry}\n" for entry in vocab)
        source = wordpiece.build(
            vocab, config.lowercase is not False, config.strip_accents, config.split_chinese
        )
        tokenizer = WordPiece(source)
        figures |= measure(sample, tokenizer)
        summary = (
            f"{tokenizer.size:,} entries from {figures['characters']:,} characters; "
            f"{figures['tokens_per_word']:.2f} tokens a word, "
            f"{figures['unknown_share']:.3%} unknown"
        )
        if tokenizer.size < config.size:
            summary += f"; fewer than size={config.size:,}, as the text holds no more"
    write_text(out / "vocab.txt", entries)
    write_text(out / "tokenizer.json", source)
    normalizer = json.loads(source)["normalizer"] or {}
    summary += f"; {treatment(normalizer)}"
    figures |= {
        "size": tokenizer.size,
        "sha256": tokenizer.sha256,
        "lowercase": normalizer.get("lowercase"),
        "existing": config.existing,
    }
    return Result(summary=summary, figures=figures)


def treatment(normalizer: dict[str, Any]) -> str:
    """What becomes of capitals and accents: without accents some languages lose their words."""
    lowercase = bool(normalizer.get("lowercase"))
    stripped = normalizer.get("strip_accents")
    accents = "stripped" if (lowercase if stripped is None else stripped) else "kept"
    if not lowercase and accents == "kept":
        return "capitals and accents kept"
    return f"{'lowercased' if lowercase else 'capitals kept'}, accents {accents}"


def main() -> None:
    """The command."""
    entry_point.run("vocab", VocabConfig, lambda config: stage.run("vocab", config, make))


if __name__ == "__main__":
    main()
