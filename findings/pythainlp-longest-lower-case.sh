#!/usr/bin/env bash
# PyThaiNLP 5.4.0 (word_tokenize).
#
# Guess: the engines of word_tokenize differ in where they cut; the words of each, put together, are the text.
# Seen: so it is with newmm, newmm-safe and mm. "longest" makes Latin letters lower case: "BERT" is "bert", "iPhone"
#   "iphone", and only those of English; "É" stays. Lengths are kept, so that offsets fit and nothing shows. Its
#   documentation speaks of longest matching alone; no option keeps the letters.
# What follows: a cased vocabulary, names in Thai news, and a comparison of engines are off. Take the lengths of its
#   words and cut the text by them.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pythainlp==5.4.0
cd "$place"
cat > try.py <<'PYTHON'
import sys

from pythainlp import word_tokenize

TEXT = "BERT และ iPhone ของ Élise ใน USA มีราคา 10,500 บาท"
words = {engine: word_tokenize(TEXT, engine=engine) for engine in ("newmm", "newmm-safe", "mm", "longest")}
for engine, found in words.items():
    print(engine, "|".join(found))
kept = all("".join(words[engine]) == TEXT for engine in words if engine != "longest")
small = TEXT.replace("BERT", "bert").replace("iPhone", "iphone").replace("USA", "usa")
sys.exit(not (kept and "".join(words["longest"]) == small))
PYTHON
venv/bin/python try.py
