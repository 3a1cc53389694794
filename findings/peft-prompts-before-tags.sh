#!/usr/bin/env bash
# peft 0.21.2 (prompt tuning and P-tuning, TaskType.TOKEN_CLS), transformers 5.24.0, torch 2.13.0. (Installs 5 GB.)
#
# Guess: a tagger with virtual tokens is called as one with LoRA: labels of the text give a loss, and there is a row of
#   logits for each token.
# Seen: with labels each call raises ValueError ("Expected input batch_size (896) to match target batch_size (640)"),
#   so that no Trainer trains it: the virtual tokens are in the logits, not in the labels. Without labels their rows
#   come first, so the n-th row is not the n-th token's. A tagger that was trained on the right rows has every tag
#   right, and one in three by place, as chance has. Labels that are filled up at the end fit, and train it on the wrong
#   tokens. LoRA is right.
# What follows: put num_virtual_tokens times -100 before the labels, and drop as many rows from the logits.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    peft==0.21.2 transformers==5.24.0 tokenizers==0.23.3 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import logging
import sys
import warnings

import torch
from peft import LoraConfig, PromptEncoderConfig, PromptTuningConfig, TaskType, get_peft_model
from transformers import BertConfig, BertForTokenClassification

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
ROWS, LENGTH, VIRTUAL, TAGS = 64, 10, 4, 3
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
torch.manual_seed(0)
ids = torch.randint(5, 20, (ROWS, LENGTH))
tags = ids % TAGS
text = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def tagger(kind: type, **options: int) -> tuple[str, int, float, float]:
    """Return the error with labels, the rows of logits, and the share of right tags by place and after the prompt."""
    torch.manual_seed(1)
    config = BertConfig(vocab_size=20, num_labels=TAGS, max_position_embeddings=64, **SIZES)
    model = get_peft_model(BertForTokenClassification(config), kind(task_type=TaskType.TOKEN_CLS, **options)).eval()
    before = options.get("num_virtual_tokens", 0)
    try:
        model(**text, labels=tags)
        error = ""
    except ValueError as problem:
        error = str(problem)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=0.02)
    labels = torch.nn.functional.pad(tags, (before, 0), value=-100)
    for _ in range(200):
        model(**text, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        found = model(**text).logits.argmax(-1)
    by_place, after = ((found[:, first : first + LENGTH] == tags).float().mean().item() for first in (0, before))
    return error, found.shape[1], by_place, after


prompt = tagger(PromptTuningConfig, num_virtual_tokens=VIRTUAL)
encoder = tagger(PromptEncoderConfig, num_virtual_tokens=VIRTUAL, encoder_hidden_size=32)
lora = tagger(LoraConfig)
for name, result in {"prompt tuning": prompt, "P-tuning": encoder, "LoRA": lora}.items():
    print(f"{name}: {result}")
seen = all(
    "match target batch_size" in error and rows == LENGTH + VIRTUAL and by_place < 0.6 and after > 0.95
    for error, rows, by_place, after in (prompt, encoder)
)
sys.exit(not (seen and not lora[0] and lora[1] == LENGTH and lora[2] > 0.95))
PYTHON
venv/bin/python try.py
