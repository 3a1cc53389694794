#!/usr/bin/env bash
# kitoken 0.11.1, beside sentencepiece 0.2.1.
#
# Guess: a Unigram model with byte fallback gives an unknown letter as its bytes in their order, as in SentencePiece,
#   and decodes to the text; a tab is a space, as the model's own normalization (nmt_nfkc, XLM-R's) has it.
# Seen: bytes come in reverse order: U+0416, D0 96, as <0x96> <0xD0>, and decode to something else. BPE has them in
#   order. A tab becomes the byte 09, or <unk> in a model without bytes; a line's end and a no-break space are spaces,
#   as they should be.
# What follows: compare ids on letters that the vocabulary lacks before it serves such an encoder.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check kitoken==0.11.1 sentencepiece==0.2.1
cd "$place"
venv/bin/python - <<'PYTHON'
import sys
from pathlib import Path

import sentencepiece
from kitoken import Kitoken

Path("text.txt").write_text("The quick brown fox jumps over the lazy dog. Two cats ran home at 10 o'clock!\n" * 50)
TEXTS = ["fox Ж", "fox ☃", "the\tdog", "the\u00a0dog", "the\ndog", "the dog"]


def train(name: str, **options) -> tuple[sentencepiece.SentencePieceProcessor, Kitoken]:
    common = {"input": "text.txt", "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(model_prefix=name, **common, **options)
    model = sentencepiece.SentencePieceProcessor(model_file=f"{name}.model")
    return model, Kitoken.from_sentencepiece_file(f"{name}.model")


cases = {
    "Unigram, bytes": train("bytes", vocab_size=330, byte_fallback=True),
    "BPE, bytes": train("pairs", vocab_size=330, byte_fallback=True, model_type="bpe"),
    "Unigram": train("plain", vocab_size=70),
}
different = {}
for name, (model, other) in cases.items():
    ids = {text: (model.encode(text), list(other.encode(text, False))) for text in TEXTS}
    different[name] = [text for text, (want, seen) in ids.items() if want != seen]
    print(f"{name}: differ {different[name]}")
    for text in different[name]:
        print("   ", " | ".join(" ".join(model.id_to_piece(entries)) for entries in ids[text]))
model, other = cases["Unigram, bytes"]
back = other.decode(other.encode("fox Ж", False), False)
print("decoded:", repr(model.decode(model.encode("fox Ж"))), "kitoken:", back)

expected = {
    "Unigram, bytes": ["fox Ж", "fox ☃", "the\tdog"],
    "BPE, bytes": ["the\tdog"],
    "Unigram": ["the\tdog"],
}
reverse = [model.id_to_piece(number) for number in other.encode("fox Ж", False)][-2:] == ["<0x96>", "<0xD0>"]
sys.exit(different != expected or not reverse or back != b"fox \x96\xd0")
PYTHON
