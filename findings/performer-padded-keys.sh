#!/usr/bin/env bash
# performer-pytorch 1.1.4 (Performer, PerformerLM), torch 2.13.0. (Installs 5 GB.)
#
# Guess: `mask` leaves padding out of attention, so that a text has the same vectors alone and padded in a batch, as
#   with softmax attention and with the package's causal mode, whose padding comes last.
# Seen: the mask makes the values of padding 0, but its keys stay in the sum that attention is divided by. Each layer's
#   output shrinks by the share of padding: of 6 entries beside 18 of padding it is a quarter, with
#   generalized_attention=True too, whatever the number of random features. Two layers change a vector by as much as
#   its own size. All lengths equal is right; nothing warns.
# What follows: vectors and losses of an encoder depend on the longest text of the batch. Make batches of equal length,
#   without padding.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    performer-pytorch==1.1.4 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import torch
from performer_pytorch import PerformerLM, SelfAttention

LENGTH, PADDING, WIDTH = 6, 18, 64
torch.manual_seed(0)
# One vector in all entries, so that each key has the same share, also those of padding.
longer = torch.randn(1, 1, WIDTH).repeat(1, LENGTH + PADDING, 1)
text = longer[:, :LENGTH]
mask = torch.arange(LENGTH + PADDING)[None] < LENGTH

shares = []
for generalized in (False, True):
    layer = SelfAttention(WIDTH, heads=4, dim_head=16, nb_features=512, generalized_attention=generalized).eval()
    with torch.no_grad():
        alone = layer(text) - layer.to_out.bias
        beside = layer(longer, mask=mask)[:, :LENGTH] - layer.to_out.bias
    shares.append((beside.norm() / alone.norm()).item())
    print(f"generalized_attention={generalized}: output beside {PADDING} of padding, of that alone: {shares[-1]:.3f}")

ids = torch.randint(1, 50, (1, LENGTH))
model = PerformerLM(num_tokens=50, max_seq_len=64, dim=WIDTH, depth=2, heads=4, dim_head=16, nb_features=512).eval()
with torch.no_grad():
    whole = torch.ones(1, LENGTH, dtype=torch.bool)
    alone = model(ids, mask=whole, return_encodings=True)
    again = model(ids, return_encodings=True)
    more = torch.cat([ids, torch.zeros(1, PADDING, dtype=torch.long)], dim=1)
    beside = model(more, mask=mask, return_encodings=True)[:, :LENGTH]
change = ((alone - beside).norm() / alone.norm()).item()
print(f"encoder of two layers: change by padding {change:.2f}, by a mask of ones {(alone - again).abs().max():.1e}")
exact = all(abs(share - LENGTH / (LENGTH + PADDING)) < 0.01 for share in shares)
sys.exit(not (exact and change > 0.05 and torch.allclose(alone, again, atol=1e-5)))
PYTHON
venv/bin/python try.py
