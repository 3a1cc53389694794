#!/usr/bin/env bash
# tokenizers 0.23.3 (SentencePieceUnigramTokenizer.from_spm), beside sentencepiece 0.2.3.
#
# Guess: from_spm makes of a Unigram .model a tokenizer with the model's pieces, or refuses an option it cannot
#   follow.
# Seen: any text with a blank or a line's end after it, as lines of a file have, gets a further piece "_", also with
#   the options that SentencePiece has unless told. Left out without a word: add_dummy_prefix=False and
#   treat_whitespace_as_suffix, which make other pieces of each text, and remove_extra_whitespaces=False. The
#   vocabulary's ids are the model's, so nothing looks wrong.
# What follows: strip texts before, and look at normalizer_spec and trainer_spec of the .model first.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check tokenizers==0.23.3 sentencepiece==0.2.3 \
    protobuf==7.36.2
cd "$place"
cp venv/lib/python3*/site-packages/sentencepiece/sentencepiece_model_pb2.py . # where from_spm looks for it
cat > try.py <<'PYTHON'
import random
import sys

import sentencepiece
from tokenizers import SentencePieceUnigramTokenizer

draw = random.Random(0)
WORDS = ["the", "cat", "sat", "on", "mat", "dog", "house", "tree"]
CORPUS = [" ".join(draw.choice(WORDS) + draw.choice(["", "s", "ed"]) for _ in range(8)) for _ in range(2000)]
TEXTS = ["the cats sat", "the cats sat\n", "the  cats"]
OPTIONS = {
    "as it is": {},
    "add_dummy_prefix=False": {"add_dummy_prefix": False},
    "treat_whitespace_as_suffix": {"treat_whitespace_as_suffix": True},
    "remove_extra_whitespaces=False": {"remove_extra_whitespaces": False},
}
differ = {}
for name, options in OPTIONS.items():
    with open("it.model", "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS), model_writer=file, vocab_size=60, hard_vocab_limit=False, minloglevel=2,
            **options,
        )
    model = sentencepiece.SentencePieceProcessor(model_file="it.model")
    made = SentencePieceUnigramTokenizer.from_spm("it.model")
    pairs = [(model.encode(text, return_type=str), made.encode(text).tokens) for text in TEXTS]
    differ[name] = [one != other for one, other in pairs]
    for text, (one, other) in zip(TEXTS, pairs, strict=True):
        if one != other:
            print(f"{name}: {text!r} SentencePiece {one} from_spm {other}")
print(differ)
right = [[False, True, False], [True, True, True], [True, True, True], [False, False, True]]
sys.exit(list(differ.values()) != right)
PYTHON
venv/bin/python try.py
