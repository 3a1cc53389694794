#!/usr/bin/env bash
# transformers 5.24.0 (DataCollatorForLanguageModeling), torch 2.13.0. (Installs 5 GB.)
#
# Guess: with `seed` the masks are drawn anew in each epoch, and a second run draws the same: dynamic masking that can
#   be repeated. The number of DataLoader workers changes which, not whether.
# Seen: so it is with num_workers=0. With workers each epoch has the masks of the first, token by token, where rows come
#   in the same order (a stream): workers are started anew for each epoch, and each takes the generator from seed and
#   worker number. Shuffled, the n-th batch has its mask at the same places in each epoch. Without `seed`, and with
#   persistent_workers=True, masks differ.
# What follows: a training of many epochs has static masks. Set persistent_workers=True
#   (Trainer: dataloader_persistent_workers).
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    transformers==5.24.0 tokenizers==0.23.3 torch==2.13.0
cd "$place"
cat > try.py <<'PYTHON'
import sys

import torch
from tokenizers import Tokenizer, models
from torch.utils.data import DataLoader
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
vocabulary = {entry: number for number, entry in enumerate([*SPECIAL, *(f"word{number}" for number in range(50))])}
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]")),
    pad_token="[PAD]",
    unk_token="[UNK]",
    cls_token="[CLS]",
    sep_token="[SEP]",
    mask_token="[MASK]",
)
rows = [{"input_ids": [5 + (row + place) % 50 for place in range(40)]} for row in range(16)]


def epochs(seed: int | None, **options) -> list[torch.Tensor]:
    """Return where three epochs over the rows have labels, each `(16, 40)`."""
    torch.manual_seed(0)
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3, seed=seed)
    loader = DataLoader(rows, batch_size=4, collate_fn=collate, **options)
    return [torch.cat([batch["labels"] for batch in loader]) != -100 for _ in range(3)]


cases = {
    "seed, no workers": epochs(42),
    "seed, 2 workers": epochs(42, num_workers=2),
    "seed, 2 persistent workers": epochs(42, num_workers=2, persistent_workers=True),
    "no seed, 2 workers": epochs(None, num_workers=2),
    "seed, 2 workers, shuffled": epochs(42, num_workers=2, shuffle=True),
}
same = {name: all(torch.equal(masks[0], later) for later in masks[1:]) for name, masks in cases.items()}
for name, answer in same.items():
    print(f"{name}: masks of three epochs are {'the same' if answer else 'different'}")
sys.exit(list(same.values()) != [False, True, False, False, True])
PYTHON
venv/bin/python try.py
