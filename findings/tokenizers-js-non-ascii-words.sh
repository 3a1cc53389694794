#!/usr/bin/env bash
# @huggingface/tokenizers 0.2.0 (npm; the tokenizers of transformers.js), Node 20, beside tokenizers 0.23.3 (PyPI).
#
# Guess: the pre-tokenizer Whitespace, \w+|[^\w\s]+, makes the same words in both: \w is a letter or digit of any
#   script, as in tokenizers and in Python.
# Seen: in JavaScript it is ASCII's alone. Latin words are cut at each letter beyond ASCII ("na", "ï", "ve"), and words
#   of other scripts keep the mark beside them ("мир!" is one word), so that the vocabulary's entries are not found.
#   English, WhitespaceSplit and BertPreTokenizer are right.
# What follows: a tokenizer that was trained as the quick tour of tokenizers does it serves English only there. The
#   pre-tokenizer Split with the pattern below is read alike by both.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check tokenizers==0.23.3
npm install --silent --no-audit --no-fund @huggingface/tokenizers@0.2.0 > /dev/null
cat > run.mjs <<'JS'
import fs from "fs";
import { Tokenizer } from "@huggingface/tokenizers";
const [texts, names] = JSON.parse(fs.readFileSync("texts.json", "utf8"));
const found = names.map((name) => {
  const made = new Tokenizer(JSON.parse(fs.readFileSync(`${name}.json`, "utf8")), {});
  return texts.map((text) => made.encode(text).tokens);
});
console.log(JSON.stringify(found));
JS
cat > try.py <<'PYTHON'
import json
import subprocess
import sys

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

TEXTS = ["the end.", "naïve café", "Straße", "привет, мир!", "नमस्ते दुनिया।", "日本語the"]
LETTERS = r"[\p{L}\p{M}\p{N}_]+|[^\p{L}\p{M}\p{N}_\s]+"
WAYS = {
    "Whitespace": pre_tokenizers.Whitespace(),
    "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(),
    "BertPreTokenizer": pre_tokenizers.BertPreTokenizer(),
    "Split": pre_tokenizers.Split(Regex(LETTERS), "removed", invert=True),
}
python = []
for name, way in WAYS.items():
    words = sorted({word for text in TEXTS for word, _ in way.pre_tokenize_str(text)})
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(["[UNK]", *words])}, unk_token="[UNK]"))
    made.pre_tokenizer = way
    made.save(f"{name}.json")
    python.append([made.encode(text).tokens for text in TEXTS])
with open("texts.json", "w") as file:
    json.dump([TEXTS, list(WAYS)], file)
javascript = json.loads(subprocess.run(["node", "run.mjs"], capture_output=True, check=True).stdout)
for name, one, other in zip(WAYS, python, javascript, strict=True):
    print(name, [(mine, yours) for mine, yours in zip(one, other, strict=True) if mine != yours] or "equal")
differ = [mine != yours for mine, yours in zip(python[0], javascript[0], strict=True)]
sys.exit(not (differ == [False, True, True, True, True, True] and python[1:] == javascript[1:]))
PYTHON
env/bin/python try.py
