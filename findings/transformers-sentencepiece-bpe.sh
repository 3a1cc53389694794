#!/usr/bin/env bash
# transformers 5.24.0 (XLMRobertaTokenizer, T5Tokenizer), beside 4.57.6 and sentencepiece 0.2.1.
#
# Guess: a sentencepiece.bpe.model that was trained with model_type="bpe" is cut by BPE, as in SentencePiece and in
#   transformers 4, or refused, as the class is for Unigram.
# Seen: it opens without a word and is cut as Unigram, with the numbers of the merges as if they were probabilities:
#   the tokens are of the vocabulary, and are others ("_T he" for "_The"). CamembertTokenizer refuses it, with a
#   TypeError that does not say why. transformers 4 asks SentencePiece itself and is right.
# What follows: look at trainer_spec.model_type of the .model, not at its name, before a model is opened in version 5.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
for version in 4.57.6 5.24.0; do
    "$place/venv/bin/uv" venv --quiet --python "$place/venv/bin/python" "$place/$version"
    "$place/venv/bin/uv" pip install --quiet --python "$place/$version/bin/python" \
        "transformers==$version" sentencepiece==0.2.1 protobuf==6.33.6
done
cd "$place"
cat > try.py <<'PYTHON'
import shutil
import sys
from pathlib import Path

import sentencepiece
import transformers
from transformers import CamembertTokenizer, T5Tokenizer, XLMRobertaTokenizer

transformers.utils.logging.set_verbosity_error()
TEXT = "The quick brown fox jumps over the lazy dog and runs home"
Path("text.txt").write_text(f"{TEXT}\nThe dogs and the foxes\n" * 50)
NAMES = {
    XLMRobertaTokenizer: "sentencepiece.bpe.model",
    T5Tokenizer: "spiece.model",
    CamembertTokenizer: "sentencepiece.bpe.model",
}
answers = {}
for kind in ("unigram", "bpe"):
    options = {"input": "text.txt", "model_type": kind, "vocab_size": 75, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(model_prefix=kind, **options)
    want = sentencepiece.SentencePieceProcessor(model_file=f"{kind}.model").encode(TEXT, out_type=str)
    for tokenizer, name in NAMES.items():
        folder = Path(f"{kind}-{tokenizer.__name__}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copy(f"{kind}.model", folder / name)
        try:
            seen = tokenizer.from_pretrained(folder).tokenize(TEXT)
            answer = "equal" if seen == want else "different"
        except TypeError as error:
            seen, answer = str(error), "TypeError"
        answers[kind, tokenizer.__name__] = answer
        print(f"{transformers.__version__} {tokenizer.__name__}, {kind}: {answer}")
        if answer != "equal":
            print("   ", want, "\n   ", seen)
version = transformers.__version__.partition(".")[0]
expected = {"4": ["equal"] * 3, "5": ["different", "different", "TypeError"]}[version]
sys.exit(list(answers.values()) != ["equal"] * 3 + expected)
PYTHON
4.57.6/bin/python -W ignore try.py
5.24.0/bin/python -W ignore try.py
