#!/usr/bin/env bash
# torchmetrics 1.9.0 (Matthews correlation, the measure of CoLA), scikit-learn 1.9.1, torch 2.13.0. (Installs 5 GB.)
#
# Guess: a classifier that gives one class to all has a correlation of 0, as in scikit-learn.
# Seen: with two classes it is not 0. Where all are predicted negative it is 0.985 for one positive in 100 and 0.31 for
#   ten in 1,000: the fewer of the class that is looked for, the better the useless classifier. Where all are predicted
#   to be the commoner class the value is positive, else negative. A batch whose texts are all of one class has such a
#   value too: one mistake among five gives 0.67. BinaryMatthewsCorrCoef and the multiclass one with two classes are
#   alike; with num_classes=3 the same predictions have 0.
# What follows: a collapsed training is chosen as the best checkpoint. Count the predicted classes, or take
#   scikit-learn's.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    torchmetrics==1.9.0 scikit-learn==1.9.1 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys
import warnings

import torch
from sklearn.metrics import matthews_corrcoef
from torchmetrics.classification import BinaryMatthewsCorrCoef, MulticlassMatthewsCorrCoef

warnings.filterwarnings("ignore")


def measure(predicted: list[int], right: list[int]) -> list[float]:
    pair = torch.tensor(predicted), torch.tensor(right)
    values = [float(metric(*pair)) for metric in (BinaryMatthewsCorrCoef(), MulticlassMatthewsCorrCoef(num_classes=2))]
    values += [float(MulticlassMatthewsCorrCoef(num_classes=3)(*pair)), float(matthews_corrcoef(right, predicted))]
    return [round(value, 3) for value in values]


seen = {}
print("binary, two classes, three classes, scikit-learn:")
for positive, negative in ((1, 99), (10, 990), (100, 900), (900, 100), (50, 50)):
    right = [1] * positive + [0] * negative
    seen[positive, negative] = [measure([label] * len(right), right) for label in (0, 1)]
    for label, values in enumerate(seen[positive, negative]):
        print(f"{positive} positive, {negative} negative, all predicted {label}: {values}")
batch = measure([1, 1, 1, 1, 0], [1] * 5)
useful = measure([1] + [0] * 99, [1, 1] + [0] * 98)
print(f"five positive with one mistake: {batch}; both classes in both: {useful}")
rare, many = seen[1, 99][0], seen[900, 100][1]
zeros = all(values[2:] == [0, 0] for pair in seen.values() for values in pair) and batch == [0.671, 0.671, 0, 0]
same = len(set(useful)) == 1 and useful[0] == 0.704
sys.exit(not (zeros and same and rare[:2] == [0.985, 0.985] and seen[10, 990][0][0] > 0.3 and many[0] > 0.08))
PYTHON
venv/bin/python try.py
