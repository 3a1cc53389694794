#!/usr/bin/env bash
# sentence-transformers 6.2.0 (encode_document), transformers 5.23.0, torch 2.13.0. (Installs 5 GB.)
#
# Guess: a model with the prompts of E5, {"query": "query: ", "passage": "passage: "}, which is the example of the
#   argument's docstring, puts "passage: " before documents: encode_document "uses the first available prompt" of
#   document, passage, corpus.
# Seen: documents are read without a prompt, and nothing is said. Every model gets an empty prompt "document" beside
#   those given, or those saved in its folder, and an empty one counts as available: passage and corpus are never used.
#   encode_query and encode(prompt_name="passage") are right. The empty prompt is saved, too.
# What follows: name the prompt of documents "document".
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" sentence-transformers==6.2.0 \
    transformers==5.23.0 torch==2.13.0 tokenizers==0.23.3 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import numpy as np
from sentence_transformers import SentenceTransformer, __version__
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = ["passage", "query", ":", "a", "red", "cat", "[UNK]"]
TEXT = "a red cat"
tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()


def model_of(prompts: dict[str, str]) -> SentenceTransformer:
    """A model whose vectors are the words that it reads."""
    module = StaticEmbedding(tokenizer, embedding_weights=np.eye(len(WORDS), dtype=np.float32))
    return SentenceTransformer(modules=[module], prompts=prompts, device="cpu")


def read(vector: np.ndarray) -> str:
    return " ".join(word for word, weight in zip(WORDS, vector, strict=True) if weight)


e5 = model_of({"query": "query: ", "passage": "passage: "})
named = model_of({"query": "query: ", "document": "passage: "})
found = {
    "query": read(e5.encode_query(TEXT)),
    "document": read(e5.encode_document(TEXT)),
    "by name": read(e5.encode(TEXT, prompt_name="passage")),
    "named document": read(named.encode_document(TEXT)),
}
print(f"sentence-transformers {__version__}: words read of {TEXT!r}: {found}; prompts {e5.prompts}")
seen = ("query : a red cat", "a red cat", "passage : a red cat", "passage : a red cat")
sys.exit(tuple(found.values()) != seen)
PYTHON
HF_HUB_OFFLINE=1 "$place/venv/bin/python" -W ignore try.py
