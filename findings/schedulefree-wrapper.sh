#!/usr/bin/env bash
# schedulefree 1.4.1 (ScheduleFreeWrapper, ScheduleFreeWrapperReference), torch 2.13.0. (Installs 5 GB.)
#
# Guess: "Wrap any optimizer to make it Schedule-Free" holds for those of torch, at the least for RMSprop, which its
#   docstring wraps.
# Seen: the first step raises KeyError for AdamW, Adam, NAdam, RAdam, Adamax, RMSprop, Adadelta, Adafactor and Rprop:
#   the wrapper puts its z into the state of a weight first, and these make their moments where the state is empty.
#   SGD, Adagrad (which makes them when it is built) and Muon (which asks for its key) work.
# What follows: take AdamWScheduleFree, or let the bare optimizer take one step of learning rate 0 before it is wrapped.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    schedulefree==1.4.1 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import schedulefree
import torch

WRAPPERS = (schedulefree.ScheduleFreeWrapper, schedulefree.ScheduleFreeWrapperReference)
FAIL = "AdamW Adam NAdam RAdam Adamax RMSprop Adadelta Adafactor Rprop".split()
WORK = "SGD Adagrad Muon".split()


def step(name: str, wrapper: type, first: bool = False) -> str:
    model = torch.nn.Linear(8, 4, bias=False)
    model(torch.ones(2, 8)).square().mean().backward()
    base = getattr(torch.optim, name)(model.parameters(), lr=1e-3)
    if first:
        base.param_groups[0]["lr"] = 0.0
        base.step()
        base.param_groups[0]["lr"] = 1e-3
    optimizer = wrapper(base, momentum=0.9)
    optimizer.train()
    try:
        optimizer.step()
    except KeyError as error:
        return f"KeyError {error}"
    return "works"


seen = {name: {step(name, wrapper) for wrapper in WRAPPERS} for name in (*FAIL, *WORK)}
for name, answers in seen.items():
    print(f"{name}: {', '.join(answers)}")
after = [step(name, WRAPPERS[0], first=True) for name in FAIL]
print("after a step of the bare optimizer:", set(after))
failed = all(answer.startswith("KeyError") for name in FAIL for answer in seen[name])
sys.exit(not (failed and all(seen[name] == {"works"} for name in WORK) and set(after) == {"works"}))
PYTHON
venv/bin/python try.py
