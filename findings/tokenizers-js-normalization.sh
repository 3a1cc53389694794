#!/usr/bin/env bash
# @huggingface/tokenizers 0.2.0 (npm; the tokenizers of transformers.js), Node 20, beside tokenizers 0.23.3 and
# sentencepiece 0.2.3 (PyPI).
#
# Guess: the normalizer Precompiled, which has in itself the table of a SentencePiece model, does what the table says.
# Seen: the table is not read; NFKC and a fixed list take its place, without a word. SentencePiece's nmt_nfkc keeps
#   the joiner U+200D, which Sinhala and many emoji are written with: here it is a space, so that the word "Sri" is
#   cut in two. With nmt_nfkc_cf, whose table folds case, capitals stay and are unknown. tokenizers follows both
#   tables.
# What follows: compare ids on the languages that are served; add Lowercase to a tokenizer.json whose table folds
#   case.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check tokenizers==0.23.3 sentencepiece==0.2.3 protobuf==7.36.2
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
import io
import json
import subprocess
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

SRI = "\u0dc1\u0dca\u200d\u0dbb\u0dd3"
TEXTS = [f"the {SRI} cat", "The Cat"]
RULES = ["nmt_nfkc", "nmt_nfkc_cf"]
python, reference = [], []
for rule in RULES:
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([f"the {SRI} cat sat on the mat with a dog"] * 50), model_writer=file, vocab_size=60,
        hard_vocab_limit=False, normalization_rule_name=rule, minloglevel=2,
    )
    model = sentencepiece_model_pb2.ModelProto.FromString(file.getvalue())
    made = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in model.pieces], unk_id=0))
    made.normalizer = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.save(f"{rule}.json")
    python.append([made.encode(text).tokens for text in TEXTS])
    processor = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    reference.append([processor.encode(text, return_type=str) for text in TEXTS])
with open("texts.json", "w") as file:
    json.dump([TEXTS, RULES], file)
javascript = json.loads(subprocess.run(["node", "run.mjs"], capture_output=True, check=True).stdout)
for n, rule in enumerate(RULES):
    for m in range(len(TEXTS)):
        print(rule, "Python", python[n][m], "JavaScript", javascript[n][m])
joined = [sum("\u200d" in token for token in made[0][0]) for made in (python, javascript)]
differ = [one != other for n in range(2) for one, other in zip(python[n], javascript[n], strict=True)]
sys.exit(not (python == reference and joined == [1, 0] and differ == [True, False, True, True]))
PYTHON
env/bin/python try.py
