#!/usr/bin/env bash
# transformers.js 4.3.2 (npm @huggingface/transformers), Node 20, beside tokenizers 0.23.3 (PyPI).
#
# Guess: truncation: true, which its pipelines set too, cuts words, as the same tokenizer.json does in Python: special
#   tokens stay, and of a pair the longer text gives way (longest_first).
# Seen: the template's result is cut at model_max_length from its end. A long text ends without [SEP] (or </s>); a pair
#   whose first text is long has nothing of the second, nor a separator. In one batch long texts lack the [SEP] that
#   short ones have. Texts that fit are right.
# What follows: a cross-encoder gives all passages of a long query the same score, and vectors of long texts are others
#   than in Python. Cut texts before, and count the special tokens.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check tokenizers==0.23.3
npm install --silent --ignore-scripts --no-audit --no-fund @huggingface/transformers@4.3.2
mkdir -p models/cut
cat > make.py <<'PYTHON'
import json
from pathlib import Path

from tokenizers import BertWordPieceTokenizer

LENGTH = 8
WORDS = "one two three four five six seven eight nine ten".split()
TEXTS = [
    ["one two three", None],
    ["one two three four five six seven eight", None],
    ["one two", "three"],
    ["one two", "three four five six seven"],
    ["one two three four five six seven", "eight"],
    ["one two three four five six seven", "nine"],
]
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
tokenizer = BertWordPieceTokenizer({word: n for n, word in enumerate([*special, *WORDS])})
folder = Path("models/cut")
tokenizer.save(str(folder / "tokenizer.json"))
names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
settings = {"tokenizer_class": "BertTokenizer", "model_max_length": LENGTH} | names
(folder / "tokenizer_config.json").write_text(json.dumps(settings))
tokenizer.enable_truncation(LENGTH)
Path("texts.json").write_text(json.dumps([[*pair, tokenizer.encode(*pair).tokens] for pair in TEXTS]))
PYTHON
env/bin/python make.py
cat > try.mjs <<'JS'
import { readFileSync } from "node:fs";
import { AutoTokenizer, env } from "@huggingface/transformers";

env.allowRemoteModels = false;
env.localModelPath = "models";
const tokenizer = await AutoTokenizer.from_pretrained("cut");
const entries = JSON.parse(readFileSync("models/cut/tokenizer.json")).model.vocab;
const names = Object.fromEntries(Object.entries(entries).map(([word, number]) => [number, word]));
const seen = [];
const right = [];
for (const [text, text_pair, wanted] of JSON.parse(readFileSync("texts.json"))) {
  const ids = tokenizer(text, { text_pair, truncation: true, return_tensor: false }).input_ids;
  seen.push(ids.map((number) => names[number]).join(" "));
  right.push(seen.at(-1) === wanted.join(" "));
  console.log(`Python ${wanted.join(" ")} | transformers.js ${seen.at(-1)}`);
}
const batch = tokenizer([seen[1].slice(6), "one"], { truncation: true, padding: true }).input_ids.tolist();
const separators = batch.map((ids) => ids.filter((number) => Number(number) === entries["[SEP]"]).length);
console.log("separators of a long and a short text in one batch", separators);
const asSeen =
  JSON.stringify(right) === "[true,false,true,false,false,false]" &&
  seen[1] === "[CLS] one two three four five six seven" &&
  seen[4] === seen[5] &&
  JSON.stringify(separators) === "[0,1]";
process.exit(asSeen ? 0 : 1);
JS
node try.mjs
