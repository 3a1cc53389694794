#!/usr/bin/env bash
# minicons 0.3.39 (cwe.CWE), transformers 5.24.0, torch 2.13.0. (Installs 5 GB.)
#
# Guess: extract_sentence_representation gives one vector for each sentence, the mean, minimum or maximum of its tokens,
#   and the same whether it comes alone or with longer ones.
# Seen: pooler="max" and "min" go over the sentences, not over the tokens: of two sentences come as many vectors as
#   the longer has tokens. The mean divides by the number of ids that are not 0, which is right where padding has id
#   0, as BERT's. RoBERTa's, XLM-R's and ModernBERT's is another: beside a longer sentence padding is counted, and the
#   vector is shorter; where <s> is 0, as RoBERTa's, a sentence alone has a token too few.
# What follows: distances other than the cosine change with the batch. Pool by the attention mask yourself.
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

import torch
from minicons.cwe import CWE
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaModel

words = "<s> <pad> </s> <unk> <mask> the cat sat old man saw sea and sun rose over hill".split()
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
names = {"bos_token": "<s>", "cls_token": "<s>", "sep_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>"}
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", mask_token="<mask>", **names)
fast.model_input_names = ["input_ids", "attention_mask"]
fast.save_pretrained("model")
torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
config = RobertaConfig(vocab_size=len(words), initializer_range=0.3, max_position_embeddings=66, **sizes)
RobertaModel(config).save_pretrained("model")
encoder = CWE("model")
short, long = "the cat sat", "the old man saw the sea and the sun rose over the hill"


def vectors(*sentences: str, pooler: str = "mean") -> torch.Tensor:
    return encoder.extract_sentence_representation(list(sentences), layer=2, pooler=pooler)


states = encoder.model(**encoder.tokenizer(short, return_tensors="pt")).hidden_states[2][0]
mean = states.mean(0)
alone = (vectors(short)[0] / mean).mean().item()
beside = (vectors(short, long)[0] / mean).mean().item()
tokens, padded = len(states), len(encoder.tokenizer(long)["input_ids"])
print(f"tokens {tokens}, padded {padded}; mean alone {alone:.3f}, beside the longer {beside:.3f} of what it should be")
shapes = {pooler: tuple(vectors(short, long, pooler=pooler).shape) for pooler in ("mean", "min", "max")}
print("shapes for two sentences:", shapes)
# Each <s> is left out of the count, each <pad> is in it.
counted = abs(alone - tokens / (tokens - 1)) < 1e-3 and abs(beside - tokens / (padded - 1)) < 1e-3
sys.exit(not (counted and shapes == {"mean": (2, 32), "min": (padded, 32), "max": (padded, 32)}))
PYTHON
venv/bin/python try.py
