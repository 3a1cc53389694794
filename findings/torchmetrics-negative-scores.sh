#!/usr/bin/env bash
# torchmetrics 1.9.0 (retrieval metrics), torch 2.13.0. (Installs 5 GB.)
#
# Guess: measures of a ranking depend on the order of the scores alone: cosines, dot products, logits of a cross-encoder
#   or distances with a minus have the values that the same scores plus a constant have.
# Seen: RetrievalMRR, RetrievalMAP, RetrievalPrecision and RetrievalRecall take a relevant document whose score is 0 or
#   less as not found, though it is the first of the ranking. With all scores negative they are 0. RetrievalHitRate,
#   RetrievalNormalizedDCG, RetrievalRPrecision and RetrievalFallOut take the order alone, so that the measures of one
#   run do not fit each other. The documentation says "estimated probabilities"; nothing warns.
# What follows: give it sigmoid or a shift, (score + 1) / 2 for cosines, before.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import torch
from torchmetrics import retrieval

NAMES = "MRR MAP Precision Recall HitRate NormalizedDCG RPrecision FallOut".split()
scores = torch.tensor([-0.1, -0.2, -0.3, -0.4])
relevant = torch.tensor([1, 0, 1, 0])
query = torch.zeros(4, dtype=torch.long)
affected = []
for name in NAMES:
    metric = getattr(retrieval, "Retrieval" + name)(**({} if name in ("MRR", "MAP", "RPrecision") else {"top_k": 2}))
    negative, moved = (round(metric(given, relevant, indexes=query).item(), 3) for given in (scores, (scores + 1) / 2))
    print(f"{name}: {negative} of negative scores, {moved} of the same order between 0 and 1")
    affected += [name] if negative != moved else []
sys.exit(affected != ["MRR", "MAP", "Precision", "Recall"])
PYTHON
venv/bin/python try.py
