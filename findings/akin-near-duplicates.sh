#!/usr/bin/env bash
# akin 1.0.1 (UniMinHash, KMinHash, LSH), numpy 2.4.6.
#
# Guess: with 40 bands of five hashes pairs whose shingles have a Jaccard similarity of 0.7 are found (999 of 1,000 by
#   the formula), and min_jaccard=0.6 keeps them, with either kind of signature.
# Seen: each kind lacks one half. UniMinHash, that of the README, keeps the smallest hashes in their order, so that one
#   new small hash moves all after it and bands agree at their beginning alone: two of five pairs are not found.
#   KMinHash finds all, but takes the signatures for sets: of m equal hashes of n the similarity is m / (2n - m), not
#   m / n. 0.7 is given as 0.54, and min_jaccard=0.6 drops nearly all. Words as shingles (n_gram=1) are an error.
# What follows: near-duplicates stay in the corpus. Take KMinHash, and j / (2 - j) for a min_jaccard of j.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check akin==1.0.1 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import numpy as np
from akin import LSH, KMinHash, UniMinHash

PAIRS, WORDS, SHARED, HASHES = 50, 400, 330, 200
rng = np.random.default_rng(0)


def words(number: int) -> list[str]:
    return [f"w{word}" for word in rng.integers(0, 10**9, number)]


def shingles(text: str) -> set[tuple[str, str]]:
    terms = text.split()
    return set(zip(terms, terms[1:]))


def similarity(one: str, other: str) -> float:
    return len(shingles(one) & shingles(other)) / len(shingles(one) | shingles(other))


pairs = []
for _ in range(PAIRS):
    head = words(SHARED)
    pairs.append([" ".join(head + words(WORDS - SHARED)) for _ in range(2)])
true = float(np.mean([similarity(*pair) for pair in pairs]))
texts = [text for pair in pairs for text in pair]
found = {}
for kind in (UniMinHash, KMinHash):
    signatures = kind(n_gram=2, n_gram_type="term", permutations=HASHES, hash_bits=64, seed=1).transform(texts)
    index = LSH(permutations=HASHES, no_of_bands=HASHES // 5)
    index.update(signatures, list(range(len(texts))))
    hits = [index.query(2 * pair, include_similarity=True) for pair in range(PAIRS)]
    near = [value for pair, some in enumerate(hits) for value, label in some if label == 2 * pair + 1]
    kept = sum(2 * pair + 1 in index.query(2 * pair, min_jaccard=0.6) for pair in range(PAIRS))
    lower = sum(2 * pair + 1 in index.query(2 * pair, min_jaccard=0.6 / 1.4) for pair in range(PAIRS))
    found[kind.__name__] = (len(near), float(np.mean(near)), kept, lower)
    print(f"{kind.__name__}: {len(near)} of {PAIRS} pairs found, mean similarity {np.mean(near):.3f}, true {true:.3f};")
    print(f"  with min_jaccard=0.6: {kept}, with 0.6 / 1.4: {lower}")
try:
    UniMinHash(n_gram=1, n_gram_type="term").transform(["the cat sat", "the dog sat"])
    error = ""
except ValueError as problem:
    error = str(problem)
print("n_gram=1:", error)
single, several = found["UniMinHash"], found["KMinHash"]
seen = true > 0.68 and single[0] < 0.8 * PAIRS and abs(single[1] - true) < 0.06
seen = seen and several[0] == PAIRS and abs(several[1] - true / (2 - true)) < 0.03 and several[2] < 0.2 * PAIRS
sys.exit(not (seen and several[3] > 0.95 * PAIRS and "Shingle" in error))
PYTHON
venv/bin/python try.py
