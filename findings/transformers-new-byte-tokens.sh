#!/usr/bin/env bash
# transformers 5.24.0 (train_new_from_iterator), tokenizers 0.23.3.
#
# Guess: "a new corpus with the same defaults (in terms of special tokens or tokenization pipeline)": a tokenizer with
#   byte fallback (BPE as Gemma's, which mmBERT has) writes a letter that its new vocabulary lacks as bytes, too.
# Seen: the new one says byte_fallback, but has none of the 256 entries <0x00> to <0xFF>, so that each such letter is
#   <unk>, line ends too where the corpus came line by line. Without an unknown token, which byte fallback has no need
#   of, letters vanish: two texts that differ have the same ids. No warning. Given as new_special_tokens the bytes are
#   used, but decode(skip_special_tokens=True) then drops them.
# What follows: look for "<0x00>" in the new vocabulary, and encode a letter of another script.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.24.0 tokenizers==0.23.3
cd "$place"
cat > try.py <<'PYTHON'
import json
import sys

from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
ENTRIES = ["<pad>", "<unk>", "<mask>", *BYTES, *"▁ the t h e c a th the ▁the".split(" ")]
CORPUS = [["the dog ran over the hill and the cat sat"] * 10]
TEXTS = ["the жcat", "the cat", "the cat\n"]


def published(unknown: str | None) -> PreTrainedTokenizerFast:
    vocabulary = {entry: number for number, entry in enumerate(dict.fromkeys(ENTRIES))}
    merges = [("t", "h"), ("th", "e"), ("▁", "the")]
    model = models.BPE(vocabulary, merges, byte_fallback=True, unk_token=unknown, fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    roles = {"pad_token": "<pad>", "mask_token": "<mask>"} | ({"unk_token": unknown} if unknown else {})
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)


def decoded(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    return [tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=False) for text in TEXTS]


seen = []
for unknown, expected in (("<unk>", ["the <unk>cat", "the cat", "the cat<unk>"]), (None, ["the cat"] * 3)):
    old = published(unknown)
    new = old.train_new_from_iterator(CORPUS, 400)
    flag = json.loads(new.backend_tokenizer.to_str())["model"]["byte_fallback"]
    entries = sum(byte in new.get_vocab() for byte in BYTES)
    print(f"unknown token {unknown}: byte_fallback {flag}, {entries} bytes; old {decoded(old)}, new {decoded(new)}")
    seen += [decoded(old) == TEXTS, flag, entries == 0, decoded(new) == expected]
given = published("<unk>").train_new_from_iterator(CORPUS, 400, new_special_tokens=BYTES)
left = given.decode(given("the жcat")["input_ids"], skip_special_tokens=True)
print(f"bytes as new_special_tokens, without special tokens: {left!r}")
sys.exit(not (all(seen) and left == "the cat"))
PYTHON
venv/bin/python try.py 2> log || { cat log; exit 1; }
