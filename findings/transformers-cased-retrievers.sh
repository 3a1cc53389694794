#!/usr/bin/env bash
# transformers 5.24.0 (DPRQuestionEncoderTokenizer, DPRContextEncoderTokenizer, DPRReaderTokenizer), tokenizers 0.23.3.
#
# Guess: a DPR folder with "do_lower_case": false, as German, multilingual and other cased retrievers have, keeps
#   capitals and accents, as in transformers 4; its tokenizer.json says so too.
# Seen: AutoTokenizer makes texts lower case and drops accents. The option reaches the attribute do_lower_case, which
#   reads False, but not the normalizer; giving do_lower_case=False by hand changes nothing. Saved again, the folder
#   lower-cases in all readers. "London" is cut in pieces or unknown. BertTokenizer on the same folder is right.
# What follows: queries and an index made by version 4 do not fit, and retrieval is worse without a word. Open such
#   folders by BertTokenizer, or write it as their tokenizer_class.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.24.0 tokenizers==0.23.3
cd "$place"
cat > try.py <<'PYTHON'
import json
import sys
from pathlib import Path

from tokenizers import BertWordPieceTokenizer
from transformers import AutoTokenizer, BertTokenizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] London l ##on ##don Größe cafe café in".split()
TEXTS = ["London in London", "Größe", "café"]
original = BertWordPieceTokenizer({word: n for n, word in enumerate(WORDS)}, lowercase=False)
wanted = [original.encode(text, add_special_tokens=False).tokens for text in TEXTS]
print("tokenizers", wanted)
affected = []
for name in ("DPRQuestionEncoderTokenizer", "DPRContextEncoderTokenizer", "DPRReaderTokenizer", "BertTokenizer"):
    folder = Path(name)
    folder.mkdir()
    original.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, "do_lower_case": False}))
    opened = AutoTokenizer.from_pretrained(name)
    found = [opened.tokenize(text) for text in TEXTS]
    by_hand = type(opened).from_pretrained(name, do_lower_case=False).tokenize(TEXTS[0])
    print(f"{name}: do_lower_case {opened.do_lower_case}, {found}, by hand {by_hand}")
    assert not opened.do_lower_case and [BertTokenizer.from_pretrained(name).tokenize(text) for text in TEXTS] == wanted
    affected += [name] if found != wanted and by_hand == found[0] else []
sys.exit(len(affected) != 3)
PYTHON
venv/bin/python try.py 2> log || { cat log; exit 1; }
