#!/usr/bin/env bash
# local-attention 1.11.2 (LocalAttention, LocalMHA), torch 2.13.0. (Installs 5 GB.)
#
# Guess: autopad, which fills a text up to whole windows, changes nothing for the text's own entries: what it fills in
#   is attended by nobody.
# Seen: so it is with causal=True, and with a mask. An encoder (causal=False) that is called without a mask, as one text
#   alone, attends to the zeros that were filled in, each with a score of 0: the last two windows have other vectors,
#   also with LocalMHA, where autopad is always on. Lengths that are whole windows are right. In a padded batch with its
#   mask the same text has other vectors than alone; nothing warns.
# What follows: give it a mask of ones for single texts, which is right, or a length of whole windows.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    local-attention==1.11.2 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import torch
from local_attention import LocalAttention, LocalMHA

WINDOW = 8
torch.manual_seed(0)


def reference(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool) -> torch.Tensor:
    place = torch.arange(query.shape[2])
    seen = (place[:, None] // WINDOW - place // WINDOW).abs() <= 1
    if causal:
        seen &= place[:, None] >= place
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ value


off = {}
for causal in (True, False):
    attention = LocalAttention(window_size=WINDOW, causal=causal, autopad=True, use_rotary_pos_emb=False)
    for length in (16, 21):
        inputs = [torch.randn(1, 2, length, 16) for _ in range(3)]
        wanted, ones = reference(*inputs, causal), torch.ones(1, length, dtype=torch.bool)
        answers = attention(*inputs), attention(*inputs, mask=ones)
        off[causal, length] = [round(float((found - wanted).abs().max()), 3) for found in answers]
        print(f"causal={causal}, {length} entries: off by {off[causal, length]} without and with a mask of ones")

module = LocalMHA(dim=32, window_size=WINDOW, dim_head=16, heads=2, causal=False).eval()
batch, mask = torch.randn(2, 24, 32), torch.ones(2, 24, dtype=torch.bool)
mask[0, 21:] = False
with torch.no_grad():
    batched = module(batch, mask=mask)[0, :21]
    alone, masked = module(batch[:1, :21])[0], module(batch[:1, :21], mask=mask[:1, :21])[0]
apart = [round(float((found - batched).abs().max() / batched.abs().max()), 3) for found in (alone, masked)]
print(f"LocalMHA: a text alone is off by {apart[0]} of its largest value, with a mask by {apart[1]}")
wrong = off.pop((False, 21))
right = not wrong[1] and not apart[1] and all(value == [0, 0] for value in off.values())
sys.exit(not (right and wrong[0] > 0.1 and apart[0] > 0.05))
PYTHON
venv/bin/python try.py
