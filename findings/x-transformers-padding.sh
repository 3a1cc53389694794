#!/usr/bin/env bash
# x-transformers 2.31.10 (Encoder), torch 2.13.0. (Installs 5 GB.)
#
# Guess: with `mask` an encoder's text has the same vectors alone and padded, whatever options it has: each of those
#   tried takes entries one by one, or by the attention that is masked.
# Seen: so it is with some thirty options (rotary, ALiBi and relative positions, memory, gates, residual streams ...),
#   and not with two. shift_tokens gives the mask to the attention layers alone: in feed-forward layers the last word
#   is mixed with what stands behind it, so that even the id of the padding matters. attn_orthog_projected_values takes
#   the whole padded sequence for one vector when it projects: each entry then depends on all, also on padding, by
#   other ways than attention; with attn_orthog_projected_values_per_head too. Nothing warns.
# What follows: leave both out of encoders that get batches of texts of different lengths.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    x-transformers==2.31.10 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import torch
from x_transformers import Encoder, TransformerWrapper

LENGTH, PADDING, VOCABULARY = 7, 9, 50
OPTIONS = [
    {},
    {"rotary_pos_emb": True},
    {"alibi_pos_bias": True},
    {"rel_pos_bias": True},
    {"attn_num_mem_kv": 4},
    {"attn_gate_values": True},
    {"num_residual_streams": 4},
    {"shift_tokens": 1},
    {"attn_orthog_projected_values": True},
    {"attn_orthog_projected_values_per_head": True},
]
torch.manual_seed(0)
ids = torch.randint(1, VOCABULARY, (1, LENGTH))
mask = torch.arange(LENGTH + PADDING)[None] < LENGTH


def change(options: dict, padding: int) -> tuple[float, float]:
    """Return how far padding moves the vectors of the text, and how far another id of padding does."""
    torch.manual_seed(1)
    layers = Encoder(dim=32, depth=2, heads=4, attn_dim_head=8, **options)
    model = TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=64, attn_layers=layers).eval()
    with torch.no_grad():
        alone = model(ids, mask=mask[:, :LENGTH], return_embeddings=True)
        padded = [torch.cat([ids, torch.full((1, PADDING), fill)], dim=1) for fill in (0, padding)]
        zeros, others = (model(text, mask=mask, return_embeddings=True)[:, :LENGTH] for text in padded)
    return (alone - zeros).abs().max().item(), (others - zeros).abs().max().item()


found = {" ".join(options) or "none": change(options, padding=5) for options in OPTIONS}
for name, (moved, other) in found.items():
    print(f"{name}: padded {moved:.4f}, other padding {other:.4f}")
bad = {name for name, moves in found.items() if max(moves) > 1e-4}
sys.exit(not (bad == {" ".join(options) for options in OPTIONS[7:]} and all(min(found[name]) > 0.01 for name in bad)))
PYTHON
venv/bin/python try.py
