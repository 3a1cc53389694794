#!/usr/bin/env bash
# transformers 5.23.0: a folder whose only file is a SentencePiece model under another class's name.
#
# Guess: CamembertTokenizer, which wants sentencepiece.bpe.model, refuses a folder that has the same model as spm.model.
# Seen: it opens without a word, with its 8 special tokens as the whole vocabulary; every word of a text gets the id of
# <unk>, while `tokenize` still shows words, so that nothing looks wrong. Under the name that it wants, the model's 1,000
# entries are there.
# What follows: look at the number of entries, not at the tokens, before a tokenizer of a folder is trusted.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.23.0 sentencepiece==0.2.1 protobuf==6.33.6
cat > "$work/try.py" <<'PY'
import sys
from pathlib import Path

import sentencepiece
from transformers import CamembertTokenizer

work = Path(sys.argv[1])
words = [f"{one}{two}{three}" for one in "bdfgklmnprst" for two in "aeiou" for three in ("", "ra", "ten", "mos", "li")]
lines = [" ".join(words[(7 * start + step * step) % len(words)] for step in range(12)) for start in range(4000)]
(work / "text.txt").write_text("\n".join(lines))
sentencepiece.SentencePieceTrainer.train(
    input=str(work / "text.txt"), model_prefix=str(work / "m"), vocab_size=300, model_type="unigram", minloglevel=2
)
found = {}
for name in ("spm.model", "sentencepiece.bpe.model"):
    folder = work / name.replace(".", "-")
    folder.mkdir()
    (folder / name).write_bytes((work / "m.model").read_bytes())
    tokenizer = CamembertTokenizer.from_pretrained(folder)
    ids = tokenizer(lines[0], add_special_tokens=False)["input_ids"]
    found[name] = (len(tokenizer), set(ids) == {tokenizer.unk_token_id})
    print(name, len(tokenizer), "entries;", tokenizer.tokenize(lines[0])[:4], ids[:4])
entries, all_unknown = found["spm.model"]
right, some_unknown = found["sentencepiece.bpe.model"]
sys.exit(not (entries < 10 and all_unknown and right > 290 and not some_unknown))
PY
"$work/venv/bin/python" "$work/try.py" "$work" 2> "$work/errors" || { cat "$work/errors"; exit 1; }
