#!/usr/bin/env bash
# onnxruntime_extensions 0.15.2 (gen_processing_models) with onnxruntime 1.32.0, beside transformers 5.24.0.
#
# Guess: the ONNX graph that is made from a BertTokenizer gives its ids.
# Seen: an uncased tokenizer drops accents unless told otherwise (strip_accents=None), the graph keeps them: "Café" is
#   an entry that an uncased vocabulary does not have. With strip_accents=True it drops those of Latin letters alone:
#   Greek and Cyrillic words keep theirs, Devanagari its marks. Cased and uncased, the full-width comma and brackets,
#   the Arabic comma and the danda divide no words: "a，b" is one unknown word.
# What follows: compare ids on the languages that are served; write strip_accents into uncased tokenizers.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    onnxruntime_extensions==0.15.2 onnxruntime==1.32.0 onnx==1.23.2 transformers==5.24.0
cat > "$work/try.py" <<'PY'
import sys

import numpy as np
import onnxruntime
from onnxruntime_extensions import gen_processing_models, get_library_path
from transformers import BertTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "cafe café muller müller привет ελλαδα ελλάδα нои ной a b ， （ ） ، । है Café ελλάδα 你 好 .".split()
vocabulary = {entry: number for number, entry in enumerate(dict.fromkeys(SPECIAL + WORDS))}
TEXTS = ["cafe. Привет", "你好.", "Café Müller", "Ελλάδα", "ной", "a，b", "a（b）", "a، b", "है।"]
found = {}
for name, settings in {
    "uncased": {"do_lower_case": True},
    "uncased, strip_accents": {"do_lower_case": True, "strip_accents": True},
    "cased": {"do_lower_case": False},
}.items():
    tokenizer = BertTokenizer(vocab=vocabulary, **settings)
    graph = gen_processing_models(tokenizer, pre_kwargs={})[0]
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found[name] = []
    for text in TEXTS:
        want = tokenizer(text)["input_ids"]
        got = session.run(["input_ids"], {"text": np.array([text])})[0].ravel().tolist()
        if want != got:
            found[name].append(text)
            print(f"{name}: {text}", *(tokenizer.convert_ids_to_tokens(ids[1:-1]) for ids in (want, got)))
punctuation = ["a，b", "a（b）", "a، b", "है।"]
seen = {
    "uncased": ["Café Müller", "Ελλάδα", "ной", *punctuation],
    "uncased, strip_accents": ["Ελλάδα", "ной", *punctuation],
    "cased": punctuation,
}
sys.exit(found != seen)
PY
"$work/venv/bin/python" -W ignore "$work/try.py" 2> "$work/errors" || { cat "$work/errors"; exit 1; }
