#!/usr/bin/env bash
# @chroma-core/chroma-bm25 0.1.10 with chromadb 3.5.0 (npm; Node 20), beside chromadb 1.5.9 (PyPI).
#
# Guess: "chroma_bm25" is one embedding function: of a collection that Python filled, JavaScript finds the words; its
#   authors say that both are fully compatible. A word has a number of its own, but for chance.
# Seen: so it is for words of ASCII letters, nearly (stems differ now and then: "university"). JavaScript hashes the
#   lower byte of each UTF-16 unit, Python the bytes of UTF-8, so that no word with another letter ("café", "Straße",
#   "Москва", "中国") has the same number in both: its score is 0. Within JavaScript words are mixed up: the Russian
#   "два" (two) is "420", "где" (where) is "345"; of 5,000 Chinese words of two characters 190 share a number,
#   and of the 20,902 single characters 256 are left.
# What follows: hybrid search in other languages finds by dense vectors alone. Make queries and collection in the same
#   language, and that in Python.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check uv
venv/bin/uv pip install --quiet --python venv/bin/python chromadb==1.5.9 snowballstemmer==3.1.1
npm install --silent --no-audit --no-fund --prefix "$place" @chroma-core/chroma-bm25@0.1.10 chromadb@3.5.0
cat > try.mjs <<'JS'
import { ChromaBm25EmbeddingFunction } from "@chroma-core/chroma-bm25";
import { readFileSync } from "node:fs";

const texts = JSON.parse(readFileSync("texts.json", "utf8"));
const vectors = await new ChromaBm25EmbeddingFunction().generate(texts);
console.log(JSON.stringify(vectors.map((one) => one.indices)));
JS
cat > try.py <<'PYTHON'
import json
import random
import subprocess
import sys
from pathlib import Path

from chromadb.utils.embedding_functions import ChromaBm25EmbeddingFunction

ASCII = ["cat", "running", "bridge", "3", "420", "345"]
OTHERS = ["café", "naïve", "Straße", "Москва", "Ελλάδα", "中国", "два", "где"]


def numbers(texts: list[str]) -> tuple[list[list[int]], list[list[int]]]:
    Path("texts.json").write_text(json.dumps(texts))
    given = subprocess.run(["node", "try.mjs"], capture_output=True, check=True, text=True).stdout
    return [[int(one) for one in vector.indices] for vector in ChromaBm25EmbeddingFunction()(texts)], json.loads(given)


def different(vectors: list[list[int]]) -> int:
    return len({tuple(one) for one in vectors})


python, script = numbers(ASCII + OTHERS)
for word, one, other in zip(ASCII + OTHERS, python, script, strict=True):
    print(f"{word}: Python {one}, JavaScript {other}")
ids = dict(zip(ASCII + OTHERS, script, strict=True))
cut = len(ASCII)
seen = python[:cut] == script[:cut] and all(one != other for one, other in zip(python[cut:], script[cut:], strict=True))
mixed = ids["два"] == ids["420"] and ids["где"] == ids["345"]
single = [chr(code) for code in range(0x4E00, 0x9FA6)]
random.seed(0)
double = sorted({"".join(random.choices(single, k=2)) for _ in range(5000)})
counts = [[different(vectors) for vectors in numbers(words)] for words in (single, double)]
print(f"different numbers (Python, JavaScript): {len(single)} characters {counts[0]}, {len(double)} words {counts[1]}")
sys.exit(not (seen and mixed and counts[0][1] <= 256 and counts[1][1] < counts[1][0] - 100))
PYTHON
venv/bin/python try.py
