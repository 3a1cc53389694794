#!/usr/bin/env bash
# torchmetrics 1.9.0 (InfoLM, infolm), transformers 5.24.0, torch 2.13.0. (Installs 5 GB.)
#
# Guess: sentence-level scores of the masked-language-model measure are those of each prediction with its own target,
#   whatever else is in the list; the defaults, idf=True and batches of 64, work for any number of sentences.
# Seen: predictions and targets are each sorted by length, and "unsorted" by the same permutation again, not by its
#   inverse. With three sentences or more most pairs are of different rows: p1 with t0, p2 with t1, p0 with t2. A pair
#   of equal sentences keeps 0 only where both lists have the lengths in the same order; the mean is wrong as well.
#   bert_score does the same. With idf=True, as unless told, more sentences than one batch has raise RuntimeError
#   ("The size of tensor a (5) must match ..."): weights are not cut to the batch's longest text, ids are.
# What follows: call it pair by pair, or sort pairs yourself so that both lists grow in length.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    torchmetrics==1.9.0 transformers==5.24.0 tokenizers==0.23.3 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import logging
import sys
import warnings
from pathlib import Path

import torch
from torchmetrics.functional.text import bert_score, infolm
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
folder = Path("model")
folder.mkdir()
words = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on a mat old man saw sea ship was calm and red".split()
(folder / "vocab.txt").write_text("\n".join(words) + "\n")
BertTokenizer.from_pretrained(folder).save_pretrained(folder)
torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
config = BertConfig(vocab_size=len(words), initializer_range=0.3, max_position_embeddings=32, **sizes)
BertForMaskedLM(config).save_pretrained(folder)
predictions = ["the cat sat on a mat", "the old man saw the sea and the old ship", "the sea"]
targets = ["a cat sat", "an old man saw a red ship", "the sea was calm"]
options = {"model_name_or_path": "model", "max_length": 32, "verbose": False}


def infolm_of(some: list[str], others: list[str]) -> list[float]:
    measure = {"information_measure": "l2_distance", "return_sentence_level_score": True}
    return infolm(some, others, idf=False, **measure, **options)[1].tolist()


def bert_score_of(some: list[str], others: list[str]) -> list[float]:
    scores = bert_score(some, others, num_layers=2, truncation=True, **options)["f1"]
    return torch.atleast_1d(scores).tolist()


def rows(score) -> list[str]:
    """Name, for each score of the whole list, the pair of sentences that has it."""
    pairs = {(i, j): score([p], [t])[0] for i, p in enumerate(predictions) for j, t in enumerate(targets)}
    named = []
    for value in score(predictions, targets):
        nearest = min(pairs, key=lambda pair: abs(pairs[pair] - value))
        named.append("p{}-t{}".format(*nearest) if abs(pairs[nearest] - value) < 1e-4 else "none")
    return named


found = {score.__name__: rows(score) for score in (infolm_of, bert_score_of)}
print(found)
try:
    infolm(predictions, targets, batch_size=2, **options)
    error = ""
except RuntimeError as problem:
    error = str(problem)
print("idf=True, two batches:", error)
shifted = ["p1-t0", "p2-t1", "p0-t2"]
sys.exit(not (found == {"infolm_of": shifted, "bert_score_of": shifted} and "must match the size" in error))
PYTHON
venv/bin/python try.py
