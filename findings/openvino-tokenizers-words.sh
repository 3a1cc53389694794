#!/usr/bin/env bash
# openvino-tokenizers 2026.4.1.0 (convert_tokenizer), openvino 2026.4.1, transformers 5.24.0, tokenizers 0.23.3.
#
# Guess: a converted tokenizer.json gives its ids; what cannot be converted is refused, as UnicodeScripts and
#   FixedLength are.
# Seen: these convert without a word and cut otherwise. WhitespaceSplit divides at punctuation too ("sat." is two
#   words, "don't" three). Of BertNormalizer, lowercase drops accents also with strip_accents=False, and
#   handle_chinese_chars=False is left out. BPE with `</w>` at the ends of words puts the letters of `</w>` after each
#   special token in a text, so that a mask is followed by four pieces that nobody wrote. BERT's usual settings,
#   byte-level BPE and Whitespace are right on the same texts.
# What follows: compare ids on texts with accents, punctuation and [MASK] before such a graph is served.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" openvino-tokenizers==2026.4.1.0 \
    openvino==2026.4.1 transformers==5.24.0 tokenizers==0.23.3 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import openvino
from openvino_tokenizers import convert_tokenizer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
TEXTS = ["the cat sat.", "don't", "Café", "日本語", "a [MASK] cat"]


def bert(**options: bool) -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(**options)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def bpe(way: pre_tokenizers.PreTokenizer, **options: str) -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="[UNK]", **options))
    made.pre_tokenizer = way
    return made


def train(made: Tokenizer, kind: type, **options: object) -> Tokenizer:
    options = {"vocab_size": 600, "special_tokens": list(SPECIAL.values()), "show_progress": False} | options
    made.train_from_iterator(TEXTS * 9 + ["cafe 日 本 語 caf"] * 9, kind(**options))
    return made


ENDS = {"end_of_word_suffix": "</w>"}
ALPHABET = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
ways = {
    "BERT, cased": train(bert(lowercase=False), trainers.WordPieceTrainer),
    "BERT, uncased": train(bert(lowercase=True), trainers.WordPieceTrainer),
    "byte-level": train(bpe(pre_tokenizers.ByteLevel(add_prefix_space=False)), trainers.BpeTrainer, **ALPHABET),
    "Whitespace": train(bpe(pre_tokenizers.Whitespace()), trainers.BpeTrainer),
    "WhitespaceSplit": train(bpe(pre_tokenizers.WhitespaceSplit()), trainers.BpeTrainer),
    "strip_accents=False": train(bert(lowercase=True, strip_accents=False), trainers.WordPieceTrainer),
    "handle_chinese_chars=False": train(bert(lowercase=True, handle_chinese_chars=False), trainers.WordPieceTrainer),
    "</w>": train(bpe(pre_tokenizers.Whitespace(), **ENDS), trainers.BpeTrainer, **ENDS),
}
differ = {}
for name, made in ways.items():
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, **SPECIAL)
    graph = openvino.compile_model(convert_tokenizer(wrapped), "CPU")
    pairs = [(wrapped(text)["input_ids"], graph([text])["input_ids"][0].tolist()) for text in TEXTS]
    differ[name] = [text for text, (one, other) in zip(TEXTS, pairs, strict=True) if one != other]
    for text, (one, other) in zip(TEXTS, pairs, strict=True):
        if one != other:
            tokens = [wrapped.convert_ids_to_tokens(ids) for ids in (one, other)]
            print(f"{name}: {text!r} tokenizers {tokens[0]} OpenVINO {tokens[1]}")
print(differ)
wrong = [TEXTS[:2], [TEXTS[2]], [TEXTS[3]], [TEXTS[4]]]
sys.exit(list(differ.values()) != [[]] * 4 + wrong)
PYTHON
venv/bin/python -W ignore try.py 2> log || { cat log; exit 1; }
