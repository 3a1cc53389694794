#!/usr/bin/env bash
# torchdata 0.11.0 (StatefulDataLoader), torch 2.13.0. (Installs 5 GB.)
#
# Guess: a training that is stopped in its second epoch and resumed from state_dict reads each row of that epoch once,
#   in the order of one that did not stop. The tutorial says of torch.utils.data's RandomSampler that it is patched by
#   the import, so that no sampler of one's own is needed.
# Seen: so it is with shuffle=True alone. With RandomSampler(rows, generator=...), the usual way to a seeded order,
#   the resumed part has the order of the first epoch: some rows come twice in the second, others never. With
#   shuffle=True and generator=..., no workers, the epoch is right and all epochs after it have another order.
# What follows: seed by torch.manual_seed with shuffle=True, or take RandomSampler from
#   torchdata.stateful_dataloader.sampler, which is right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" torchdata==0.11.0 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import torch
from torch.utils.data import RandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler as OwnSampler

ROWS, STOP = list(range(24)), 5


def build(kind: str) -> StatefulDataLoader:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    options = {
        "shuffle": {"shuffle": True},
        "shuffle, generator": {"shuffle": True, "generator": generator},
        "torch's RandomSampler": {"sampler": RandomSampler(ROWS, generator=generator)},
        "torchdata's RandomSampler": {"sampler": OwnSampler(ROWS, generator=generator)},
    }
    return StatefulDataLoader(ROWS, batch_size=2, **options[kind])


def epoch(loader: StatefulDataLoader) -> list[int]:
    return torch.cat(list(loader)).tolist()


def resume(kind: str) -> tuple[bool, bool, int]:
    """Whether the stopped epoch and the one after it are those of a run that did not stop, and rows never read."""
    loader = build(kind)
    straight = [epoch(loader) for _ in range(3)]
    loader = build(kind)
    epoch(loader)
    batches = iter(loader)
    first = torch.cat([next(batches) for _ in range(STOP)]).tolist()
    state = loader.state_dict()
    loader = build(kind)
    loader.load_state_dict(state)
    second = first + epoch(loader)
    return second == straight[1], epoch(loader) == straight[2], len(set(ROWS) - set(second))


kinds = ["shuffle", "shuffle, generator", "torch's RandomSampler", "torchdata's RandomSampler"]
results = [resume(kind) for kind in kinds]
for kind, (this, after, lost) in zip(kinds, results, strict=True):
    print(f"{kind}: stopped epoch right {this}, {lost} of {len(ROWS)} rows never read; next epoch right {after}")
right, other, wrong, own = results
sys.exit(not (right == own == (True, True, 0) and other == (True, False, 0) and wrong[2] > 0))
PYTHON
venv/bin/python try.py
