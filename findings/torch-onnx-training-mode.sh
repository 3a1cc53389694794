#!/usr/bin/env bash
# torch 2.13.0 (torch.onnx.export with dynamo=False), onnx 1.23.2, onnxscript 0.7.2. (Installs 5 GB.)
#
# Guess: an export leaves each module in the mode that it was in. The mode is changed for the trace, and set back.
# Seen: what is set back is the mode of the module that was given, for all in it. An encoder in eval(), given within a
#   new module that picks one output, is in training mode afterwards: the same input has another vector each time, by
#   dropout, and a check against the graph, which is right, fails. In a training that exports now and then, frozen
#   parts in eval() drop from then on. dynamo=True, torch.jit.trace and torch.export leave modes as they were.
# What follows: call eval() on the outermost module, and on frozen parts again after the export.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" torch==2.13.0 onnx==1.23.2 \
    onnxscript==0.7.2 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import torch
from torch import nn

IDS = torch.arange(12).view(2, 6)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings, self.dropout = nn.Embedding(12, 8), nn.Dropout(0.1)
        self.layer = nn.Linear(8, 8)

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"hidden": self.layer(self.dropout(self.embeddings(ids)))}


class FirstVector(nn.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.encoder(ids)["hidden"][:, 0]


def export(model: nn.Module, dynamo: bool) -> None:
    torch.onnx.export(model, (IDS,), "model.onnx", dynamo=dynamo, verbose=False)


def after(dynamo: bool, wrapped_eval: bool = False) -> tuple[bool, bool]:
    """Whether an encoder in eval() trains once it was exported in another module, and its vectors are equal."""
    torch.manual_seed(0)
    encoder = Encoder().eval()
    before = encoder(IDS)["hidden"]
    model = FirstVector(encoder)
    export(model.eval() if wrapped_eval else model, dynamo)
    return encoder.training, torch.equal(encoder(IDS)["hidden"], before)


frozen = Encoder().eval()
training = nn.Sequential(FirstVector(frozen), nn.Linear(8, 2))
training.train()
frozen.eval()
export(training, dynamo=False)
seen = {"dynamo=False": after(False), "dynamo=True": after(True), "outer eval()": after(False, wrapped_eval=True)}
for name, (trains, equal) in seen.items():
    print(f"{name}: the encoder trains {trains}, same vectors {equal}")
print("frozen part of a training model trains:", frozen.training)
right = seen["dynamo=True"] == seen["outer eval()"] == (False, True)
sys.exit(not (seen["dynamo=False"] == (True, False) and right and frozen.training))
PYTHON
venv/bin/python -W ignore try.py 2> log || { cat log; exit 1; }
