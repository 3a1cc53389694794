"""Print how far sums of bf16 gradients are from exact ones, and what engines keep: JSON by case.

The gradient of a micro-batch is the micro-batch itself, so that the exact sum is known. Shares of
micro-batches and ranks are powers of two, which divide without an error.
"""

import json
import os
from types import SimpleNamespace

os.environ |= {"DEEPSPEED_LOG_LEVEL": "warning", "DS_ACCELERATOR": "cpu"}

import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_grad
from torch import nn

from model.config import OptimizerConfig, TrainConfig
from model.distributed import rank_card
from model.optim.average import AVERAGE
from model.optim.zero_layout import layouts
from model.training import engine as engines
from model.training.deepspeed_config import FP32
from model.training.deepspeed_patches import is_linked

MICRO_BATCHES = 128
BF16 = {"data_types": {"grad_accum_dtype": "bf16"}}
CASES = {f"zero{stage}": (stage, FP32) for stage in (1, 2, 3)} | {"bf16": (1, BF16), "zero0": (0, {})}


class Product(nn.Module):
    """The gradient of its weight is what it is given."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(8, 8)), nn.Parameter(torch.zeros(8))
        self.unused = nn.Parameter(torch.ones(3, 3))

    def forward(self, x):
        return (self.weight * x).sum() + self.bias.sum()


def distance(stage, types, world):
    """Return the greatest relative error of a sum, and the wrapper that made it."""
    settings = {"zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}, **types}
    config = TrainConfig(
        out="out",
        precision="bf16" if stage else "fp32",
        batch_size=MICRO_BATCHES * world.size,
        micro_batch=1,
        threads=1,
        clip=None,
        optimizer=OptimizerConfig(name="lamb", learning_rate=0.1),
        ema=0.5,
        deepspeed=settings,
    )
    engine, taken = engines.Engine(Product(), config, world), list[bool]()
    engine.module.bias.register_post_accumulate_grad_hook(lambda bias: taken.append(bias.grad is None))
    owned = torch.tensor(sum(piece.size for one in layouts(engine.deepspeed).values() for piece in one.pieces))
    dist.all_reduce(owned)
    draws = torch.Generator().manual_seed(world.rank)
    given = [torch.rand(8, 8, generator=draws).add(0.5).bfloat16() for _ in range(MICRO_BATCHES)]
    for number, x in enumerate(given, start=1):
        engine.deepspeed.set_gradient_accumulation_boundary(number == MICRO_BATCHES)
        engine.deepspeed.backward(engine(x))
        if number == MICRO_BATCHES:
            found = safe_get_full_grad(engine.module.weight).float()
        engine.step()
    exact = torch.stack(given).double().sum(0)
    dist.all_reduce(exact)
    exact /= MICRO_BATCHES * world.size
    error = ((found - exact).abs() / exact).max().item()
    return {
        "error": error,
        "wrapper": type(engine.state.wrapper).__name__,
        "taken": all(taken),
        "owned": int(owned),
        "links": links(engine) if stage in (1, 2) else None,
        "averaged": [averaged(engine, after_others) for after_others in (False, True)],
        "loaded": loaded(engine),
    }


def step(engine):
    """Take one of a micro-batch of ones."""
    engine.backward(engine(torch.ones(8, 8, dtype=next(engine.module.parameters()).dtype)))
    engine.step()


def gathered(engine):
    """Return the weights and moments, on all ranks."""
    found = [engine.state_dict(compare=False)]
    dist.broadcast_object_list(found)
    return list(found[0])


def averaged(engine, after_others):
    """Return whether the model computes with its averages: as in training, `after_others` gather weights."""
    engine.train()
    step(engine)
    weights, moments = gathered(engine)
    x, right = torch.ones(8, 8), []
    for state in (weights, {name: moments[f"{AVERAGE}.{name}"] for name in weights}):
        (plain := Product()).load_state_dict(state)
        right.append(plain.to(engine.module.bias.dtype)(x).item())
    engine.train(False)
    with torch.no_grad():
        found = [engine(x).item()] if after_others else []
        with engine.averaged_weights():
            found.append(engine(x).item())
        found += [engine(x).item()] if after_others else []
    return right[0] != right[1] and found == ([*right, right[0]] if after_others else right[1:])


def loaded(engine):
    """Return whether an engine keeps the weights and moments that it is given."""
    weights, moments = gathered(engine)
    for number, tensor in enumerate([*weights.values(), *moments.values()]):
        tensor.copy_(torch.arange(tensor.numel()).view_as(tensor) + number)
    names = {tuple(name.split(".")) for name in moments}
    file = SimpleNamespace(weight=weights.get, moments=names, moment=lambda *name: moments[".".join(name)])
    if not engine.stage:
        engine.module.load_state_dict(weights)
    engine.load_state_dict(file, 1)
    pairs = zip((weights, moments), gathered(engine), strict=True)
    return all(one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one) for one, other in pairs)


def links(engine):
    """Return whether weights are the optimizer's: after a step, when moved, and a step later."""
    weight, found = engine.module.weight, [is_linked(engine.state.wrapper, 0)]
    weight.data = weight.data.clone()
    found.append(is_linked(engine.state.wrapper, 0))
    before = weight.detach().clone()
    step(engine)
    return [*found, is_linked(engine.state.wrapper, 0), not torch.equal(weight, before)]


def main():
    config = TrainConfig(out="out")
    world = engines.start_world(rank_card.describe(config, ""), 1, 600.0, 600.0)
    found = {name: distance(*case, world) for name, case in CASES.items()}
    if world.rank == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
