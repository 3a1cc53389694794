"""Megabytes per second on one core: cleaning, sentences, and WordPiece against the bare library.

`python -m benchmarks.data.tokenize_text FOLDER` reads the text files below FOLDER (also
WikiExtractor's). `--vocab` is a vocab.txt, a tokenizer.json or a folder with one; without it, a
vocabulary is learnt from the text first. Everything runs in one process on the same sentences,
measured in CPU time, which other load hardly affects; all ids are compared.
"""

import argparse
import ctypes
import os
import re
from operator import itemgetter
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
from sentencex import segment

from benchmarks.data.samples import learn_vocab
from benchmarks.shared import heading, keep, timed
from pipeline.text import clean, sentences
from pipeline.tokenization import wordpiece
from pipeline.tokenization.wordpiece import WordPiece

BATCH = 4 * 2**20  # characters, as `prepare` tokenizes at once
LIBRARY_BATCH = 1000  # sentences: larger batches are not faster and need more memory
MARKUP = re.compile(r"</?doc\b[^>]*>")
PASSES = 5  # from a full cache, of which the quickest counts: one takes tenths of a second
SAMPLE = 5_000_000  # characters to learn a vocabulary from
TRIM_THRESHOLD, MMAP_THRESHOLD, LARGE = -1, -3, 2**30  # of glibc's mallopt; bytes that no array here has


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocab", type=Path)
    parser.add_argument("--language", default="en")
    parser.add_argument("--megabytes", type=float, default=20, help="text to read, at most")
    options = parser.parse_args()

    # glibc gives back large arrays, or not, by what was freed before: page faults are a fifth of a pass or none.
    for threshold in (TRIM_THRESHOLD, MMAP_THRESHOLD):
        ctypes.CDLL(None).mallopt(threshold, LARGE)
    texts = read(options.folder, options.megabytes * 1e6)
    size = sum(len(text.encode()) for text in texts) / 1e6
    source = wordpiece.read(options.vocab) if options.vocab else learn(texts)
    fresh, tokenizer = WordPiece(source), WordPiece(source)

    rates = {}
    cleaned, rates["clean"] = timed(lambda: [clean.clean(text) for text in texts])
    parts, rates["sentences"] = timed(
        lambda: [part for text in cleaned for part in sentences.split_sentences(text, options.language)]
    )
    encode(tokenizer, parts)  # first: pyarrow imports pandas for its first array, which prepare keeps out
    ours, rates["WordPiece, from an empty cache"] = timed(lambda: encode(fresh, parts))
    passes = [timed(lambda: encode(tokenizer, parts)) for _ in range(PASSES)]
    again, rates["WordPiece, from a full cache"] = min(passes, key=itemgetter(1))
    theirs, rates["tokenizers, encode_batch"] = timed(lambda: encode_bare(tokenizer, parts))
    _, rates["sentencex"] = timed(lambda: [segment(options.language, text) for text in cleaned])
    keep("sentences: sentencex", rates["sentencex"] / rates["sentences"])  # last: what it makes slows others down
    assert np.array_equal(ours, theirs)
    assert np.array_equal(again, theirs)

    library = rates["tokenizers, encode_batch"]
    print(f"{size:.1f} MB, {len(parts):,} sentences, {len(ours):,} tokens: ids identical\n")
    print(heading("one core | MB/s of CPU time | vs. the library"))
    for name, seconds in rates.items():
        if name.startswith("WordPiece"):
            keep(name, library / seconds)
        print(f"| {name} | {size / seconds:.1f} | {library / seconds:.1f} x |")


def read(folder: Path, most: float) -> list[str]:
    texts, size = [], 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        raw = path.read_bytes()
        texts.append(MARKUP.sub("", raw.decode("utf-8", "replace")))
        size += len(raw)
        if size >= most:
            break
    if not size:
        raise SystemExit(f"{folder}: no text files")
    return texts


def learn(texts: list[str]) -> str:
    return learn_vocab([text[: SAMPLE // len(texts)] for text in texts])


def encode(tokenizer: WordPiece, parts: list[str]) -> np.ndarray:
    ids, batch, size = [], [], 0
    for part in parts:
        batch.append(part)
        size += len(part)
        if size >= BATCH:
            ids.append(tokenizer.encode(batch)[0])
            batch, size = [], 0
    return np.concatenate([*ids, tokenizer.encode(batch)[0]])


def encode_bare(tokenizer: WordPiece, parts: list[str]) -> np.ndarray:
    ids = []
    for start in range(0, len(parts), LIBRARY_BATCH):
        batch = parts[start : start + LIBRARY_BATCH]
        for encoded in tokenizer.library.encode_batch(batch, add_special_tokens=False):
            ids.append(np.array(encoded.ids, tokenizer.dtype))
    return np.concatenate(ids)


if __name__ == "__main__":
    main()
