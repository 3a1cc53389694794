"""Print how far sums of bf16 gradients are from exact ones: a line of JSON for each case.

The gradient of a micro-batch is the micro-batch itself, so that the exact sum is known. Shares of
micro-batches and ranks are powers of two, which divide without an error.
"""

import json
import os
from typing import Any

os.environ |= {"DEEPSPEED_LOG_LEVEL": "warning", "DS_ACCELERATOR": "cpu"}

import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_grad
from torch import Tensor, nn

from model.config import OptimizerConfig, TrainConfig
from model.resilience import rank_card
from model.training import deepspeed_engine
from model.training.deepspeed_engine import FP32
from model.training.deepspeed_patches import linked

MICRO_BATCHES = 128
BF16 = {"data_types": {"grad_accum_dtype": "bf16"}}
CASES = {f"zero{stage}": (stage, FP32) for stage in (1, 2, 3)} | {"bf16": (1, BF16)}


class Product(nn.Module):
    """The gradient of its weight is what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(8, 8)), nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight * x).sum() + self.bias.sum()


def distance(stage: int, types: dict[str, Any], world: deepspeed_engine.World) -> dict[str, Any]:
    """Return the greatest relative error of a sum, and the wrapper that made it."""
    settings = {"zero_optimization": {"stage": stage}, **types}
    config = TrainConfig(
        out="out",
        precision="bf16",
        batch_size=MICRO_BATCHES * world.size,
        micro_batch=1,
        threads=1,
        clip=None,
        optimizer=OptimizerConfig(name="adamw"),
        deepspeed=settings,
    )
    engine = deepspeed_engine.build_engine(Product(), config, world)
    draws = torch.Generator().manual_seed(world.rank)
    given = [torch.rand(8, 8, generator=draws).add(0.5).bfloat16() for _ in range(MICRO_BATCHES)]
    for number, x in enumerate(given, start=1):
        engine.set_gradient_accumulation_boundary(number == MICRO_BATCHES)
        engine.backward(engine(x))
        if number == MICRO_BATCHES:
            found = safe_get_full_grad(engine.module.weight).float()
        engine.step()
    exact = torch.stack(given).double().sum(0)
    dist.all_reduce(exact)
    exact /= MICRO_BATCHES * world.size
    error = ((found - exact).abs() / exact).max().item()
    return {"error": error, "wrapper": type(engine.optimizer).__name__, "links": links(engine) if stage < 3 else None}


def links(engine: Any) -> list[bool]:
    """Return whether weights are the optimizer's: after a step, when moved, and a step later."""
    weight, found = engine.module.weight, [linked(engine.optimizer, 0)]
    weight.data = weight.data.clone()
    found.append(linked(engine.optimizer, 0))
    before = weight.detach().clone()
    engine.set_gradient_accumulation_boundary(True)
    engine.backward(engine(torch.ones(8, 8, dtype=torch.bfloat16)))
    engine.step()
    return [*found, linked(engine.optimizer, 0), not torch.equal(weight, before)]


def main() -> None:
    config = TrainConfig(out="out")
    world = deepspeed_engine.start_world(rank_card.describe(config, ""), 1, 600.0, 600.0)
    found = {name: distance(*case, world) for name, case in CASES.items()}
    if world.rank == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
