#!/usr/bin/env bash
# gaoya 0.2.2 (MinHashStringIndex, SimHashStringIndex).
#
# Guess: a text that is shorter than the n-grams has none, so that it is similar to no other, or to its like alone; at
#   worst to other texts of the same words.
# Seen: all such texts are near-duplicates of each other, with a similarity of 1.0: the signature of no n-grams is the
#   same for all. With ngram_range=(3, 3), the usual one for documents, "hello", "the cat" and "two words" are one
#   text. Chinese and Japanese sentences are one word up to the next mark, so that those of one or two clauses are all
#   "equal", to each other and to short English ones. analyzer="char" does so below n letters.
# What follows: of titles, questions and sentences one is kept and the rest is dropped, without a word. Keep texts
#   below n words out of the index, or use ngram_range=(1, 3); for scripts without blanks analyzer="char".
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check gaoya==0.2.2
cd "$place"
cat > try.py <<'PYTHON'
import sys

from gaoya.minhash import MinHashStringIndex
from gaoya.simhash import SimHashStringIndex

TEXTS = ["hello", "the cat", "two words", "我在北京工作。", "猫が好きです。", "the cat sat on the mat", "a dog ran far away"]


def kept(index: MinHashStringIndex | SimHashStringIndex) -> list[str]:
    """Keep of similar texts the first, as one does who drops near-duplicates."""
    left = []
    for number, text in enumerate(TEXTS):
        if not index.query(text):
            index.insert_document(number, text)
            left.append(text)
    return left


def minhash(kind: str, grams: tuple[int, int]) -> MinHashStringIndex:
    return MinHashStringIndex(32, 0.5, 42, 3, None, kind, False, grams)


index = minhash("word", (3, 3))
for number, text in enumerate(TEXTS):
    index.insert_document(number, text)
similar = {TEXTS[number]: round(value, 2) for number, value in index.query("hello", return_similarity=True)}
print("similar to 'hello':", similar)
words, mixed = kept(minhash("word", (3, 3))), kept(minhash("word", (1, 3)))
letters = kept(minhash("char", (8, 8)))
simhash = kept(SimHashStringIndex(64, 6, 3, "word", False, (3, 3)))
print(f"kept, three words: {words}; one to three: {mixed}; eight letters: {letters}; SimHash: {simhash}")
seen = similar == dict.fromkeys(TEXTS[:5], 1.0) and words == [TEXTS[0], *TEXTS[5:]] and mixed == TEXTS
sys.exit(not (seen and len(letters) < len(TEXTS) and simhash == words))
PYTHON
venv/bin/python try.py
