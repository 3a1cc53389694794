#!/usr/bin/env bash
# minicons 0.3.39 (cwe.CWE), transformers 5.24.0, torch 2.13.0. (Installs 5 GB.)
#
# Guess: extract_representation([(sentence, (start, end))]) gives the vector of the word at those letters, as its
#   docstring says. That is the way to one of two occurrences of a word.
# Seen: the letters are cut out, tokenized on their own, and the last place with such tokens is taken. In "the bank of
#   the river lent money to the bank" both spans have the vector of the last word, and so has "bank" without a span.
#   extract_paired_representations gives that vector twice, so that the distance between the two is 0. A span within a
#   word, "house" of "boathouse", has the vector of another word that is written so.
# What follows: a study of a word in its contexts compares one place with itself. Take tokens by the offsets of the
#   tokenizer.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    minicons==0.3.39 transformers==5.24.0 tokenizers==0.23.3 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys
from pathlib import Path

import torch
from minicons.cwe import CWE
from transformers import BertConfig, BertModel, BertTokenizer

folder = Path("model")
folder.mkdir()
words = "[PAD] [UNK] [CLS] [SEP] [MASK] the bank of river lent money to near house boat ##house".split()
(folder / "vocab.txt").write_text("\n".join(words) + "\n")
BertTokenizer.from_pretrained(folder).save_pretrained(folder)
torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
config = BertConfig(vocab_size=len(words), initializer_range=0.3, max_position_embeddings=32, **sizes)
BertModel(config).save_pretrained(folder)
encoder = CWE("model")


def at_offsets(sentence: str, start: int, end: int) -> torch.Tensor:
    encoded = encoder.tokenizer(sentence, return_tensors="pt", return_offsets_mapping=True)
    offsets = encoded.pop("offset_mapping")[0].tolist()
    states = encoder.model(**encoded).hidden_states[-1][0]
    return states[[start <= first < last <= end for first, last in offsets]].mean(0)


def at_span(sentence: str, span: str | tuple[int, int]) -> torch.Tensor:
    return encoder.extract_representation([(sentence, span)])[0]


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, atol=1e-5)


river = "the bank of the river lent money to the bank"
first, last = (4, 8), (40, 44)
truth = [at_offsets(river, *span) for span in (first, last)]
same = [[equal(at_span(river, span), vector) for vector in truth] for span in (first, last, "bank")]
print("span of the first, of the last, the word; equal to the first, to the last:", same)
pair = encoder.extract_paired_representations([(river, first, last)])
print("paired: the two are equal:", torch.equal(*pair))
boat = "the boathouse near the house"
within = at_span(boat, (8, 13))
print("within a word, equal to that part:", equal(within, at_offsets(boat, 8, 13)))
print("within a word, equal to the other word:", equal(within, at_offsets(boat, 23, 28)))
lost = same == [[False, True]] * 3 and not equal(*truth) and torch.equal(*pair)
sys.exit(not (lost and not equal(within, at_offsets(boat, 8, 13)) and equal(within, at_offsets(boat, 23, 28))))
PYTHON
venv/bin/python try.py
