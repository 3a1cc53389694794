"""`python -m pipeline.vocab +corpus=NAME`: a WordPiece vocabulary from a corpus, or an own one.

The library's training breaks ties by hash order, differently each time. With the whole alphabet
given as special tokens its result is the same from run to run, byte for byte.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, trainers
from tqdm import tqdm

from pipeline import corpora, entry, stage
from pipeline.config import VocabConfig
from pipeline.errors import InputError
from pipeline.text.clean import clean
from pipeline.text.wordpiece import SPECIAL_TOKENS, WordPiece, build_tokenizer, load_tokenizer

SPLIT_BYTES = 4 * 2**20  # small parts, so that the sample is spread over the whole corpus
CHARACTERS = 1000  # of the alphabet at most, the most frequent ones, as the published code has it


def sample(config: VocabConfig) -> Iterator[str]:
    """Lines of text from all parts of the corpus, an equal share of bytes from each."""
    reader = corpora.open_corpus(config.corpus, config.source)
    splits = reader.splits(SPLIT_BYTES)
    left = config.sample_bytes
    for done, split in enumerate(tqdm(splits, desc="vocab", unit="split", disable=None)):
        share = left // (len(splits) - done)
        for document in reader.read(split, Counter()):
            if share <= 0:
                break
            text = clean(document.text)
            size = len(text.encode())
            share, left = share - size, left - size
            yield text


def alphabet(texts: list[str]) -> list[str]:
    """The most frequent characters of normalized texts, sorted."""
    counts = Counter[str]()
    for text in texts:
        counts.update(text)
    ranked = sorted(
        (c for c in counts if not c.isspace() and not unicodedata.category(c).startswith("C")),
        key=lambda character: (-counts[character], character),
    )
    return sorted(ranked[:CHARACTERS])


def learn(texts: list[str], config: VocabConfig) -> list[str]:
    """The vocabulary of at most `config.size` entries, special tokens first."""
    tokenizer = build_tokenizer(
        list(SPECIAL_TOKENS), lowercase=config.lowercase,
        strip_accents=config.strip_accents, split_chinese=config.split_chinese,
    )  # fmt: skip
    normal = [tokenizer.normalizer.normalize_str(text) for text in texts]
    letters = alphabet(normal)
    fixed = [*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.size, special_tokens=fixed[: config.size], limit_alphabet=len(fixed),
        continuing_subword_prefix="##", show_progress=False,
    )  # fmt: skip
    learner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.pre_tokenizer = tokenizer.pre_tokenizer
    learner.train_from_iterator(normal, trainer)
    found = learner.get_vocab()
    return sorted(found, key=lambda token: found[token])


def make(config: VocabConfig, out: Path) -> stage.Result:
    """Write vocab.txt and tokenizer.json into `out`."""
    if config.existing is not None:
        tokenizer = load_tokenizer(Path(config.existing))
        figures: dict[str, Any] = {"existing": config.existing}
    else:
        texts = list(sample(config))
        if not any(texts):
            raise InputError(f"corpus {config.corpus.name}: not a word in it to learn from")
        vocab = learn(texts, config)
        tokenizer = build_tokenizer(
            vocab, lowercase=config.lowercase,
            strip_accents=config.strip_accents, split_chinese=config.split_chinese,
        )  # fmt: skip
        figures = {"documents": len(texts), "characters": sum(map(len, texts))}
    tokenizer.save(str(out / "tokenizer.json"), pretty=True)
    wordpiece = WordPiece(tokenizer)
    stage.write_text(out / "vocab.txt", "".join(token + "\n" for token in wordpiece.vocab))
    few = f" ({config.size:,} were asked for)" if wordpiece.size < config.size else ""
    source = "as given" if config.existing else f"from {figures['characters']:,} characters"
    return stage.Result(
        summary=f"{wordpiece.size:,} entries{few} {source}",
        figures={**figures, "size": wordpiece.size, "tokenizer": wordpiece.sha256},
    )


def main() -> None:
    """The command."""
    entry.run("vocab", VocabConfig, lambda config: stage.run("vocab", config, make))


if __name__ == "__main__":
    main()
