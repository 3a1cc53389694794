#!/usr/bin/env bash
# tokie 0.1.4 ("works with any HuggingFace tokenizer", "100% token-accurate"), beside tokenizers 0.23.3.
#
# Guess: a tokenizer.json that it opens gives the ids of tokenizers; one that it cannot follow is refused.
# Seen: the common form of each kind is followed, and the rest left out without a word. Byte-level BPE drops
#   add_prefix_space (RoBERTa for words in a list): the first word of each text is another. BPE over letters gives
#   other ids; with `</w>` (HerBERT's kind) no word is found. Unigram drops Lowercase
#   (ALBERT's kind): capitals become <unk>. BertNormalizer's WordPiece and GPT-2's BPE are right.
# What follows: compare ids on texts of your own before it takes the place of tokenizers.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check tokie==0.1.4 tokenizers==0.23.3
cd "$place"
venv/bin/python - <<'PYTHON'
import sys

import tokie
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

CORPUS = ["The quick brown fox jumps over the lazy dog. We don't stop at 10 km!"] * 20
TEXTS = ["The quick brown fox", "the dog", "We stop", "10 km"]
COMMON = {"special_tokens": ["<unk>"], "show_progress": False}
BYTES = {"initial_alphabet": sorted(pre_tokenizers.ByteLevel.alphabet()), "vocab_size": 320}
WORDS = pre_tokenizers.BertPreTokenizer()
albert = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
letters, ends = trainers.BpeTrainer(vocab_size=120, **COMMON), {"end_of_word_suffix": "</w>"}
cases = {
    "WordPiece, BERT": (
        models.WordPiece(unk_token="<unk>"),
        normalizers.BertNormalizer(),
        WORDS,
        trainers.WordPieceTrainer(vocab_size=120, **COMMON),
    ),
    "bytes, GPT-2": (
        models.BPE(),
        None,
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        trainers.BpeTrainer(**BYTES, **COMMON),
    ),
    "bytes, add_prefix_space": (
        models.BPE(),
        None,
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        trainers.BpeTrainer(**BYTES, **COMMON),
    ),
    "letters": (models.BPE(unk_token="<unk>"), None, WORDS, letters),
    "letters, </w>": (
        models.BPE(unk_token="<unk>", **ends),
        None,
        WORDS,
        trainers.BpeTrainer(vocab_size=120, **ends, **COMMON),
    ),
    "Unigram, ALBERT": (
        models.Unigram(),
        albert,
        pre_tokenizers.Metaspace(),
        trainers.UnigramTrainer(vocab_size=60, unk_token="<unk>", **COMMON),
    ),
}
wrong = {}
for name, (model, normalizer, pre_tokenizer, trainer) in cases.items():
    tokenizer = Tokenizer(model)
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.save("tokenizer.json")
    other = tokie.Tokenizer.from_json("tokenizer.json")
    pairs = [(tokenizer.encode(text).ids, list(other.encode(text).ids)) for text in TEXTS]
    wrong[name] = sum(want != got for want, got in pairs)
    print(f"{name}: {wrong[name]} of {len(TEXTS)} texts differ; {TEXTS[0]!r}: {pairs[0][0]}, tokie {pairs[0][1]}")
right = all(wrong[name] == 0 for name in ("WordPiece, BERT", "bytes, GPT-2"))
sys.exit(not (right and all(wrong[name] for name in list(cases)[2:]) and wrong["letters, </w>"] == len(TEXTS)))
PYTHON
