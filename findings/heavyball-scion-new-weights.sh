#!/usr/bin/env bash
# heavyball 3.2.1 (Scion), transformers 5.24.0, torch 2.13.0. (Installs 5 GB.)
#
# Guess: an optimizer changes weights by its steps: with a learning rate of 0 not at all, with a small one little. A
#   pre-trained encoder is fine-tuned, as with the Muon of the same package, or with Scion's own code, whose init() is
#   a call of its own.
# Seen: the first step draws the weights anew, whatever the learning rate: matrices and embeddings orthogonal, by fixed
#   seeds, all vectors 0, also the scales of layer norms, so that the encoder gives zeros for each text. Nothing of the
#   checkpoint is left. Nothing is said, neither by the docstring nor by a warning; the loss goes down again from there.
# What follows: an encoder "fine-tuned" so was trained from nothing. Take Muon for weights that are to be kept.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    heavyball==3.2.1 transformers==5.24.0 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import heavyball
import torch
from transformers import BertConfig, BertModel

SIZES = dict(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
IDS = torch.arange(5, 17).view(1, -1)


def stepped(name: str, rate: float, seed: int) -> tuple[torch.Tensor, torch.Tensor, float]:
    torch.manual_seed(seed)
    model = BertModel(BertConfig(**SIZES), add_pooling_layer=False).eval()
    before = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    optimizer = getattr(heavyball, name)(model.parameters(), lr=rate)
    model(IDS).last_hidden_state.square().mean().backward()
    optimizer.step()
    after = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    return before, after, model(IDS).last_hidden_state.abs().max().item()


heavyball.utils.compile_mode = None
same = {}
for name in ("AdamW", "Muon", "Scion"):
    before, after, _ = stepped(name, 0.0, seed=1)
    same[name] = round((before == after).float().mean().item(), 3)
    print(f"{name}, learning rate 0: share of the weights that stay {same[name]}")
first, second = stepped("Scion", 0.0, seed=1), stepped("Scion", 0.0, seed=2)
print(f"two checkpoints: equal before {torch.equal(first[0], second[0])}, after {torch.equal(first[1], second[1])}")
print(f"largest hidden state after the step: {first[2]}")
moved = [float((stepped("Scion", rate, seed=1)[1] - first[1]).abs().max()) for rate in (1e-5, 1e-3)]
print(f"with learning rates 1e-5 and 1e-3 the weights are within {moved[0]:.1e} and {moved[1]:.1e} of those of rate 0")
equal = torch.equal(first[1], second[1]) and not torch.equal(first[0], second[0])
kept = same["AdamW"] == same["Muon"] == 1 and same["Scion"] < 0.3
sys.exit(not (kept and equal and first[2] == 0 and moved[1] < 0.02))
PYTHON
TORCHDYNAMO_DISABLE=1 venv/bin/python try.py
