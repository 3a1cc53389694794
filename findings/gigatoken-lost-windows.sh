#!/usr/bin/env bash
# gigatoken 0.10.0 (Tokenizer(...).as_hf()), beside transformers 5.24.0, tokenizers 0.23.3.
#
# Guess: the drop-in for a transformers tokenizer cuts long texts into windows by return_overflowing_tokens and stride,
#   or refuses them, as it refuses pairs and words in lists.
# Seen: options that it does not know are taken without a word. Of each text the first window is left, and what would be
#   the others is lost, without an error, as lists of lists come back either way. padding_side="left" pads at the
#   right, pad_to_multiple_of does nothing. Ids, padding, truncation and special tokens are right.
# What follows: a corpus of long documents that is cut so for pre-training or question answering keeps the heads of
#   its documents. Encode whole texts and cut them yourself.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check \
    gigatoken==0.10.0 transformers==5.24.0 tokenizers==0.23.3 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import gigatoken
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

WORDS = "one two three four five six seven eight nine ten".split()
TEXTS = [" ".join(WORDS * 4), " ".join(WORDS)]
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
special = ["[PAD]", "[CLS]", "[SEP]"]
alphabet = pre_tokenizers.ByteLevel.alphabet()
tokenizer.train_from_iterator(
    TEXTS * 9, trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet, show_progress=False)
)
tokenizer.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
)
original = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]")
drop_in = gigatoken.Tokenizer(original).as_hf()
CALLS = {
    "ids": {},
    "padding": {"padding": True},
    "truncation": {"truncation": True, "max_length": 10},
    "windows": {"truncation": True, "max_length": 10, "stride": 2, "return_overflowing_tokens": True},
    "left padding": {"padding": True, "padding_side": "left"},
    "padding to multiples of 16": {"padding": True, "pad_to_multiple_of": 16},
}
same = {}
for name, options in CALLS.items():
    wanted, found = (list(called(TEXTS, **options)["input_ids"]) for called in (original, drop_in))
    same[name] = wanted == found
    counts = [f"{len(rows)} rows of {sorted({len(row) for row in rows})} tokens" for rows in (wanted, found)]
    print(f"{name}: transformers {counts[0]}, gigatoken {counts[1]}, equal {same[name]}")
sys.exit(list(same.values()) != [True] * 3 + [False] * 3)
PYTHON
venv/bin/python try.py 2> log || { cat log; exit 1; }
