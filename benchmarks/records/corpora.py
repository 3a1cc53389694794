"""The texts of `benchmarks.records.run`: documents of a corpus in an order of their own, held-out ones apart.

    python -m benchmarks.records.corpora TEXTS/enwiki 300000,1000000 +corpus=wikiextractor corpus.path=FOLDER

Writes held_out.jsonl, and for each number of words a file with the first of the others. The order is that of hashes, so
the same corpus gives the same bytes, and fewer words are a part of more.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from pipeline.cli.composing import compose_config
from pipeline.config import PrepareConfig
from pipeline.preparation.documents import DocumentCounts, DocumentReader
from pipeline.shards.holdout import document_hash
from pipeline.storage.atomic import write_text

HELD_OUT, LEAST = 0.05, 10_000  # share of words, and words
PIECE = 1000  # words of a long document that go together: a book is not one draw
PART = 2**26  # bytes of a file range
Text = tuple[str, int]  # with its words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", help="several numbers, with commas")
    options, corpus = parser.parse_known_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    texts = sorted(documents(corpus), key=lambda text: document_hash(text[0]))
    most = max(LEAST, HELD_OUT * sum(words for _, words in texts))
    held_out = list(first(iter(texts), most))
    save(options.folder / "held_out.jsonl", held_out)
    pieces = sorted((piece for text in texts[len(held_out) :] for piece in cut(*text)), key=hash_of)
    for words in map(int, options.words.split(",")):
        save(options.folder / f"{words}.jsonl", list(first(iter(pieces), words)))


def documents(corpus: list[str]) -> Iterator[Text]:
    """Yield the documents that `prepare` accepts, each text once."""
    config = compose_config("prepare", PrepareConfig, [*corpus, "vocab=none"], False)
    assert config is not None
    for document in DocumentReader(config).distinct(PART, DocumentCounts()):
        yield document.text, document.words


def cut(text: str, words: int) -> Iterator[Text]:
    """Yield a document in pieces of whole lines."""
    lines: list[str] = []
    count = 0
    for line in text.split("\n") if words > PIECE else ():
        lines.append(line)
        count += len(line.split())
        if count >= PIECE:
            yield "\n".join(lines), count
            lines, count = [], 0
    if words <= PIECE or lines:
        yield ("\n".join(lines), count) if lines else (text, words)


def hash_of(text: Text) -> bytes:
    return document_hash(text[0])


def first(texts: Iterator[Text], words: float) -> Iterator[Text]:
    """Yield the first texts up to a number of words."""
    for text in texts:
        yield text
        words -= text[1]
        if words <= 0:
            return


def save(path: Path, texts: list[Text]) -> None:
    write_text(path, "".join(f"{json.dumps({'text': text}, ensure_ascii=False)}\n" for text, _ in texts))
    print(f"{path}: {len(texts):,} texts, {sum(words for _, words in texts):,} words", flush=True)


if __name__ == "__main__":
    main()
