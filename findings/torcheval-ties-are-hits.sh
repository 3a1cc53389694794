#!/usr/bin/env bash
# torcheval 0.0.7 (HitRate, ReciprocalRank, MulticlassAccuracy with k > 1), torch 2.13.0. (Installs 5 GB.)
#
# Guess: of scores that are all equal, or NaN, a measure is that of chance, or 0, or NaN; accuracy at k is at least near
#   what torch.topk gives.
# Seen: the rank is the number of greater scores, so that ties are won. A collapsed encoder, which gives the same score
#   for each candidate, has hit rate 1.0, reciprocal rank 1.0 and top-3 accuracy 1.0, and one whose scores are NaN too;
#   with k=1 accuracy is that of chance. bfloat16 makes ties: of cosines about 0.97 to 1,000 candidates the hit rate is
#   three times that of float32.
# What follows: a diverged or collapsed training looks perfect, and retrieval in bfloat16 too good. Take float32
#   scores, look for NaN, and count by torch.topk.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" torcheval==0.0.7 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import torch
from torcheval.metrics import HitRate, MulticlassAccuracy, ReciprocalRank

torch.manual_seed(0)
right = torch.arange(100) % 10


def measures(scores: torch.Tensor) -> list[float]:
    values = []
    for metric in (HitRate(k=1), ReciprocalRank(), MulticlassAccuracy(k=3), MulticlassAccuracy()):
        values.append(round(float(metric.update(scores, right).compute().mean()), 2))
    return values


GIVEN = {"equal": torch.full((100, 10), 0.7), "NaN": torch.full((100, 10), torch.nan), "random": torch.randn(100, 10)}
seen = {name: measures(scores) for name, scores in GIVEN.items()}
for name, values in seen.items():
    print(f"{name} scores: hit rate at 1, reciprocal rank, accuracy at 3 and at 1: {values}")

cosines, answers = 0.97 + 0.003 * torch.randn(2000, 1000), torch.randint(0, 1000, (2000,))
cosines[torch.arange(2000), answers] += 0.003
found = [float(HitRate(k=1).update(given, answers).compute().mean()) for given in (cosines, cosines.bfloat16())]
found.append(float((cosines.bfloat16().argmax(1) == answers).float().mean()))
shares = [round(100 * value, 1) for value in found]
print(f"hit rate of cosines in per cent: float32 {shares[0]}, bfloat16 {shares[1]}, argmax of bfloat16 {shares[2]}")
ideal = [1.0, 1.0, 1.0, 0.1]
won = shares[1] > 2 * max(shares[0], shares[2])
sys.exit(not (seen["equal"] == seen["NaN"] == ideal and seen["random"][1] < 0.5 and won))
PYTHON
venv/bin/python try.py
