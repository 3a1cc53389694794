#!/usr/bin/env bash
# model2vec 0.10.0 (StaticModel.encode), tokenizers 0.23.3.
#
# Guess: max_length (512 unless told) counts tokens, as its docstring says: "Any tokens beyond this length are
#   truncated".
# Seen: a text is first cut at max_length times the median length, in letters, of the vocabulary's entries. Where most
#   entries are single characters, as in vocabularies for Chinese, that is 512 letters: of 400 English words 57 are
#   used, without a word, and max_length=100 uses 11. With max_length=None all are.
# What follows: give encode max_length=None where texts of another script than most of the vocabulary come.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check model2vec==0.10.0 tokenizers==0.23.3 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import numpy as np
from model2vec import StaticModel
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = [f"word{n:04d}" for n in range(400)]
CHARACTERS = [chr(0x4E00 + n) for n in range(3000)]


def used(texts: list[str], length: int | None) -> int:
    """How many of the entries in a text its vector has."""
    return int((model.encode(texts, max_length=length)[0] > 0).sum())


vocabulary = {entry: n for n, entry in enumerate(["[UNK]", "[PAD]", *CHARACTERS, *WORDS])}
tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
model = StaticModel(np.eye(len(vocabulary), dtype=np.float32), tokenizer, normalize=False)
text = [" ".join(WORDS)]
counts = {length: used(text, length) for length in (512, 100, None)}
print("words of 400 that are used, by max_length:", counts, "median length:", model.median_token_length)
sys.exit(counts != {512: 57, 100: 11, None: 400})
PYTHON
venv/bin/python try.py
