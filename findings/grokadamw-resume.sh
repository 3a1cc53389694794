#!/usr/bin/env bash
# grokadamw 0.1.2 (the optimizer behind `optim="grokadamw"` of transformers' Trainer), torch 2.13.0. (Installs 5 GB.)
#
# Guess: state_dict and load_state_dict carry a training on as if it had not stopped, as with AdamW.
# Seen: "state" of the state_dict is empty. The moments lie in param_groups, by the tensor object as the key; after a
#   load these are other objects, so that moments and step begin at zero, without a word, and after three resumes the
#   weights are off by more than a fifth of their way. What was loaded is neither used nor dropped, but saved
#   again: each resume adds weights and three moments to the file, which is then four times as large.
# What follows: choose another optimizer where a training may be interrupted.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" grokadamw==0.1.2 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import io
import sys
import warnings

import torch
from grokadamw import GrokAdamW

warnings.filterwarnings("ignore")  # of torch.cuda.amp
torch.set_num_threads(1)
STEPS = 10
seeded = torch.Generator().manual_seed(1)
inputs, targets = torch.randn(2, 4 * STEPS, 16, 64, generator=seeded)


def build(kind: type[torch.optim.Optimizer]) -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    return model, kind(model.parameters(), lr=1e-3)


def train(model: torch.nn.Linear, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
    for step in range(first, last):
        optimizer.zero_grad()
        (model(inputs[step]) - targets[step]).square().mean().backward()
        optimizer.step()


def compare(kind: type[torch.optim.Optimizer]) -> tuple[float, list[int], int]:
    straight, optimizer = build(kind)
    train(straight, optimizer, 0, 4 * STEPS)
    moved = (straight.weight - build(kind)[0].weight).abs().max()
    model, optimizer = build(kind)
    sizes = []
    for part in range(4):
        train(model, optimizer, part * STEPS, (part + 1) * STEPS)
        file = io.BytesIO()
        torch.save([model.state_dict(), optimizer.state_dict()], file)
        sizes.append(file.tell() // 1024)
        file.seek(0)
        weights, state = torch.load(file)
        model, optimizer = build(kind)
        model.load_state_dict(weights)
        optimizer.load_state_dict(state)
    return float((model.weight - straight.weight).abs().max() / moved), sizes, len(state["state"])


results = {kind.__name__: compare(kind) for kind in (torch.optim.AdamW, GrokAdamW)}
for name, (share, sizes, entries) in results.items():
    print(f"{name}: off by {share:.0%} of the way after three resumes; KiB of each file {sizes}; entries {entries}")
(right, same, two), (off, growing, none) = results.values()
grows = len(set(same)) == 1 and growing[-1] > 3.5 * growing[0]
sys.exit(not (right == 0 and off > 0.2 and grows and (two, none) == (2, 0)))
PYTHON
venv/bin/python try.py 2>&1
