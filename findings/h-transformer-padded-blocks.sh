#!/usr/bin/env bash
# h-transformer-1d 0.1.9 (HTransformer1D, HAttention1D, an encoder with causal=False), torch 2.13.0. (Installs 5 GB.)
#
# Guess: `mask` leaves padding out of attention: what stands in masked places changes nothing for the text.
# Seen: so it is where the padding begins and ends in one block. Where a block that is looked at is padding as a whole,
#   each of its places has a weight of 1, the greatest that a place can have, since the maximum of a row is taken off
#   after all its scores were masked. Blocks are looked at in pairs, so that it is texts with an odd number of them that
#   change with the id of the padding, by an eighth to a fifth of the largest logit.
# What follows: fill texts up to an even number of blocks with places that the mask shows, or choose another attention.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    h-transformer-1d==0.1.9 rotary-embedding-torch==0.9.1 einops==0.8.2 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys
import warnings

import torch
from h_transformer_1d import HTransformer1D

warnings.filterwarnings("ignore")
BLOCK, LENGTH, PADDING = 8, 64, 0
torch.manual_seed(0)
model = HTransformer1D(
    num_tokens=100, dim=64, depth=2, heads=4, dim_head=16, causal=False, max_seq_len=LENGTH, block_size=BLOCK
).eval()


def change(length: int) -> float:
    """Return by how much of their size the logits of a text change where other ids stand in masked places."""
    torch.manual_seed(length)
    ids = torch.randint(1, 100, (1, LENGTH))
    mask = torch.arange(LENGTH)[None] < length
    with torch.no_grad():
        first, second = (model(torch.where(mask, ids, fill), mask=mask)[0, :length] for fill in (PADDING, 1))
    return round(float((first - second).abs().max() / first.abs().max()), 3)


seen = {length: change(length) for length in (64, 63, 60, 57, 48, 40, 24, 16)}
for length, share in seen.items():
    print(f"text of {length} in {LENGTH} places, blocks of {BLOCK}: off by {share} of the largest value")
kept = all(seen[length] < 1e-3 for length in (64, 63, 60, 57, 48, 16))
sys.exit(not (kept and seen[40] > 0.05 and seen[24] > 0.05))
PYTHON
venv/bin/python try.py
