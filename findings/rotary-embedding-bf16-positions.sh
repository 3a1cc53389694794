#!/usr/bin/env bash
# rotary-embedding-torch 0.9.1, torch 2.13.0. (Installs 5 GB.)
#
# Guess: angles are made of float32 positions, since the module turns autocast off where it makes them; of bfloat16
#   queries each position has its own rotation, but for rounding.
# Seen: positions are counted in the queries' type, and bfloat16 has no odd numbers above 256: of 2,048 positions 1,407
#   have the rotation of the one before, above 1,024 eight in a row. Under autocast queries are bfloat16, so that
#   it is the usual case. The angles are then kept: a float32 call afterwards, as in an evaluation, has them too.
#   float16 is right up to 2,048.
# What follows: an encoder for long texts loses the order of near words. Call it once with float32 zeros of the longest
#   length, in the constructor: then its angles are kept, which is right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    rotary-embedding-torch==0.9.1 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import torch
from rotary_embedding_torch import RotaryEmbedding

LENGTH = 2048
ones = torch.ones(1, 1, LENGTH, 32)


def repeated(rotated: torch.Tensor) -> int:
    rows = rotated[0, 0]
    return int((rows[1:] == rows[:-1]).all(-1).sum())


seen = {"float32": repeated(RotaryEmbedding(dim=32).rotate_queries_or_keys(ones))}
seen["float16"] = repeated(RotaryEmbedding(dim=32).rotate_queries_or_keys(ones.half()))
module = RotaryEmbedding(dim=32)
with torch.autocast("cpu", dtype=torch.bfloat16):
    queries = torch.nn.functional.linear(ones, torch.eye(32))
    seen[f"autocast, {queries.dtype}"] = repeated(module.rotate_queries_or_keys(queries))
seen["float32, afterwards"] = repeated(module.rotate_queries_or_keys(ones))
warm = RotaryEmbedding(dim=32)
warm.rotate_queries_or_keys(torch.zeros(1, 1, LENGTH, 32))
seen["bfloat16 after float32"] = repeated(warm.rotate_queries_or_keys(ones.bfloat16()))
for name, count in seen.items():
    print(f"{name}: {count} of {LENGTH} positions have the rotation of the position before")
sys.exit(list(seen.values()) != [0, 0, 1407, 1407, 0])
PYTHON
venv/bin/python try.py
