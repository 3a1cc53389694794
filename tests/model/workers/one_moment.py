"""Train a small network with an optimizer of one moment; save at one ZeRO stage, go on at another.

Prints the weights after each run of `STAGE,STAGE`: three steps at the first, two at the second.
"""

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "DS_ACCELERATOR": "cpu"}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1]}

from model.config import ComputeConfig, OptimizerConfig, TrainConfig
from model.distributed.rank_card import RankCard
from model.training import checkpoint
from model.training import engine as engines
from tests.support import finished


class Momentum(torch.optim.Optimizer):
    """Gradient descent with momentum, which keeps its only moment under a name of its own."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in (p for p in group["params"] if p.grad is not None):
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.zeros(())
                    state["velocity"] = torch.zeros_like(parameter)
                state["step"] += 1
                state["velocity"].mul_(0.9).add_(parameter.grad)
                with torch.no_grad():
                    parameter.sub_(group["lr"] * state["velocity"])


def build(module: nn.Module, config: OptimizerConfig, bf16: bool) -> Momentum:
    return Momentum(module.parameters(), {"lr": 0.1, "moments": ("velocity",)})


def engine_at(stage: int, world, weights=None):
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3))
    if weights is not None:
        module.load_state_dict(weights)
    config = TrainConfig(
        out="out",
        batch_size=4,
        micro_batch=4,
        optimizer=OptimizerConfig(name="adamw"),
        compute=ComputeConfig(),
        deepspeed={"zero_optimization": {"stage": stage}},
    )
    return engines.Engine(module, config, world)


def train(engine, first: int, steps: int) -> None:
    for step in range(first, first + steps):
        data = torch.randn(4, 7, generator=torch.Generator().manual_seed(step))
        loss = engine(data).square().mean()
        engine.backward(loss)
        engine.step()


engines.build_optimizer = build
folder = Path(sys.argv[2])
card = RankCard(run="r", out=sys.argv[2], host="h", world=1, fingerprint="f", versions={}, settings={}, code={})
world = engines.start_world(card, 1, 60.0, 60.0)
for pair in sys.argv[3:]:
    before, after = map(int, pair.split(","))
    engine = engine_at(before, world)
    train(engine, 0, 3)
    weights, moments = engine.state_dict()
    assert {key.partition(".")[0] for key in moments} == {"velocity"}
    path = checkpoint.write(folder / pair, finished.state(3), weights, moments)
    engine = engine_at(after, world, weights)
    engine.load_state_dict(checkpoint.Tensors(path), 3)
    train(engine, 3, 2)
    weights, _ = engine.state_dict()
    print(json.dumps({name: tensor.tolist() for name, tensor in weights.items()}))
