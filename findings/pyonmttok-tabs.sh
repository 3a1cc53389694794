#!/usr/bin/env bash
# pyonmttok 1.38.1 (OpenNMT's Tokenizer).
#
# Guess: white space divides words, whatever kind it is, as a no-break space does, and the line separator
#   U+2028; detokenize of the tokens has the words of the text again.
# Seen: in the modes conservative, aggressive and char tabs, line ends and form feeds are dropped before words are
#   looked for, and the word before and that after are one: "Berlin\tParis" is "BerlinParis", a text of two lines has
#   "oneTwo". tokenize_file does so with tabs within a line. BPE learners that are given such a tokenizer learn the
#   joined words. The modes space and none keep them. Nothing is said.
# What follows: columns of TSV files, indented text and documents of several lines have words that nobody wrote. Make
#   spaces of them before.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check pyonmttok==1.38.1
cd "$place"
cat > try.py <<'PYTHON'
import sys
from pathlib import Path

import pyonmttok

TEXTS = ["Berlin\tParis", "line one\nTwo more", "page\fnext", "no\u00a0break", "para\u2028next"]
EXPECTED = [["BerlinParis"], ["line", "oneTwo", "more"], ["pagenext"], ["no", "break"], ["para", "next"]]
seen = []
for mode in ("conservative", "aggressive"):
    tokenizer = pyonmttok.Tokenizer(mode, joiner_annotate=True)
    tokens = [tokenizer.tokenize(text)[0] for text in TEXTS]
    print(mode, list(zip(TEXTS, tokens, strict=True)))
    back = tokenizer.detokenize(tokens[0])
    seen += [tokens == EXPECTED, back == "BerlinParis"]
Path("columns.tsv").write_text("Berlin\tParis\n")
tokenizer.tokenize_file("columns.tsv", "words.txt")
learner = pyonmttok.BPELearner(tokenizer=tokenizer, symbols=20)
for _ in range(10):
    learner.ingest("ab\tcd")
learner.learn("model.bpe")
bpe = pyonmttok.Tokenizer(mode, joiner_annotate=True, bpe_model_path="model.bpe")
learnt = bpe.tokenize("abcd")[0]
print("file:", Path("words.txt").read_text().strip(), "- BPE of ten times 'ab<tab>cd' has for 'abcd':", learnt)
seen += [Path("words.txt").read_text() == "BerlinParis\n", learnt == ["abcd"]]
space = pyonmttok.Tokenizer("space").tokenize("Berlin\tParis")[0]
print("mode space:", space)
sys.exit(not (all(seen) and space != ["BerlinParis"]))
PYTHON
venv/bin/python try.py
